"""A point in the history of several shards as one number. Pure.

Oxia orders changes within a shard, by the offset of its log, and not between shards. A client that
follows all shards sees one merged history; a point in it is how far it is in each of them, and, in
the middle of a log entry that changed several keys, how many of those it has seen. The number
begins with the sum of the offsets, so that along any history it only grows, and holds all of them,
so that whoever has it can go on from there, in another process, too. Two clients may merge
differently: which of two changes in different shards was first has no answer in Oxia.
"""

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from anabranch.metadata.store import Revision

_OFFSET_BITS: Final = 64
_WITHIN_BITS: Final = 48
_PLACE_BITS: Final = 16


class Position(NamedTuple):
    """How far a client is."""

    offsets: tuple[int, ...]
    """The last offset of each shard of which everything was seen; -1 before the first."""
    place: int = 0
    """The shard, by its place among all, whose next entry was seen in part."""
    seen: int = 0
    """How many changes of that entry were seen."""


def epoch_of(shards: Sequence[int]) -> int:
    """Tells the history of these shards from that of others; grows with every split.

    Oxia gives new shards larger numbers than any before.
    """
    return (max(shards) + 1) << 32 | zlib.crc32(",".join(map(str, shards)).encode())


def revision_of(epoch: int, position: Position) -> Revision:
    """The number of a position."""
    index = sum(position.offsets) + len(position.offsets)
    index = (index << _WITHIN_BITS) | (position.seen << _PLACE_BITS) | position.place
    for offset in position.offsets:
        index = (index << _OFFSET_BITS) | (offset + 1)
    return Revision(epoch, index)


def seen_step(shard_count: int) -> int:
    """By how much a number grows with each change of an entry that was seen."""
    return 1 << (_PLACE_BITS + _OFFSET_BITS * shard_count)


def position_of(revision: Revision, epoch: int, shard_count: int) -> Position | None:
    """Undo `revision_of`; None for a revision of another history."""
    if revision.epoch != epoch or revision.index < 0:
        return None
    index = revision.index
    offsets: list[int] = []
    for _ in range(shard_count):
        offsets.append((index & ((1 << _OFFSET_BITS) - 1)) - 1)
        index >>= _OFFSET_BITS
    within = index & ((1 << _WITHIN_BITS) - 1)
    place, seen = within & ((1 << _PLACE_BITS) - 1), within >> _PLACE_BITS
    position = Position(tuple(reversed(offsets)), place, seen)
    if place >= shard_count or index >> _WITHIN_BITS != sum(offsets) + shard_count:
        return None
    return position
