"""Finding an entry by what it says, in a log that grows at one end and is trimmed at the other."""

from collections.abc import Callable

from anabranch import limits
from anabranch.errors import Corruption, StorageError, StoreFailed
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger.ledger import ManagedLedger
from anabranch.runtime.network import Buffer


async def newest_matching(
    ledger: ManagedLedger, up_to: Position, matches: Callable[[Buffer], bool]
) -> Position | None:
    """Find the last entry that matches, where those that match come before those that do not.

    A binary search: one read for each doubling of the log. Where the order is broken, as publish
    times of several producers are, the answer is one of the places where matching ends. A damaged
    entry counts as the next one that is not.

    Returns:
        Its position, or None if no entry up to `up_to` matches.

    Raises:
        AlreadyClosed: if the managed ledger is closed meanwhile.
        StoreFailed: if the store cannot read any more.
    """
    below, top, found = EARLIEST, up_to, None
    while count := ledger.entries_between(below, top):
        middle = ledger.position_after(below, (count + 1) // 2)
        try:
            entries = await ledger.read(middle, 1, limits.READ_BATCH_BYTES_MAX)
        except (Corruption, StorageError) as error:
            if isinstance(error, StoreFailed):
                raise
            entries = await _next_readable(ledger, middle, top)
            if not entries or not matches(entries[0].payload):
                top = ledger.previous_position(middle)
                continue
        if not entries:
            return found
        # If it was trimmed meanwhile so was everything before it, and this is the oldest entry.
        entry = entries[0]
        position = Position(entry.ledger_id, entry.entry_id)
        if position <= top and matches(entry.payload):
            below = found = position
        else:
            top = ledger.previous_position(min(position, top))
    return found


async def _next_readable(ledger: ManagedLedger, damaged: Position, top: Position) -> list[Entry]:
    """The first entry after a damaged one that is not damaged; [] if there is none up to `top`."""
    while (damaged := ledger.next_position(damaged)) <= top:
        try:
            return await ledger.read(damaged, 1, limits.READ_BATCH_BYTES_MAX)
        except StoreFailed:
            raise
        except (Corruption, StorageError):
            continue
    return []
