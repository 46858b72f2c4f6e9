"""Ranges cut so that every task has at most so many rows or bytes. Pure.

How many messages an entry has is written in the entry alone, so whoever asks for this has looked at
every entry of the range.
"""

from collections.abc import Iterator

from pyspark_anabranch.admission import Waiting
from pyspark_anabranch.places import Place


def parts_of(
    waiting: Waiting, end: Place, rows_max: int | None, bytes_max: int | None
) -> Iterator[tuple[Place, Place]]:
    """Divide what waits before `end` into nearly equal parts within the limits.

    Rows are cut exactly, within a batch of messages if need be: then two tasks read its entry.
    Bytes are those of whole entries; one that is larger than the limit goes alone.
    """
    pieces = [
        (each, *_messages(each.messages, each[:2], waiting.start, end)) for each in waiting.entries
    ]
    rows_each = _even(sum(high - low for _, low, high in pieces), rows_max)
    bytes_each = _even(sum(entry.size_bytes for entry, _, _ in pieces), bytes_max)
    begin, rows, size = waiting.start, 0, 0
    for entry, low, high in pieces:
        here = Place(entry.ledger_id, entry.entry_id, low)
        if bytes_max and size and size + entry.size_bytes > bytes_max:
            yield begin, here
            begin, rows, size = here, 0, 0
        while rows_each and rows + high - low > rows_each:
            low += rows_each - rows
            here = here._replace(batch_index=low)
            yield begin, here
            begin, rows, size = here, 0, 0
        rows, size = rows + high - low, size + entry.size_bytes
        if (rows_each and rows == rows_each) or (bytes_each and size >= bytes_each):
            here = Place(entry.ledger_id, entry.entry_id + 1)
            yield begin, here
            begin, rows, size = here, 0, 0
    if size:
        yield begin, end


def _messages(count: int, at: tuple[int, ...], start: Place, end: Place) -> tuple[int, int]:
    """Which messages of an entry are within a range."""
    low = start.batch_index if start[:2] == at else 0
    high = min(count, end.batch_index) if end[:2] == at else count
    return low, max(low, high)


def _even(total: int, most: int | None) -> int | None:
    """How much each part has if there are as few as the limit allows, all nearly the same."""
    if most is None or total == 0:
        return None
    return -(-total // -(-total // most))
