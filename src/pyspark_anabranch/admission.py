"""How much of what is there one batch of a stream takes: rows, bytes, and a fair share. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_anabranch.places import Place


class EntrySize(NamedTuple):
    """An entry that waits to be read."""

    ledger_id: int
    entry_id: int
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in a topic behind the start of a batch: as much as was looked at."""

    topic: str
    start: Place
    entries: Sequence[EntrySize]
    backlog: int
    """How many entries there are in all, looked at or not."""


def shares(backlogs: Sequence[int], total: int) -> list[int]:
    """Divide a limit in proportion to what waits, with at least one for everybody who waits."""
    whole = sum(backlogs)
    if whole == 0:
        return [0] * len(backlogs)
    found = [max(1, total * backlog // whole) if backlog else 0 for backlog in backlogs]
    while sum(found) > total and max(found) > 1:
        found[found.index(max(found))] -= min(max(found) - 1, sum(found) - total)
    return found


def take(
    waiting: Sequence[Waiting], rows_max: int | None, bytes_max: int | None
) -> dict[str, Place]:
    """Say where a batch ends in each topic.

    Rows are cut exactly, within a batch of messages if need be. Bytes are those of whole entries;
    one entry that is larger than the limit goes alone.
    """
    backlogs = [each.backlog for each in waiting]
    row_shares = shares(backlogs, rows_max) if rows_max else [None] * len(backlogs)
    byte_shares = shares(backlogs, bytes_max) if bytes_max else [None] * len(backlogs)
    ends, taken_bytes = {}, 0
    # Those with least first: what they leave of the bytes is still there for the others.
    for index in sorted(range(len(waiting)), key=backlogs.__getitem__):
        each = waiting[index]
        spare = None if bytes_max is None else bytes_max - taken_bytes
        end, used = _take_one(each, row_shares[index], byte_shares[index], spare, not taken_bytes)
        ends[each.topic] = end
        taken_bytes += used
    return ends


def _take_one(
    each: Waiting, rows: int | None, size: int | None, spare: int | None, is_first: bool
) -> tuple[Place, int]:
    end, used = each.start, 0
    for entry in each.entries:
        if size is not None and spare is not None:
            over_share = used + entry.size_bytes > size
            may_be_alone = used == 0 and (entry.size_bytes <= spare or is_first)
            if over_share and not may_be_alone:
                break
        skipped = each.start.batch_index if each.start[:2] == entry[:2] else 0
        left = entry.messages - skipped
        if rows is not None and rows < left:
            if rows > 0:
                end = Place(entry.ledger_id, entry.entry_id, skipped + rows)
                used += entry.size_bytes
            break
        end = Place(entry.ledger_id, entry.entry_id + 1)
        used += entry.size_bytes
        if rows is not None:
            rows -= left
            if rows == 0:
                break
    return end, used


def rows_in(waiting: Sequence[Waiting]) -> int:
    """How many messages were looked at."""
    return sum(
        entry.messages - (each.start.batch_index if each.start[:2] == entry[:2] else 0)
        for each in waiting
        for entry in each.entries
    )
