"""How much of what is there one batch of a stream takes: rows, bytes, and a fair share. Pure."""

from collections.abc import Mapping, Sequence
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
    waiting: Sequence[Waiting],
    rows_max: int | None,
    bytes_max: int | None,
    owed: Sequence[str] = (),
) -> dict[str, Place]:
    """Say where a batch ends in each topic.

    Rows are cut exactly, within a batch of messages if need be. Bytes are those of whole entries;
    one entry that is larger than the limit goes alone. Nobody's floor lifts the limit: those for
    whom nothing is left are `owed`, see `left_out`, and come first next time.
    """
    backlogs = [each.backlog for each in waiting]
    row_shares = shares(backlogs, rows_max) if rows_max else [None] * len(backlogs)
    byte_shares = shares(backlogs, bytes_max) if bytes_max else [None] * len(backlogs)
    rank = {topic: number for number, topic in enumerate(owed)}
    # Those with least first: what they leave is still there for the others.
    order = sorted(
        range(len(waiting)),
        key=lambda index: (rank.get(waiting[index].topic, len(rank)), backlogs[index]),
    )
    ends, rows_taken, bytes_taken = {}, 0, 0
    for index in order:
        each = waiting[index]
        row_share, byte_share = row_shares[index], byte_shares[index]
        rows = None if rows_max is None else min(row_share or 0, rows_max - rows_taken)
        spare = None if bytes_max is None else bytes_max - bytes_taken
        end, used_rows, used_bytes = _take_one(each, rows, byte_share, spare, not bytes_taken)
        ends[each.topic] = end
        rows_taken, bytes_taken = rows_taken + used_rows, bytes_taken + used_bytes
    return ends


def left_out(
    waiting: Sequence[Waiting], ends: Mapping[str, Place], owed: Sequence[str] = ()
) -> list[str]:
    """Name who waits and got nothing of a batch, whoever was owed before first."""
    missed = [each.topic for each in waiting if each.entries and ends[each.topic] == each.start]
    return [
        *(each for each in owed if each in missed),
        *(each for each in missed if each not in owed),
    ]


def _take_one(
    each: Waiting, rows: int | None, share: int | None, spare: int | None, is_first: bool
) -> tuple[Place, int, int]:
    end, taken, used = each.start, 0, 0
    for entry in each.entries:
        if share is not None and spare is not None:
            fits = used + entry.size_bytes <= min(share, spare)
            may_be_alone = used == 0 and (entry.size_bytes <= spare or is_first)
            if not fits and not may_be_alone:
                break
        skipped = each.start.batch_index if each.start[:2] == entry[:2] else 0
        left = entry.messages - skipped
        if rows is not None and taken + left > rows:
            if taken < rows:
                end = Place(entry.ledger_id, entry.entry_id, skipped + rows - taken)
                taken, used = rows, used + entry.size_bytes
            break
        end = Place(entry.ledger_id, entry.entry_id + 1)
        taken, used = taken + left, used + entry.size_bytes
    return end, taken, used


def rows_in(waiting: Sequence[Waiting]) -> int:
    """How many messages were looked at."""
    return sum(
        entry.messages - (each.start.batch_index if each.start[:2] == entry[:2] else 0)
        for each in waiting
        for entry in each.entries
    )


def bytes_in(waiting: Sequence[Waiting]) -> int:
    """How large the entries are that were looked at."""
    return sum(entry.size_bytes for each in waiting for entry in each.entries)
