"""Processes that write ledgers on model bookies, and open those of others while they are written.

What they see goes to `Promises`, which judges it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch.errors import AnabranchError, Fenced, InputError, NotFound
from anabranch.ledgers.store import LedgerReader, LedgerState, LedgerStore, LedgerWriter
from anabranch.runtime import Runtime
from anabranch.testing.bookies.promises import Promises

WRITERS_EACH: Final = 2
_READ_BYTES_MAX: Final = 10_000
_PATIENCE_S: Final = 120.0
_SIZES: Final = (10, 60, 300, 2000)


async def read_all(promises: Promises, reader: LedgerReader) -> None:
    """Read a ledger from its first entry to its last; all must be as it was written."""
    first = 0
    while first <= reader.last_entry_id:
        entries = await reader.read(first, reader.last_entry_id, max_bytes=_READ_BYTES_MAX)
        assert [entry.entry_id for entry in entries] == list(range(first, first + len(entries)))
        promises.read(reader.ledger_id, first, [bytes(entry.payload) for entry in entries])
        first += len(entries)


async def recover(promises: Promises, store: LedgerStore, ledger_id: int) -> None:
    """Open a ledger, which settles it, and read it."""
    reader = await store.open(ledger_id)
    promises.settle(ledger_id, reader.last_entry_id + 1)
    await read_all(promises, reader)


class Client:
    """One life of a client's process."""

    def __init__(
        self,
        promises: Promises,
        runtime: Runtime,
        store: LedgerStore,
        recovering: Callable[[int], None],
    ) -> None:
        self._promises = promises
        self._entropy = runtime.entropy
        self._store = store
        self._recovering = recovering
        """Told of every ledger that is about to be opened."""

    async def work(self) -> None:
        """Write and open until the story is over."""
        await asyncio.gather(*(self._write() for _ in range(WRITERS_EACH)), self._open())
        await self._store.close()

    # --- writing ------------------------------------------------------------------------------

    async def _write(self) -> None:
        while not self._promises.over:
            ledger_id = self._promises.begin()
            try:
                writer = await self._store.create(ledger_id)
                self._promises.ledgers[ledger_id].created = True
                await self._fill(ledger_id, writer)
            except AnabranchError as error:
                self._tolerate("writing", error)
                await asyncio.sleep(self._entropy.uniform(0.0, 0.5))

    async def _fill(self, ledger_id: int, writer: LedgerWriter) -> None:
        """Bursts of appends, then any end."""
        for _ in range(1 + self._entropy.below(8)):
            if not await self._burst(ledger_id, writer):
                return
            if self._entropy.below(2):
                await asyncio.sleep(self._entropy.uniform(0.0, 0.8))
            if self._entropy.below(4) == 0 and writer.last_entry_id >= 0:
                first = self._entropy.below(writer.last_entry_id + 1)
                entries = await writer.read(first, first + 3, max_bytes=_READ_BYTES_MAX)
                self._promises.read(ledger_id, first, [bytes(e.payload) for e in entries])
        if self._entropy.below(2):
            last = await writer.close()
            self._promises.settle(ledger_id, last + 1)
            self._promises.operate("closed")

    async def _burst(self, ledger_id: int, writer: LedgerWriter) -> bool:
        """Several appends in flight; False if the writer may not go on."""
        promises = self._promises
        attempted = promises.ledgers[ledger_id].attempted
        count = 1 + self._entropy.below(16)
        waiting = count
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(entry_id: int, error: Exception | None) -> None:
            nonlocal waiting
            if error is None:
                promises.acknowledge(ledger_id, entry_id)
            else:
                promises.refuse(ledger_id, type(error).__name__)
            waiting -= 1
            if not waiting and not ended.done():
                ended.set_result(None)

        for _ in range(count):
            size = _SIZES[self._entropy.below(len(_SIZES))]
            content = b"%d;" % self._entropy.below(1 << 30) * (size // 10)
            attempted.append(content)
            try:
                entry_id = writer.append(content, done)
            except AnabranchError as error:
                attempted.pop()
                self._tolerate("appending", error)
                return False
            assert entry_id == len(attempted) - 1, f"ledger {ledger_id} skips to {entry_id}"
        async with asyncio.timeout(_PATIENCE_S):
            await ended
        return not promises.ledgers[ledger_id].refused

    # --- opening ------------------------------------------------------------------------------

    async def _open(self) -> None:
        promises = self._promises
        while not promises.over:
            await asyncio.sleep(self._entropy.uniform(0.0, 0.6))
            ledgers = promises.settled(wanted=self._entropy.below(4) == 0)
            if not ledgers:
                continue
            # The newest are most likely still written to.
            ledger_id = ledgers[-1 - self._entropy.below(min(len(ledgers), 4))]
            try:
                if self._entropy.below(4) == 0:
                    await self._describe(ledger_id)
                self._recovering(ledger_id)
                # By then its writer has entries on some bookies that others have not got.
                await asyncio.sleep(self._entropy.uniform(0.0, 0.3))
                await recover(promises, self._store, ledger_id)
                promises.operate("recovered")
            except AnabranchError as error:
                self._tolerate("opening", error)

    async def _describe(self, ledger_id: int) -> None:
        described = await self._store.describe(ledger_id)
        entries = described.last_entry_id + 1
        if described.state is LedgerState.CLOSED:
            self._promises.settle(ledger_id, entries)
        else:
            self._promises.know(ledger_id, entries)

    def _tolerate(self, doing: str, error: AnabranchError) -> None:
        """Faults explain much, but no wrong question and no lost ledger."""
        assert not isinstance(error, InputError | NotFound), f"{doing}: {error!r}"
        fenced = "fenced" if isinstance(error, Fenced) else type(error).__name__
        self._promises.operate(f"{doing}: {fenced}")
