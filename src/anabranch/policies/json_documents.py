"""How a typed document becomes JSON and back.

A document is a frozen dataclass below `JsonDocument`. A field's key is its name in camel case, or
the one given with `keyed`. What a document does not know lands in `unknown`, and is written again.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from anabranch.errors import FormatError, InputError

_KEY: Final = "key"
_NARROW: Final = "narrow"
_UNKNOWN: Final = "unknown"
_NUMBER_MIN, _NUMBER_MAX = -(2**63), 2**63 - 1
"""Whoever else reads the document keeps its numbers in 64 bits."""
NARROW_MAX: Final = 2**31 - 1
"""And some in 32."""
Reader = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonDocument:
    """What all documents have."""

    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Fields of other versions, as they were read."""


D = TypeVar("D", bound=JsonDocument)
_described: dict[type[JsonDocument], tuple[tuple[str, str, Reader], ...]] = {}
"""Name, key and reader of every field, by document; made once."""


def keyed(
    key: str,
    default: Any = MISSING,
    *,
    make: Callable[[], Any] | None = None,
    narrow: bool = False,
) -> Any:
    """A field whose key is not its name in camel case, or whose number has 32 bits in Pulsar."""
    metadata = {_KEY: key, _NARROW: narrow}
    if make is not None:
        return field(default_factory=make, metadata=metadata)
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def check_numbers(document: JsonDocument) -> None:
    """Refuse numbers with which Pulsar could not read the document any more.

    Raises:
        InputError: naming the first of them.
    """
    for each in fields(document):
        value = getattr(document, each.name)
        if isinstance(value, JsonDocument):
            check_numbers(value)
        elif isinstance(value, Mapping):
            for inner in value.values():
                if isinstance(inner, JsonDocument):
                    check_numbers(inner)
        elif each.metadata.get(_NARROW) and value is not None and abs(value) > NARROW_MAX:
            raise InputError(f"{_key_of(each)} must be {NARROW_MAX} or less, not {value}")


def decode(kind: type[D], data: bytes) -> D:
    """Read a stored document.

    Raises:
        FormatError: if the bytes are no such document, naming the field that is wrong.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {error}") from error
    return from_json(kind, value)


def encode(document: JsonDocument) -> bytes:
    """The bytes to store."""
    return json.dumps(to_json(document), separators=(",", ":")).encode()


def from_json(kind: type[D], value: object) -> D:
    """Make a document of what JSON text said.

    Raises:
        FormatError: naming the field that is wrong.
    """
    return _read_document(kind, value, kind.__name__)


def to_json(document: JsonDocument) -> dict[str, Any]:
    """What is written as JSON: everything that is set, then what was not understood."""
    result: dict[str, Any] = {}
    for name, key, _ in _fields_of(type(document)):
        value = getattr(document, name)
        if value is not None:
            result[key] = _written(value)
    for key, value in document.unknown.items():
        result.setdefault(key, value)
    return result


def _written(value: Any) -> Any:
    if isinstance(value, JsonDocument):
        return to_json(value)
    if isinstance(value, Mapping):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    return value


def _read_document(kind: type[D], value: object, where: str) -> D:
    if not isinstance(value, dict):
        raise FormatError(f"{where} is not an object: {_short(value)}")
    known: dict[str, Any] = {}
    left = dict(value)
    for name, key, reader in _fields_of(kind):
        found = left.pop(key, None)
        if found is not None:
            known[name] = reader(found, f"{where}.{key}")
    return kind(unknown=left, **known)


def _fields_of(kind: type[JsonDocument]) -> tuple[tuple[str, str, Reader], ...]:
    described = _described.get(kind)
    if described is None:
        hints = get_type_hints(kind)
        described = _described[kind] = tuple(
            (each.name, _key_of(each), _reader_of(hints[each.name]))
            for each in fields(kind)
            if each.name != _UNKNOWN
        )
    return described


def _key_of(each: "Field[Any]") -> str:
    given: str | None = each.metadata.get(_KEY)
    if given is not None:
        return given
    first, *rest = each.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _reader_of(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return _reader_of(inner)
    if origin is tuple:
        return _list_reader(_reader_of(arguments[0]))
    if origin is not None:
        return _map_reader(_reader_of(arguments[1]))
    if hint is Any:
        return lambda value, where: value
    if issubclass(hint, JsonDocument):
        kind: type[JsonDocument] = hint
        return lambda value, where: _read_document(kind, value, where)
    return _scalar_reader(hint)


def _list_reader(inner: Reader) -> Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise FormatError(f"{where} is not a list: {_short(value)}")
        return tuple(inner(each, f"{where}[{index}]") for index, each in enumerate(value))

    return read


def _map_reader(inner: Reader) -> Reader:
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise FormatError(f"{where} is not an object: {_short(value)}")
        # Pulsar writes null for what was removed from some of its maps.
        return {
            key: inner(each, f"{where}.{key}") for key, each in value.items() if each is not None
        }

    return read


def _scalar_reader(wanted: type) -> Reader:
    def read(value: Any, where: str) -> Any:
        if type(value) in (int, float) and not _NUMBER_MIN <= value <= _NUMBER_MAX:
            raise FormatError(f"{where} is out of range: {_short(value)}")
        if wanted is float and type(value) is int:
            return float(value)
        if type(value) is not wanted:
            raise FormatError(f"{where} is not of type {wanted.__name__}: {_short(value)}")
        return value

    return read


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
