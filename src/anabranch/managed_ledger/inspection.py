"""Looking at managed ledgers without owning them: nothing is fenced, recovered or written.

What the nodes do not say, such as how much an open ledger holds, is asked of a `LedgerView`, of
which there is one for each storage cluster.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from anabranch.errors import Corruption, EntryLost, FormatError, NotFound
from anabranch.ids import EARLIEST, Position, decode_segment
from anabranch.ledgers.bookkeeper.inspection import LedgersOnBookies
from anabranch.ledgers.bookkeeper.ledger_metadata import State
from anabranch.ledgers.inspection import StoredLedgers
from anabranch.ledgers.stamps import LedgerPlace, Stamp
from anabranch.ledgers.store import Entry, LedgerDescription, LedgerState
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.managed_ledger.formats import (
    ChainDocument,
    CursorDocument,
    decode_chain,
    decode_cursor,
    decode_position_entry,
    is_offloaded,
    restore_acknowledged,
)
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.metadata.store import MetadataStore

_DEPTH = 4
"""A managed ledger is at TENANT/NAMESPACE/DOMAIN/TOPIC, its cursors one below."""


class LedgerView(Protocol):
    """Read access to ledgers that leaves their writers alone."""

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """What is known of a ledger.

        Raises:
            NotFound: if there is none of that id.
        """
        ...

    def read(self, ledger_id: int, first: int, last: int) -> AsyncIterator[Entry]:
        """Entries first..last in order.

        Raises:
            Corruption: at the first one that is damaged.
        """
        ...


ViewOf = Callable[[Stamp], Awaitable[LedgerView]]
"""Finds the view of the storage cluster that a stamp names."""


class BookiesView:
    """A view of ledgers on bookies: of those being written, what is known to be durable."""

    def __init__(self, ledgers: LedgersOnBookies) -> None:
        self._ledgers = ledgers

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """See `LedgerView.describe`."""
        seen = await self._ledgers.look(ledger_id)
        return LedgerDescription(
            ledger_id,
            LedgerState.CLOSED if seen.metadata.state is State.CLOSED else LedgerState.OPEN,
            0,
            seen.last_entry_id,
            seen.length_bytes,
            seen.metadata.custom_metadata,
        )

    async def read(self, ledger_id: int, first: int, last: int) -> AsyncIterator[Entry]:
        """See `LedgerView.read`."""
        seen = await self._ledgers.look(ledger_id)
        async for entry in self._ledgers.read(seen, first, last):
            yield entry


class FolderView:
    """A view of the folder of an embedded store that nobody uses."""

    def __init__(self, stored: StoredLedgers) -> None:
        self._stored = stored

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """See `LedgerView.describe`."""
        ledger = self._stored.ledger(ledger_id)
        return LedgerDescription(
            ledger_id,
            LedgerState.OPEN if ledger.closed_last is None else LedgerState.CLOSED,
            ledger.epoch,
            ledger.last_entry_id,
            ledger.length_bytes,
            ledger.custom_metadata,
        )

    def read(self, ledger_id: int, first: int, last: int) -> AsyncIterator[Entry]:
        """See `LedgerView.read`."""
        return self._stored.read(self._stored.ledger(ledger_id), first, last)


@dataclass(frozen=True, slots=True)
class ViewedLedger:
    """One ledger of a chain: what its chain says, and what the ledger store says of it."""

    span: LedgerSpan
    found: LedgerDescription | None
    """None if it is not there, or nobody was asked."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was moved to slower storage, and is no longer in the ledger store."""
        return is_offloaded(self.span)

    @property
    def entries(self) -> int | None:
        """How many entries it has; None if that is not known."""
        if self.span.closed_ms or self.span.entries:
            return self.span.entries
        return None if self.found is None else self.found.last_entry_id + 1

    @property
    def size_bytes(self) -> int | None:
        """How many bytes it has; None if that is not known."""
        if self.span.closed_ms or self.span.entries:
            return self.span.size_bytes
        return None if self.found is None else self.found.length_bytes


@dataclass(frozen=True, slots=True)
class ViewedChain:
    """A managed ledger as its node and the ledger store describe it."""

    name: str
    document: ChainDocument
    ledgers: tuple[ViewedLedger, ...]

    def chain(self) -> Chain | None:
        """The chain for arithmetic on positions; None if it has no ledger or lacks one's size."""
        spans = []
        for ledger in self.ledgers:
            entries, size = ledger.entries, ledger.size_bytes
            if entries is None or size is None:
                return None
            spans.append(replace(ledger.span, entries=entries, size_bytes=size))
        return Chain(spans, None) if spans else None


@dataclass(frozen=True, slots=True)
class ViewedCursor:
    """A cursor as it is stored."""

    name: str
    document: CursorDocument
    """With the state of its ledger, if it has one that could be read."""
    entry_id: int | None
    """Which entry of its own ledger that is."""
    problem: str = ""
    """Why the state is not what was stored last, if it is not."""
    unread: bool = False
    """Whether its state is in a ledger, and no view was given to read it."""

    def acknowledged(self, chain: Chain) -> Acknowledged:
        """What it has acknowledged of a chain."""
        document = self.document
        if document.mark_delete is None:
            document = replace(document, mark_delete=chain.previous_position(EARLIEST))
        return restore_acknowledged(document, chain)


async def list_names(metadata: MetadataStore) -> list[str]:
    """The names of all managed ledgers, sorted."""
    names = []
    async for node in metadata.scan(MANAGED_LEDGERS):
        name = node.stat.path.removeprefix(MANAGED_LEDGERS).lstrip("/")
        if name.count("/") + 1 == _DEPTH:
            names.append(name)
    return sorted(names)


async def view_chain(metadata: MetadataStore, view_of: ViewOf | None, name: str) -> ViewedChain:
    """Read the node of a managed ledger, and what is known of its ledgers.

    Raises:
        NotFound: if there is none of that name.
        FormatError: if its node cannot be read.
    """
    node = await metadata.get(f"{MANAGED_LEDGERS}/{name}")
    if node is None:
        raise NotFound(f"there is no managed ledger {name}")
    document = decode_chain(node.value, name)
    ledgers = [ViewedLedger(span, await _found(view_of, span.place)) for span in document.spans]
    return ViewedChain(name, document, tuple(ledgers))


async def _found(view_of: ViewOf | None, place: LedgerPlace) -> LedgerDescription | None:
    if view_of is None:
        return None
    view = await view_of(place.stamp)
    try:
        return await view.describe(place.ledger_id)
    except NotFound:
        return None


async def cursor_nodes(metadata: MetadataStore, name: str) -> Mapping[str, bytes]:
    """The cursors of a managed ledger by name, as they are stored."""
    prefix = f"{MANAGED_LEDGERS}/{name}/"
    found = {}
    async for node in metadata.scan(prefix.rstrip("/")):
        segment = node.stat.path.removeprefix(prefix)
        if node.stat.path.startswith(prefix) and "/" not in segment:
            found[decode_segment(segment)] = node.value
    return dict(sorted(found.items()))


async def view_cursor(view_of: ViewOf | None, name: str, value: bytes) -> ViewedCursor:
    """Read a cursor: its node, and the newest entry of its ledger that is not damaged.

    Raises:
        FormatError: if one of them is something else.
    """
    document = decode_cursor(value, name)
    ledger_id = document.cursor_ledger_id
    if ledger_id < 0:
        return ViewedCursor(name, document, None)
    if view_of is None:
        return ViewedCursor(name, document, None, unread=True)
    found = await _found(view_of, LedgerPlace(ledger_id, document.stamp))
    if found is None:
        return ViewedCursor(name, document, None, f"its ledger {ledger_id} is not there")
    if found.last_entry_id < 0:
        return ViewedCursor(name, document, None, f"its ledger {ledger_id} is empty")
    problem = ""
    view = await view_of(document.stamp)
    for entry_id in range(found.last_entry_id, -1, -1):
        try:
            entries = [entry async for entry in view.read(ledger_id, entry_id, entry_id)]
        except (Corruption, EntryLost) as error:
            what = "lost" if isinstance(error, EntryLost) else "damaged"
            problem = problem or f"entry {entry_id} of its ledger {ledger_id} is {what}: {error}"
            continue
        if not entries:
            raise FormatError(f"ledger {ledger_id} of cursor {name} has no entry {entry_id}")
        stored = decode_position_entry(bytes(entries[0].payload), document, name)
        return ViewedCursor(name, stored, entry_id, problem)
    return ViewedCursor(name, document, None, problem)


def last_of(chain: Chain) -> Position:
    """The highest position that a cursor of this chain can have passed."""
    return max(chain.last_confirmed, Position(chain.highest_id, -1))
