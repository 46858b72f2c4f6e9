"""Whether data written with one Avro schema can be read with another. Pure.

The rules are those of the Avro specification as its Java library resolves them, since that is
what Pulsar's broker asks: names of records do not matter, and a reader may lack symbols of an
enum, which only fails for data that has them.
"""

from typing import Final

from anabranch.broker.limits import SCHEMA_COMPARED_DEPTH_MAX, SCHEMA_COMPARED_STEPS_MAX
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
from anabranch.errors import InputError

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def problem(reader: Type, writer: Type) -> str | None:
    """Why what `writer` describes cannot be read by `reader`; None if it can.

    Raises:
        InputError: if that takes more than anybody's schemas should.
    """
    return _Comparison().problem(reader, writer)


class _Comparison:
    """Compares each pair of records once, however often and deep it occurs."""

    def __init__(self) -> None:
        self._steps = 0
        self._depth = 0
        self._wrong: dict[tuple[int, int], str] = {}
        self._right: dict[tuple[int, int], None] = {}
        """In the order in which they were found, those being looked at among them: a pair within
        itself is right if nothing else is wrong."""

    def problem(self, reader: Type, writer: Type) -> str | None:
        self._depth += 1
        self._count(1)
        if self._depth > SCHEMA_COMPARED_DEPTH_MAX:
            raise InputError(
                f"the schema has more than {SCHEMA_COMPARED_DEPTH_MAX} types within types"
            )
        wrong = self._compared(reader, writer)
        self._depth -= 1
        return wrong

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > SCHEMA_COMPARED_STEPS_MAX:
            raise InputError("the schemas are too much to compare")

    def _compared(self, reader: Type, writer: Type) -> str | None:
        if isinstance(writer, Union):
            wrongs = (self.problem(reader, branch) for branch in writer.branches)
            return next((wrong for wrong in wrongs if wrong is not None), None)
        if isinstance(reader, Union):
            if any(self.problem(branch, writer) is None for branch in reader.branches):
                return None
            return f"no branch of the reader's union takes {_kind(writer)}"
        if isinstance(reader, Record) and isinstance(writer, Record):
            return self._once(reader, writer)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.problem(reader.items, writer.items)
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.problem(reader.values, writer.values)
        return _leaf_problem(reader, writer)

    def _once(self, reader: Record, writer: Record) -> str | None:
        pair = (id(reader), id(writer))
        if pair in self._right:
            return None
        if pair not in self._wrong:
            known = len(self._right)
            self._right[pair] = None
            wrong = self._record_problem(reader, writer)
            if wrong is None:
                return None
            while len(self._right) > known:
                self._right.popitem()  # perhaps right only if this one had been
            self._wrong[pair] = wrong
        return self._wrong[pair]

    def _record_problem(self, reader: Record, writer: Record) -> str | None:
        self._count(len(reader.fields) + len(writer.fields))
        written = {each.name: each for each in writer.fields}
        for wanted in reader.fields:
            found = next(
                (written[name] for name in (wanted.name, *wanted.aliases) if name in written), None
            )
            if found is None:
                if not wanted.has_default:
                    return f"found {writer.name}, missing required field {wanted.name}"
                continue
            wrong = self.problem(wanted.type, found.type)
            if wrong is not None:
                return f"field {wanted.name}: {wrong}"
        return None


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


def _kind(each: Type) -> str:
    if isinstance(each, Primitive):
        return each.kind
    if isinstance(each, Record | Enum | Fixed):
        return each.name
    return type(each).__name__.lower()
