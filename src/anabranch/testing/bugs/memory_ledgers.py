"""Planted bugs of the ledger store in memory."""

from anabranch.ledgers.memory import MemoryLedgerStore, MemoryReader, MemoryWriter
from anabranch.ledgers.store import AppendDone, Entry
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted


@planted("memory_completes_within_the_call", target="anabranch.ledgers.memory:MemoryWriter.append")
def memory_completes_within_the_call(self: MemoryWriter, payload: Buffer, done: AppendDone) -> int:
    """An append is answered before it returns."""
    done(self._ledger.appended, None)
    entry_id: int = original("memory_completes_within_the_call")(self, payload, lambda *_: None)
    return entry_id


@planted("memory_range_excludes_its_end", target="anabranch.ledgers.memory:MemoryReader.read")
async def memory_range_excludes_its_end(
    self: MemoryReader, first: int, last: int, *, max_bytes: int
) -> list[Entry]:
    """A read of several entries leaves out the last one."""
    shorter = last - 1 if last > first else last
    entries: list[Entry] = await original("memory_range_excludes_its_end")(
        self, first, shorter, max_bytes=max_bytes
    )
    return entries


@planted("memory_id_is_used_again", target="anabranch.ledgers.memory:MemoryLedgerStore.delete")
async def memory_id_is_used_again(self: MemoryLedgerStore, ledger_id: int) -> None:
    """The id of a deleted ledger may be given to another one."""
    await original("memory_id_is_used_again")(self, ledger_id)
    self._used.discard(ledger_id)


@planted("memory_close_does_not_wait", target="anabranch.ledgers.memory:MemoryWriter.close")
async def memory_close_does_not_wait(self: MemoryWriter) -> int:
    """A ledger is reported as closed while its appends are still under way."""
    self._closed = self._ledger.closed = True
    return self.last_entry_id


@planted("memory_open_does_not_fence", target="anabranch.ledgers.memory:MemoryLedgerStore.open")
async def memory_open_does_not_fence(self: MemoryLedgerStore, ledger_id: int) -> MemoryReader:
    """A ledger is recovered while its writer may go on."""
    ledger = self._find(ledger_id)
    ledger.closed = True
    return MemoryReader(ledger)
