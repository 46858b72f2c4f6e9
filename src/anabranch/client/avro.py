"""Avro's binary form: values by a schema into bytes, and back by the schema they were written by.

Pure. What is read becomes plain dicts and lists; `records` makes dataclasses of them.
"""

import json
import struct
from typing import Any, Final

from anabranch.errors import ConfigError, FormatError, InputError

_FIXED: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_DEPTH_MAX: Final = 64
_ITEMS_MAX: Final = 10_000_000


class AvroSchema:
    """A schema that was read: its types by name, so that it may refer to itself."""

    def __init__(self, text: bytes | str) -> None:
        """Read a schema.

        Raises:
            ConfigError: if it is none.
        """
        try:
            self.root = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"no schema of Avro: {error}") from None
        self._named: dict[str, Any] = {}
        self._collect(self.root, "", 0)

    def _collect(self, schema: Any, namespace: str, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise ConfigError("a schema that is nested too deeply")
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, namespace, depth + 1)
        elif isinstance(schema, dict):
            if schema.get("type") in ("record", "enum", "fixed"):
                name = str(schema.get("name", ""))
                # A name without a namespace is in that of what encloses it.
                namespace = name.rpartition(".")[0] or str(schema.get("namespace", namespace))
                name = name.rpartition(".")[2]
                self._named[name] = self._named[f"{namespace}.{name}"] = schema
            for field in schema.get("fields", ()):
                self._collect(field["type"], namespace, depth + 1)
            for part in ("items", "values", "type"):
                if isinstance(schema.get(part), dict | list):
                    self._collect(schema[part], namespace, depth + 1)

    def resolve(self, schema: Any) -> Any:
        """A schema with names replaced by what they name."""
        if isinstance(schema, str) and schema in self._named:
            return self._named[schema]
        if isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            return self.resolve(schema["type"])
        return schema


def kind_of(schema: Any) -> str:
    """What a resolved schema is."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


# --- writing ---------------------------------------------------------------------------------


def encode(schema: AvroSchema, value: Any) -> bytes:
    """Write a plain value.

    Raises:
        InputError: if it is no value of the schema.
    """
    out = bytearray()
    try:
        _write(schema, schema.root, value, out)
    except (
        TypeError, ValueError, KeyError, AttributeError, StopIteration, struct.error,
    ) as error:  # fmt: skip
        raise InputError(f"no value of this schema: {error!r}") from None
    return bytes(out)


def _long(number: int, out: bytearray) -> None:
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} does not fit 64 bits")
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write(schema: AvroSchema, what: Any, value: Any, out: bytearray) -> None:
    what = schema.resolve(what)
    kind = kind_of(what)
    if kind == "record":
        for field in what["fields"]:
            given = value.get(field["name"], field.get("default"))
            _write(schema, field["type"], given, out)
    elif kind == "union":
        index = next(number for number, each in enumerate(what) if _fits(schema, each, value))
        _long(index, out)
        _write(schema, what[index], value, out)
    elif kind in ("array", "map"):
        _write_items(schema, what, value, out)
    elif kind == "enum":
        _long(what["symbols"].index(value), out)
    else:
        _write_plain(kind, what, value, out)


def _write_plain(kind: str, what: Any, value: Any, out: bytearray) -> None:
    if kind == "boolean":
        out.append(1 if value else 0)
    elif kind in ("int", "long"):
        _long(int(value), out)
    elif kind in _FIXED:
        out += _FIXED[kind].pack(value)
    elif kind in ("string", "bytes"):
        data = value.encode() if isinstance(value, str) else bytes(value)
        _long(len(data), out)
        out += data
    elif kind == "fixed":
        if len(value) != what["size"]:
            raise ValueError(f"{len(value)} bytes for a fixed of {what['size']}")
        out += value
    elif kind != "null" or value is not None:
        raise ValueError(f"{value!r} for {kind}")


def _write_items(schema: AvroSchema, what: Any, value: Any, out: bytearray) -> None:
    if value:
        _long(len(value), out)
        for item in value:
            if isinstance(value, dict):
                _write(schema, "string", item, out)
                _write(schema, what["values"], value[item], out)
            else:
                _write(schema, what["items"], item, out)
    out.append(0)


_PYTHON: Final[dict[str, type | tuple[type, ...]]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (float, int),
    "double": (float, int),
    "string": str,
    "enum": str,
    "bytes": bytes,
    "fixed": bytes,
    "array": list,
    "map": dict,
    "record": dict,
}


def _fits(schema: AvroSchema, what: Any, value: Any) -> bool:
    kind = kind_of(schema.resolve(what))
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _PYTHON.get(kind, object))


# --- reading ---------------------------------------------------------------------------------


def decode(schema: AvroSchema, data: bytes) -> Any:
    """Read a plain value by the schema that it was written by.

    Raises:
        FormatError: if the bytes are no value of it.
    """
    reader = _Reader(schema, data)
    try:
        value = reader.read(schema.root)
    except (IndexError, KeyError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise FormatError(f"{len(data)} bytes that are no value of their schema: {error!r}") from (
            None
        )
    if reader.at != len(data):
        raise FormatError(f"{len(data) - reader.at} bytes are left of a value")
    return value


class _Reader:
    def __init__(self, schema: AvroSchema, data: bytes) -> None:
        self._schema = schema
        self._data = data
        self.at = 0

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self.at:
            raise ValueError(f"{count} bytes at {self.at} of {len(self._data)}")
        self.at += count
        return self._data[self.at - count : self.at]

    def _long(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def read(self, what: Any) -> Any:
        what = self._schema.resolve(what)
        kind = kind_of(what)
        if kind == "record":
            return {field["name"]: self.read(field["type"]) for field in what["fields"]}
        if kind == "union":
            return self.read(what[self._index(len(what))])
        if kind == "array":
            return [self.read(what["items"]) for _ in self._blocks()]
        if kind == "map":
            return {self.read("string"): self.read(what["values"]) for _ in self._blocks()}
        if kind == "enum":
            return what["symbols"][self._index(len(what["symbols"]))]
        return self._plain(kind, what)

    def _plain(self, kind: str, what: Any) -> Any:
        if kind == "boolean":
            return self._take(1) != b"\0"
        if kind in ("int", "long"):
            return self._long()
        if kind in _FIXED:
            return _FIXED[kind].unpack(self._take(_FIXED[kind].size))[0]
        if kind == "bytes":
            return self._take(self._long())
        if kind == "string":
            return self._take(self._long()).decode()
        if kind == "fixed":
            return self._take(what["size"])
        if kind != "null":
            raise ValueError(f"no type {kind!r}")
        return None

    def _index(self, count: int) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise ValueError(f"choice {index} of {count}")
        return index

    def _blocks(self) -> Any:
        total = 0
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # how many bytes they are
            total += count
            if total > _ITEMS_MAX:
                raise ValueError(f"{total} items")
            yield from range(count)
