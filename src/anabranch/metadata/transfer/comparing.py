"""Two trees side by side, in bounded memory: both come in path order."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from anabranch.errors import InputError
from anabranch.metadata.paths import order_key
from anabranch.metadata.store import Record
from anabranch.metadata.transfer.keeping import Keeping


class Kind(Enum):
    """How two trees differ at a path."""

    ONLY_LEFT = "only left"
    ONLY_RIGHT = "only right"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Difference:
    """One path at which two trees are not the same."""

    kind: Kind
    path: str
    left: Record | None
    right: Record | None
    fields: tuple[str, ...] = ()
    """What is not the same, if there is a node on both sides."""


async def compare(
    left: AsyncIterator[Record],
    right: AsyncIterator[Record],
    *,
    content_only: bool = False,
    times: bool = False,
    ephemerals: bool = False,
) -> AsyncIterator[Difference]:
    """Every difference, in path order.

    Raises:
        InputError: if one of the two does not come in path order.
    """
    ours, theirs = _InOrder(left, ephemerals), _InOrder(right, ephemerals)
    await ours.advance()
    await theirs.advance()
    while ours.record is not None or theirs.record is not None:
        if theirs.record is None or (ours.record is not None and ours.key < theirs.key):
            assert ours.record is not None
            yield Difference(Kind.ONLY_LEFT, ours.record.path, ours.record, None)
            await ours.advance()
        elif ours.record is None or theirs.key < ours.key:
            yield Difference(Kind.ONLY_RIGHT, theirs.record.path, None, theirs.record)
            await theirs.advance()
        else:
            fields = _fields(ours.record, theirs.record, content_only=content_only, times=times)
            if fields:
                yield Difference(Kind.DIFFERS, ours.record.path, ours.record, theirs.record, fields)
            await ours.advance()
            await theirs.advance()


def _fields(left: Record, right: Record, *, content_only: bool, times: bool) -> tuple[str, ...]:
    found = []
    if left.value != right.value:
        found.append("value")
    if (left.session is None) != (right.session is None):
        found.append("ephemeral")
    if not content_only:
        if left.native_version != right.native_version:
            found.append("version")
        if left.next_sequence != right.next_sequence:
            found.append("sequence")
        if set(left.indexes) != set(right.indexes):
            found.append("indexes")
        if left.access != right.access:
            found.append("access")
    if times and (left.created_ms, left.modified_ms) != (right.created_ms, right.modified_ms):
        found.append("times")
    return tuple(found)


class _InOrder:
    """The present record of a stream, and a check that they come in order."""

    def __init__(self, records: AsyncIterator[Record], ephemerals: bool) -> None:
        self._records = records
        self._ephemerals = ephemerals
        self.record: Record | None = None
        self.key = ""

    async def advance(self) -> None:
        before = self.key if self.record is not None else None
        async for record in self._records:
            key = order_key(record.path)
            if before is not None and key <= before:
                raise InputError(f"{record.path} does not come in path order")
            before = key
            if record.session is None or self._ephemerals:
                self.record, self.key = record, key
                return
        self.record = None


def arrived(source: Record, target: Record, keeping: Keeping, *, overwritten: bool) -> bool:
    """Whether a node of the source is in the target as well as the target can hold it."""
    if source.value != target.value or target.session is not None:
        return False
    if target.next_sequence < source.next_sequence:
        return False
    if not overwritten:
        if keeping.sequences and target.next_sequence != source.next_sequence:
            return False
        changed = target.native_version != source.native_version
        if changed and keeping.keeps_version(source):
            return False
    if keeping.indexes and set(source.indexes) != set(target.indexes):
        return False
    return not keeping.access or not source.access or source.access == target.access
