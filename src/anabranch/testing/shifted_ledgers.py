"""A ledger store in which every test has the ids from 0 on for itself.

Bookies remember a ledger after it was deleted, so tests that share bookies must not share ids.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.journal import Pressure
from anabranch.ledgers.store import (
    AppendDone,
    Entry,
    LedgerDescription,
    LedgerQuorums,
    LedgerReader,
    LedgerStore,
    LedgerWriter,
)
from anabranch.limits import LEDGER_ID_MAX
from anabranch.runtime.network import Buffer

IDS: Final = 1_000_000
"""How many ids each has, besides one at the end of all."""


class ShiftedReader:
    """See `LedgerReader`."""

    def __init__(self, inner: LedgerReader, ledger_id: int) -> None:
        self._inner = inner
        self.ledger_id = ledger_id

    @property
    def last_entry_id(self) -> int:
        """See `LedgerReader.last_entry_id`."""
        return self._inner.last_entry_id

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        """See `LedgerReader.read`."""
        entries = await self._inner.read(first, last, max_bytes=max_bytes)
        assert {entry.ledger_id for entry in entries} <= {self._inner.ledger_id}
        return [entry._replace(ledger_id=self.ledger_id) for entry in entries]


class ShiftedWriter(ShiftedReader):
    """See `LedgerWriter`."""

    def __init__(self, inner: LedgerWriter, ledger_id: int) -> None:
        super().__init__(inner, ledger_id)
        self._writer = inner

    def append(self, payload: Buffer, done: AppendDone) -> int:
        """See `LedgerWriter.append`."""
        return self._writer.append(payload, done)

    async def close(self) -> int:
        """See `LedgerWriter.close`."""
        return await self._writer.close()


class ShiftedStore:
    """See `LedgerStore`."""

    def __init__(self, inner: LedgerStore, number: int) -> None:
        assert number > 0, "number 0 is for who does not shift"
        self._inner = inner
        self._number = number

    def _there(self, ledger_id: int) -> int:
        if 0 <= ledger_id < IDS:
            return ledger_id + self._number * IDS
        return ledger_id - self._number if ledger_id == LEDGER_ID_MAX else ledger_id

    def _here(self, ledger_id: int) -> int | None:
        if ledger_id == LEDGER_ID_MAX - self._number:
            return LEDGER_ID_MAX
        shifted = ledger_id - self._number * IDS
        return shifted if 0 <= shifted < IDS else None

    @property
    def pressure(self) -> Pressure:
        """See `LedgerStore.pressure`."""
        return self._inner.pressure

    @property
    def failure(self) -> AnabranchError | None:
        """See `LedgerStore.failure`."""
        return self._inner.failure

    @property
    def degraded(self) -> str | None:
        """See `LedgerStore.degraded`."""
        return self._inner.degraded

    async def create(
        self,
        ledger_id: int,
        *,
        custom_metadata: Mapping[str, bytes] | None = None,
        quorums: LedgerQuorums | None = None,
    ) -> ShiftedWriter:
        """See `LedgerStore.create`."""
        writer = await self._inner.create(
            self._there(ledger_id), custom_metadata=custom_metadata, quorums=quorums
        )
        return ShiftedWriter(writer, ledger_id)

    async def open(self, ledger_id: int) -> ShiftedReader:
        """See `LedgerStore.open`."""
        return ShiftedReader(await self._inner.open(self._there(ledger_id)), ledger_id)

    async def delete(self, ledger_id: int) -> None:
        """See `LedgerStore.delete`."""
        await self._inner.delete(self._there(ledger_id))

    async def list(self) -> AsyncIterator[int]:
        """See `LedgerStore.list`."""
        async for ledger_id in self._inner.list():
            if (here := self._here(ledger_id)) is not None:
                yield here

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """See `LedgerStore.describe`."""
        found = await self._inner.describe(self._there(ledger_id))
        return replace(found, ledger_id=ledger_id)

    async def close(self) -> None:
        """See `LedgerStore.close`."""
        await self._inner.close()
