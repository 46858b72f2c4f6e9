"""Two trees side by side, in bounded memory: both come in path order."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from anabranch.errors import InputError
from anabranch.metadata.access_rights import may_be_seen_as
from anabranch.metadata.paths import order_key
from anabranch.metadata.store import Record
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping


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
    keepings: tuple[Keeping, Keeping] = (EVERYTHING, EVERYTHING),
    content_only: bool = False,
    times: bool = False,
    ephemerals: bool = False,
) -> AsyncIterator[Difference]:
    """Every difference, in path order.

    The two `keepings` are of the stores that the trees are in. A version or sequence number that a
    store could not keep when the one tree was copied to the other is no difference.

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
            fields = _content(ours.record, theirs.record)
            if not content_only:
                fields += _numbers(ours.record, theirs.record, *keepings)
                fields += _details(ours.record, theirs.record)
            if times and _times(ours.record) != _times(theirs.record):
                fields.append("times")
            if fields:
                yield Difference(
                    Kind.DIFFERS, ours.record.path, ours.record, theirs.record, tuple(fields)
                )
            await ours.advance()
            await theirs.advance()


def _content(left: Record, right: Record) -> list[str]:
    found = []
    if left.value != right.value:
        found.append("value")
    if (left.session is None) != (right.session is None):
        found.append("ephemeral")
    return found


def _details(left: Record, right: Record) -> list[str]:
    found = []
    if set(left.indexes) != set(right.indexes):
        found.append("indexes")
    # One of the two may have been read by somebody who may not see passwords.
    seen = may_be_seen_as(left.access, right.access) or may_be_seen_as(right.access, left.access)
    if not seen:
        found.append("access")
    return found


def _times(record: Record) -> tuple[int, int]:
    return record.created_ms, record.modified_ms


def _numbers(left: Record, right: Record, lefts: Keeping, rights: Keeping) -> list[str]:
    """Version and sequence, if a copy from the left to the right cannot have made the difference.

    Nor one from the right to the left, where it is known exactly what that makes of a number.
    """
    versions = [(right, rights.version_after(left))]
    sequences = [(right, rights.sequence_after(left))]
    if not lefts.sequences_may_grow:
        versions.append((left, lefts.version_after(right)))
        sequences.append((left, lefts.sequence_after(right)))
    found = []
    if not any(copy.native_version == made for copy, made in versions):
        found.append("version")
    grown = rights.sequences_may_grow and right.next_sequence > left.next_sequence
    if not grown and not any(copy.next_sequence == made for copy, made in sequences):
        found.append("sequence")
    return found


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
    if not keeping.access or not source.access:
        return True
    # Who copied it may be shut out by now.
    return may_be_seen_as(source.access, target.access)
