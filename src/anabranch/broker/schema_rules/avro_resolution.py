"""Whether data written with one Avro schema can be read with another. Pure.

The rules are those of the Avro specification as its Java library resolves them, since that is
what Pulsar's broker asks: names of records do not matter, and a reader may lack symbols of an
enum, which only fails for data that has them.
"""

from typing import Final

from anabranch.broker.schema_rules.avro_types import (
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_Seen = frozenset[tuple[int, int]]


def problem(reader: Type, writer: Type, seen: _Seen = frozenset()) -> str | None:
    """Why what `writer` describes cannot be read by `reader`; None if it can."""
    if isinstance(writer, Union):
        for branch in writer.branches:
            wrong = problem(reader, branch, seen)
            if wrong is not None:
                return wrong
        return None
    if isinstance(reader, Union):
        if any(problem(branch, writer, seen) is None for branch in reader.branches):
            return None
        return f"no branch of the reader's union takes {_kind(writer)}"
    if isinstance(reader, Record) and isinstance(writer, Record):
        return _record_problem(reader, writer, seen)
    if isinstance(reader, Array) and isinstance(writer, Array):
        return problem(reader.items, writer.items, seen)
    if isinstance(reader, Map) and isinstance(writer, Map):
        return problem(reader.values, writer.values, seen)
    return _leaf_problem(reader, writer)


def _leaf_problem(reader: Type, writer: Type) -> str | None:
    if isinstance(reader, Primitive) and isinstance(writer, Primitive):
        if reader.kind == writer.kind or reader.kind in _PROMOTIONS.get(writer.kind, ()):
            return None
    elif isinstance(reader, Enum) and isinstance(writer, Enum):
        if reader.name == writer.name:
            return None
        return f"enum {writer.name} is not {reader.name}"
    elif isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader == writer:
        return None
    return f"found {_kind(writer)}, expecting {_kind(reader)}"


def _record_problem(reader: Record, writer: Record, seen: _Seen) -> str | None:
    pair = (id(reader), id(writer))
    if pair in seen:
        return None  # it is being looked at further up
    seen |= {pair}
    written = {each.name: each for each in writer.fields}
    for wanted in reader.fields:
        found = next(
            (written[name] for name in (wanted.name, *wanted.aliases) if name in written), None
        )
        if found is None:
            if not wanted.has_default:
                return f"found {writer.name}, missing required field {wanted.name}"
            continue
        wrong = problem(wanted.type, found.type, seen)
        if wrong is not None:
            return f"field {wanted.name}: {wrong}"
    return None


def _kind(each: Type) -> str:
    if isinstance(each, Primitive):
        return each.kind
    if isinstance(each, Record | Enum | Fixed):
        return each.name
    return type(each).__name__.lower()
