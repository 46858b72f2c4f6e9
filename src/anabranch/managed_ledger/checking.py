"""Checking managed ledgers: what their nodes say against each other and against the ledgers."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from anabranch.errors import (
    AnabranchError,
    Corruption,
    FormatError,
    NotFound,
    StorageError,
    Unreachable,
)
from anabranch.ids import Position
from anabranch.ledgers.stamps import Stamp
from anabranch.ledgers.store import Entry, LedgerDescription, LedgerState
from anabranch.managed_ledger.chain import Chain
from anabranch.managed_ledger.inspection import (
    ViewedChain,
    ViewedCursor,
    ViewedLedger,
    ViewOf,
    cursor_nodes,
    last_of,
    view_chain,
    view_cursor,
)
from anabranch.metadata.store import MetadataStore

Progress = Callable[[int], None]
"""Told how many bytes have been read so far."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    managed_ledger: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.managed_ledger}: {self.where}: {self.detail}"


class Check:
    """Checks managed ledgers one after the other."""

    def __init__(
        self, metadata: MetadataStore, view_of: ViewOf, progress: Progress = lambda _: None
    ) -> None:
        self._metadata = metadata
        self._view_of = view_of
        self._progress = progress
        self._owners: dict[tuple[str, int], str] = {}
        """Of each ledger that was seen, by the storage cluster and the id."""
        self.findings: list[Finding] = []
        self.managed_ledgers = 0
        self.ledgers = 0
        self.cursors = 0
        self.entries = 0
        self.bytes_read = 0

    async def run(self, name: str) -> None:
        """Check one.

        Raises:
            NotFound: if there is none of that name.
        """
        self.managed_ledgers += 1
        try:
            viewed = await view_chain(self._metadata, self._view_of, name)
        except FormatError as error:
            self._report(name, "node", str(error))
            return
        for number, ledger in enumerate(viewed.ledgers, start=1):
            await self._ledger(viewed, ledger, is_last=number == len(viewed.ledgers))
        chain = viewed.chain()
        self._check_end(viewed, chain)
        for cursor, value in (await cursor_nodes(self._metadata, name)).items():
            await self._cursor(name, cursor, value, chain)

    def _report(self, name: str, where: str, detail: str) -> None:
        self.findings.append(Finding(name, where, detail))

    async def _ledger(self, viewed: ViewedChain, ledger: ViewedLedger, *, is_last: bool) -> None:
        self.ledgers += 1
        span, found = ledger.span, ledger.found
        where = f"ledger {span.ledger_id}"
        key = span.stamp.cluster, span.ledger_id
        owner = self._owners.setdefault(key, viewed.name)
        if owner != viewed.name:
            self._report(viewed.name, where, f"{owner} has it too")
        if not span.closed_ms and not is_last:
            self._report(viewed.name, where, "it is not closed, and is not the last one")
        if ledger.is_elsewhere:
            return
        if found is None:
            self._report(viewed.name, where, "it is not in the ledger store")
            return
        self._check_owner(viewed.name, where, found)
        if span.closed_ms:
            if found.state is not LedgerState.CLOSED:
                self._report(viewed.name, where, "its chain has it closed, and the store open")
            self._compare(viewed.name, where, "entries", span.entries, found.last_entry_id + 1)
            self._compare(viewed.name, where, "bytes", span.size_bytes, found.length_bytes)
        await self._read(viewed.name, where, found, span.stamp)

    def _check_owner(self, name: str, where: str, found: LedgerDescription) -> None:
        said = found.custom_metadata.get("pulsar/managed-ledger")
        if said is not None and said != name.encode():
            owner = said.decode(errors="backslashreplace")
            self._report(name, where, f"it was made for {owner}")

    def _compare(self, name: str, where: str, what: str, said: int, found: int) -> None:
        if said != found:
            self._report(name, where, f"its chain says {said} {what}, and it has {found}")

    async def _read(self, name: str, where: str, found: LedgerDescription, stamp: Stamp) -> None:
        expected, size = 0, 0
        try:
            async for entry in self._entries(found, stamp):
                if entry.entry_id != expected:
                    detail = f"entry {entry.entry_id} follows {expected - 1}"
                    self._report(name, where, detail)
                    return
                expected += 1
                size += len(entry.payload)
        except (Corruption, NotFound, StorageError, Unreachable) as error:
            self._report(name, where, f"entry {expected} cannot be read: {error}")
            return
        self._compare(name, where, "entries to read", found.last_entry_id + 1, expected)
        if found.state is LedgerState.CLOSED:
            self._compare(name, where, "bytes to read", found.length_bytes, size)

    async def _entries(self, found: LedgerDescription, stamp: Stamp) -> AsyncIterator[Entry]:
        view = await self._view_of(stamp)
        async for entry in view.read(found.ledger_id, 0, found.last_entry_id):
            self.entries += 1
            self.bytes_read += len(entry.payload)
            self._progress(self.bytes_read)
            yield entry

    def _check_end(self, viewed: ViewedChain, chain: Chain | None) -> None:
        end = viewed.document.terminated
        if end is None or chain is None:
            return
        if chain.total and chain.last_confirmed != end:
            detail = f"it ended at {end}, and its last entry is {chain.last_confirmed}"
            self._report(viewed.name, "end", detail)

    async def _cursor(self, name: str, cursor: str, value: bytes, chain: Chain | None) -> None:
        self.cursors += 1
        where = f"cursor {cursor}"
        try:
            viewed = await view_cursor(self._view_of, cursor, value)
        except AnabranchError as error:
            self._report(name, where, str(error))
            return
        ledger_id = viewed.document.cursor_ledger_id
        if ledger_id >= 0:
            key = viewed.document.stamp.cluster, ledger_id
            owner = self._owners.setdefault(key, f"{where} of {name}")
            if owner != f"{where} of {name}":
                self._report(name, where, f"{owner} has its ledger {ledger_id} too")
        if viewed.problem:
            self._report(name, where, viewed.problem)
        if chain is not None:
            self._check_positions(name, where, viewed, chain)

    def _check_positions(self, name: str, where: str, viewed: ViewedCursor, chain: Chain) -> None:
        document, last = viewed.document, last_of(chain)
        mark = document.mark_delete
        if mark is not None and mark > last:
            self._report(name, where, f"its mark {mark} is above the last entry {last}")
        above = [upper for _, upper in document.ranges]
        above += [position for position, _ in document.batches]
        for position in above:
            if position > last:
                self._report(name, where, f"it has acknowledged {position}, above the last {last}")
            elif mark is not None and position > mark and not _is_known(chain, position):
                self._report(name, where, f"it has acknowledged {position}, which does not exist")


def _is_known(chain: Chain, position: Position) -> bool:
    """Whether a position is an entry, or lies in a ledger that is gone."""
    return chain.contains(position) or not chain.entries_of(position.ledger_id)
