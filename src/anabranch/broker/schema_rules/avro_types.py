"""Avro schemas as values: what a schema's JSON says, with names resolved."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.broker.limits import SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX
from anabranch.errors import InputError

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts."""

    kind: str


@dataclass(frozen=True, slots=True)
class Array:
    """A list of items of one type."""

    items: "Type"


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by text."""

    values: "Type"


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types."""

    branches: "tuple[Type, ...]"


@dataclass(frozen=True, slots=True)
class Fixed:
    """So many bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Enum:
    """One of several words."""

    name: str
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class RecordField:
    """One field of a record."""

    name: str
    type: "Type"
    has_default: bool
    aliases: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Record:
    """Named fields; its own type may occur among them."""

    name: str
    fields: list[RecordField] = field(default_factory=list)


Type = Primitive | Array | Map | Union | Fixed | Enum | Record


def parse(data: bytes) -> Type:
    """Read a schema.

    Raises:
        InputError: saying what is wrong with it.
    """
    if len(data) > SCHEMA_BYTES_MAX:
        raise InputError(f"a schema has at most {SCHEMA_BYTES_MAX} bytes, not {len(data)}")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the schema is no JSON: {error}") from error
    return _Parser().read(value, "", 0)


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Type] = {}

    def read(self, value: Any, space: str, depth: int) -> Type:
        if depth > SCHEMA_DEPTH_MAX:
            raise InputError(f"the schema has more than {SCHEMA_DEPTH_MAX} types within types")
        if isinstance(value, str):
            return self._by_name(value, space)
        if isinstance(value, list):
            return Union(tuple(self.read(branch, space, depth + 1) for branch in value))
        if not isinstance(value, dict):
            raise InputError(f"{value!r} is no Avro type")
        return self._of_object(value, space, depth)

    def _of_object(self, value: Mapping[str, Any], space: str, depth: int) -> Type:
        kind = value.get("type")
        if isinstance(kind, dict | list):
            return self.read(kind, space, depth + 1)
        if kind == "array":
            return Array(self.read(value.get("items"), space, depth + 1))
        if kind == "map":
            return Map(self.read(value.get("values"), space, depth + 1))
        if kind in ("record", "error"):
            return self._record(value, space, depth)
        if kind == "enum":
            return self._enum(value, space)
        if kind == "fixed":
            size = value.get("size")
            if type(size) is not int or size < 0:
                raise InputError(f"the size of a fixed type is {size!r}")
            fixed = Fixed(_full_name(value, space), size)
            return self._define(fixed.name, fixed)
        if isinstance(kind, str):
            return self._by_name(kind, space)
        raise InputError(f"{kind!r} is no Avro type")

    def _by_name(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(name)
        for candidate in (name if "." in name or not space else f"{space}.{name}", name):
            if candidate in self._named:
                return self._named[candidate]
        raise InputError(f"the schema names a type it does not define: {name!r}")

    def _define(self, name: str, defined: Type) -> Type:
        if name in self._named:
            raise InputError(f"the schema defines {name!r} twice")
        self._named[name] = defined
        return defined

    def _enum(self, value: Mapping[str, Any], space: str) -> Type:
        symbols, default = value.get("symbols"), value.get("default")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise InputError(f"the symbols of an enum are {symbols!r}")
        name = _full_name(value, space)
        return self._define(
            name, Enum(name, tuple(symbols), default if isinstance(default, str) else None)
        )

    def _record(self, value: Mapping[str, Any], space: str, depth: int) -> Type:
        name = _full_name(value, space)
        record = Record(name)
        self._define(name, record)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InputError(f"the fields of record {name!r} are {fields!r}")
        inner = name.rpartition(".")[0]
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise InputError(f"record {name!r} has a field without a name")
            record.fields.append(
                RecordField(
                    each["name"],
                    self.read(each.get("type"), inner, depth + 1),
                    "default" in each,
                    _aliases(each),
                )
            )
        return record


def _aliases(field: Mapping[str, Any]) -> tuple[str, ...]:
    aliases = field.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise InputError(f"the aliases of field {field['name']!r} are not names: {aliases!r}")
    return tuple(aliases)


def _full_name(value: Mapping[str, Any], space: str) -> str:
    name, own_space = value.get("name"), value.get("namespace")
    if not isinstance(name, str) or not name:
        raise InputError(f"a named type has the name {name!r}")
    if "." in name:
        return name
    within = own_space if isinstance(own_space, str) else space
    return f"{within}.{name}" if within else name
