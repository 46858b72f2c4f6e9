"""The newest entry of a cursor's ledger that can still be read, found in a bounded search."""

import asyncio
from collections.abc import Sequence

from anabranch import limits
from anabranch.errors import Corruption, EntryLost
from anabranch.ledgers.store import Entry, LedgerReader


async def newest_readable(reader: LedgerReader) -> Entry | None:
    """The last entry of a cursor's ledger, or one before it that is not damaged or lost.

    Each holds a whole state: an older one brings messages again, but loses none. The rule:

    - Of the last `CURSOR_LEDGER_SEARCH_ENTRIES` the newest that can be read is found, wherever
      it lies.
    - If there is none, every `CURSOR_LEDGER_SEARCH_STEP_ENTRIES`-th of the older ones is tried,
      newest first, and the very first entry: as many in a row as that step are never missed.
      From the first of these that can be read, each up to the one tried before is looked at.
    - In a ledger so long that this would be more than `CURSOR_LEDGER_SEARCH_PROBES_MAX` reads
      the steps are larger. What remains unfound after them is given up.
    """
    end = reader.last_entry_id + 1
    each_from = max(0, end - limits.CURSOR_LEDGER_SEARCH_ENTRIES)
    found = await _first_readable(reader, range(end - 1, each_from - 1, -1))
    if found is not None or each_from == 0:
        return found
    step = max(
        limits.CURSOR_LEDGER_SEARCH_STEP_ENTRIES,
        each_from // (limits.CURSOR_LEDGER_SEARCH_PROBES_MAX - 1) + 1,
    )
    found = await _first_readable(reader, [*range(each_from - step, 0, -step), 0])
    if found is None:
        return None
    up_to = min(found.entry_id + step, each_from)
    return await _first_readable(reader, range(up_to - 1, found.entry_id, -1)) or found


async def _first_readable(reader: LedgerReader, entry_ids: Sequence[int]) -> Entry | None:
    """The first of these that can be read: one is asked for, then ever more at a time."""
    tried, at_once = 0, 1
    while tried < len(entry_ids):
        asked = entry_ids[tried : tried + at_once]
        answers = await asyncio.gather(
            *(_entry(reader, entry_id) for entry_id in asked), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            if answer is not None:
                return answer
        tried += len(asked)
        at_once = min(2 * at_once, limits.CURSOR_LEDGER_SEARCH_AT_ONCE)
    return None


async def _entry(reader: LedgerReader, entry_id: int) -> Entry | None:
    try:
        entries = await reader.read(entry_id, entry_id, max_bytes=limits.CURSOR_ENTRY_BYTES_MAX)
    except (Corruption, EntryLost):
        return None
    return entries[0]
