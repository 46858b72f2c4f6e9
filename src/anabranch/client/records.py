"""Dataclasses as records of Avro, which Pulsar's JSON and Avro schemas are written in. Pure.

A field with a default may be missing in what was written; a field `X | None` may be null.
"""

import dataclasses
import types
from base64 import b64decode, b64encode
from enum import Enum
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from anabranch.errors import ConfigError, InputError

T = TypeVar("T")
_PLAIN: Final[dict[Any, str]] = {
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "bytes",
}


def record_schema(kind: type) -> dict[str, Any]:
    """The schema of a dataclass, as JSON has it.

    Raises:
        ConfigError: naming the field that no schema can be made of.
    """
    if not dataclasses.is_dataclass(kind):
        raise ConfigError(f"a schema is made of a dataclass, not of {kind!r}")
    return _record(kind, {})


def _record(kind: type, named: dict[str, type]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    named[kind.__name__] = kind
    fields = []
    for each in dataclasses.fields(kind):
        described = {
            "name": each.name,
            "type": _type(hints[each.name], f"{kind.__name__}.{each.name}", named),
        }
        default = _default(each)
        if default is not dataclasses.MISSING:
            described["default"] = default
        fields.append(described)
    return {"type": "record", "name": kind.__name__, "fields": fields}


def _default(field: "dataclasses.Field[Any]") -> Any:
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value if value in ([], {}) else dataclasses.MISSING


def _type(hint: Any, where: str, named: dict[str, type]) -> Any:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        (inner,) = (each for each in arguments if each is not type(None))
        return ["null", _type(inner, where, named)]
    if origin is list:
        return {"type": "array", "items": _type(arguments[0], where, named)}
    if origin is dict and arguments[0] is str:
        return {"type": "map", "values": _type(arguments[1], where, named)}
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, Enum)):
        return _named(hint, where, named)
    raise ConfigError(f"{where}: no schema can be made of {hint!r}")


def _named(kind: type, where: str, named: dict[str, type]) -> Any:
    known = named.get(kind.__name__)
    if known is kind:
        return kind.__name__
    if known is not None:
        raise ConfigError(f"{where}: two types are called {kind.__name__}")
    if issubclass(kind, Enum):
        named[kind.__name__] = kind
        return {"type": "enum", "name": kind.__name__, "symbols": [each.name for each in kind]}
    return _record(kind, named)


def to_plain(value: Any, *, text_bytes: bool) -> Any:
    """A value as dicts, lists and plain values; bytes in base64 if they have to be text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: to_plain(getattr(value, each.name), text_bytes=text_bytes)
            for each in dataclasses.fields(value)
        }
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list):
        return [to_plain(each, text_bytes=text_bytes) for each in value]
    if isinstance(value, dict):
        return {key: to_plain(each, text_bytes=text_bytes) for key, each in value.items()}
    if isinstance(value, bytes) and text_bytes:
        return b64encode(value).decode()
    return value


def from_plain(kind: type[T], value: Any) -> T:
    """Undo `to_plain`; what the dataclass does not know is passed over.

    Raises:
        InputError: naming what is missing or of another kind.
    """
    made: T = _made(kind, value, kind.__name__)
    return made


def _made(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return None if value is None else _made(inner, value, where)
    if origin is list and isinstance(value, list):
        return [_made(arguments[0], each, where) for each in value]
    if origin is dict and isinstance(value, dict):
        return {key: _made(arguments[1], each, where) for key, each in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _made_record(hint, value, where)
    if isinstance(hint, type) and issubclass(hint, Enum) and value in hint.__members__:
        return hint[value]
    if hint is bytes and isinstance(value, str):
        return b64decode(value)
    if hint is float and type(value) is int:
        return float(value)
    if hint in _PLAIN and type(value) is hint:
        return value
    raise InputError(f"{where} cannot be {value!r}"[:200])


def _made_record(kind: Any, value: dict[str, Any], where: str) -> Any:
    hints = get_type_hints(kind)
    known = {
        each.name: _made(hints[each.name], value[each.name], f"{where}.{each.name}")
        for each in dataclasses.fields(kind)
        if each.name in value
    }
    try:
        return kind(**known)
    except TypeError as error:
        raise InputError(f"{where}: {error}") from None
