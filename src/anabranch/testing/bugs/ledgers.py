"""Planted bugs of `anabranch.ledgers`."""

from collections.abc import Iterable

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.embedded_ledger import EmbeddedReader
from anabranch.ledgers.index import LedgerIndex
from anabranch.ledgers.records import Close
from anabranch.ledgers.store import Entry
from anabranch.ledgers.upkeep import Upkeep
from anabranch.testing.planted import planted


@planted("open_does_not_fence", target="anabranch.ledgers.embedded:EmbeddedLedgerStore.open")
async def open_does_not_fence(self: EmbeddedLedgerStore, ledger_id: int) -> EmbeddedReader:
    """A ledger is recovered while its writer may go on."""
    ledger = self._find(ledger_id)
    if ledger.closed_last is None:
        await self.record(Close(ledger_id, ledger.last_entry_id, ledger.length_bytes))
    return EmbeddedReader(self, ledger)


@planted("compaction_loses_facts", target="anabranch.ledgers.index:LedgerIndex.facts_to_copy")
def compaction_loses_facts(
    _self: LedgerIndex, _segment: int, _facts: Iterable[bytes]
) -> list[bytes]:
    """A segment is written anew with its entries only: beginnings, ends and deletions are gone."""
    return []


@planted("old_index_outlives_compaction", target="anabranch.ledgers.upkeep:Upkeep._forget_index")
async def old_index_outlives_compaction(_self: Upkeep, _segment: int) -> None:
    """The index file of a segment stays while another file takes the segment's place."""


@planted(
    "moved_entries_are_not_looked_for",
    target="anabranch.ledgers.embedded_ledger:EmbeddedReader.read",
)
async def moved_entries_are_not_looked_for(
    self: EmbeddedReader, first: int, last: int, *, max_bytes: int
) -> list[Entry]:
    """A read that was under way when its entries moved fails."""
    return await self._read(first, min(last, self.last_entry_id), max_bytes)


@planted("rewritten_segment_may_be_short", target="anabranch.journal.recovery:_check_whole")
def rewritten_segment_may_be_short(_segment: object) -> None:
    """Nobody looks whether all of a rewritten segment is there."""
