"""Planted bugs of `anabranch.ledgers`."""

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.embedded_ledger import EmbeddedReader
from anabranch.ledgers.records import Close
from anabranch.testing.planted import planted


@planted("open_does_not_fence", target="anabranch.ledgers.embedded:EmbeddedLedgerStore.open")
async def open_does_not_fence(self: EmbeddedLedgerStore, ledger_id: int) -> EmbeddedReader:
    """A ledger is recovered while its writer may go on."""
    ledger = self._find(ledger_id)
    if ledger.closed_last is None:
        await self.record(Close(ledger_id, ledger.last_entry_id, ledger.length_bytes))
    return EmbeddedReader(self, ledger)
