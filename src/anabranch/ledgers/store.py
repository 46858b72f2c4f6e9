"""The contract of a ledger store: append-only sequences of entries with one writer each.

A ledger is created with an id that its caller chose, is written by one writer, and is closed
either by that writer or by an opener who recovers it: `open` fences the writer first, so that
nothing is acknowledged to it afterwards. Entries are numbered from 0 without gaps.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from anabranch.errors import AnabranchError
from anabranch.journal import Pressure
from anabranch.runtime.network import Buffer

AppendDone = Callable[[int, Exception | None], None]
"""Called with the entry id, and the reason if the entry was not made durable."""


class Entry(NamedTuple):
    """One entry as it was appended."""

    ledger_id: int
    entry_id: int
    payload: Buffer


class LedgerQuorums(NamedTuple):
    """On how many servers a ledger is; a store that is one server takes no notice."""

    ensemble: int
    """Servers among which the entries go round."""
    write: int
    """Of them, how many get each entry."""
    ack: int
    """Of those, how many must have stored it."""


class LedgerState(Enum):
    """Where a ledger is in its life."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LedgerDescription:
    """What is known of a ledger."""

    ledger_id: int
    state: LedgerState
    writer_epoch: int
    """Raised by whoever opens it while it is open; a writer of a smaller epoch is fenced."""
    last_entry_id: int
    """-1 if empty. Of an open ledger: the last one known to be durable."""
    length_bytes: int
    custom_metadata: Mapping[str, bytes]


class LedgerReader(Protocol):
    """Read access to the durable entries of a ledger."""

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        ...

    @property
    def last_entry_id(self) -> int:
        """The last durable entry; -1 if there is none."""
        ...

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        """Entries first..last (inclusive), at least one, then as many as fit `max_bytes`.

        Fewer if a later one is damaged: a read fails only if `first` itself cannot be read.

        Raises:
            InputError: if `first` is negative or above `last`.
            NotFound: if `first` is above the last durable entry, or the ledger was deleted.
            Corruption: if the bytes of `first` are damaged; never returns such.
        """
        ...


class LedgerWriter(LedgerReader, Protocol):
    """The one writer of an open ledger."""

    def append(self, payload: Buffer, done: AppendDone) -> int:
        """Add an entry and return its id at once; `done` follows when it is durable, in order.

        After the first failure every later append of this writer fails too. The payload must not
        change until `done`; it is not copied. An append that failed may have taken effect: only
        `LedgerStore.open` tells.

        Raises:
            Fenced: if somebody opened or deleted the ledger meanwhile.
            AlreadyClosed: after `close`, of the writer or of the store.
            InputError: if the payload is too large.
            StoreBusy: if far more waits for the disk than `LedgerStore.pressure` allows.
        """
        ...

    async def close(self) -> int:
        """Wait for appends in flight, close the ledger durably, return the last entry id.

        Raises:
            Fenced: if somebody opened or deleted the ledger meanwhile.
        """
        ...


class LedgerStore(Protocol):
    """Creates, opens and deletes ledgers."""

    @property
    def pressure(self) -> Pressure:
        """What was appended to any ledger and is not durable yet; look at it before appending."""
        ...

    async def create(
        self,
        ledger_id: int,
        *,
        custom_metadata: Mapping[str, bytes] | None = None,
        quorums: LedgerQuorums | None = None,
    ) -> LedgerWriter:
        """Begin a ledger under the given id; by the store's own quorums if none are given.

        Raises:
            ConflictError: if the id is in use, or was ever used and the store remembers it. One on
                BookKeeper does not: ids must come from a source that gives none twice.
            InputError: if the id is not in 0..2**63-1.
        """
        ...

    async def open(self, ledger_id: int) -> LedgerReader:
        """Fence the writer, recover and close the ledger if it is open, and read it.

        Raises:
            NotFound: if there is no such ledger.
        """
        ...

    async def delete(self, ledger_id: int) -> None:
        """Remove a ledger durably, whatever its state; its id is never used again.

        Raises:
            NotFound: if there is no such ledger.
        """
        ...

    def list(self) -> AsyncIterator[int]:
        """Ids of all ledgers, ascending."""
        ...

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """Return what is known, without fencing anybody.

        Raises:
            NotFound: if there is no such ledger.
        """
        ...

    @property
    def failure(self) -> AnabranchError | None:
        """Why this store will accept nothing any more; None while it may."""
        ...

    @property
    def degraded(self) -> str | None:
        """What does not work as it should, though entries are safe; None if all is well."""
        ...

    async def close(self) -> None:
        """Finish appends in flight and let go of every resource."""
        ...
