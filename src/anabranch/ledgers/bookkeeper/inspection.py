"""Looking at ledgers on bookies while others may write them, without fencing anybody.

Of a ledger that is open, what its bookies know to be confirmed is shown.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from anabranch.errors import AnabranchError, Corruption, FormatError, NotFound, Unreachable
from anabranch.ledgers.bookkeeper.cluster import Cluster
from anabranch.ledgers.bookkeeper.confirmed import fence, last_known
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata, State
from anabranch.ledgers.bookkeeper.reader import BookKeeperReader, LedgerView, check_password
from anabranch.ledgers.bookkeeper.reading import EntryReads, Wanted
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.store import Entry
from anabranch.limits import BOOKKEEPER_READS_AHEAD_MAX, READ_BATCH_BYTES_MAX
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime

Progress = Callable[[int], None]
"""Told how many entries have been checked."""


@dataclass(frozen=True, slots=True)
class SeenLedger:
    """A ledger, with its end as far as it is known."""

    metadata: LedgerMetadata
    last_entry_id: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A ledger whose metadata are damaged, or of a format that is not known here."""

    ledger_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class BadCopy:
    """An entry of which a bookie has something else, or which no bookie has."""

    ledger_id: int
    entry_id: int
    bookie: str
    """Empty if all of them are meant."""
    detail: str

    def __str__(self) -> str:
        where = f" on bookie {self.bookie}" if self.bookie else ""
        return f"entry {self.ledger_id}:{self.entry_id}{where}: {self.detail}"


@dataclass(slots=True)
class CheckedCopies:
    """What a check of ledgers on bookies found."""

    ledgers: int = 0
    entries: int = 0
    copies: int = 0
    """Found to be as they were written."""
    lacking: int = 0
    """Copies that a bookie does not have, of entries that others have: room for recovery."""
    unreachable: int = 0
    """Copies on bookies that did not answer."""
    damage: list[BadCopy] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    """Ledgers of which nothing could be checked."""


class LedgersOnBookies:
    """The ledgers of a BookKeeper cluster, to be looked at."""

    def __init__(self, cluster: Cluster) -> None:
        """Use `open`."""
        self._cluster = cluster

    @classmethod
    async def open(
        cls, runtime: Runtime, metadata: MetadataStore, settings: BookKeeperSettings
    ) -> "LedgersOnBookies":
        """Use the cluster whose bookies are registered in a metadata store.

        Raises:
            Unreachable: if the metadata store cannot be asked.
            FormatError: if the cluster lays out its ledgers in an unknown way.
        """
        return cls(await Cluster.open(runtime, metadata, replace(settings, explicit_lac_s=0)))

    async def close(self) -> None:
        """Let go of every connection."""
        await self._cluster.close()

    async def list(self) -> AsyncIterator[LedgerMetadata | Unreadable]:
        """What the metadata store has of every ledger, by id; one that goes meanwhile may lack."""
        async for ledger_id in self._cluster.registry.list():
            try:
                yield (await self._cluster.registry.read(ledger_id)).metadata
            except FormatError as error:
                yield Unreadable(ledger_id, str(error))
            except NotFound:
                continue

    async def describe(self, ledger_id: int) -> LedgerMetadata:
        """What the metadata store has of one ledger.

        Raises:
            NotFound: if there is none of that id.
        """
        return (await self._cluster.registry.read(ledger_id)).metadata

    def check_password(self, metadata: LedgerMetadata) -> None:
        """Refuse a ledger whose password is not the one of the settings.

        Raises:
            ConfigError: saying so.
        """
        check_password(metadata, self._cluster.settings.password)

    async def delete(self, ledger_id: int) -> None:
        """Remove a ledger, whoever uses it: the one thing that changes something here.

        Raises:
            NotFound: if there is none of that id.
            ConfigError: if its password is not the one of the settings.
        """
        metadata = await self.describe(ledger_id)
        self.check_password(metadata)
        if metadata.state is not State.CLOSED:
            await fence(self._cluster, metadata)
        await self._cluster.registry.delete(ledger_id)

    async def look(self, ledger_id: int) -> SeenLedger:
        """One ledger; if it is open, its bookies are asked.

        Raises:
            NotFound: if there is none of that id.
            Unreachable: if the bookies that have its end do not answer.
            ConfigError: if the settings name a password, and it is another than the ledger's.
        """
        metadata = await self.describe(ledger_id)
        if self._cluster.settings.password:
            check_password(metadata, self._cluster.settings.password)
        if metadata.state is State.CLOSED:
            return SeenLedger(metadata, metadata.last_entry_id, metadata.length)
        return SeenLedger(metadata, *await last_known(self._cluster, metadata))

    async def read(self, seen: SeenLedger, first: int, last: int) -> AsyncIterator[Entry]:
        """Entries first..last that are there, in order.

        Raises:
            Corruption: at the first of which no bookie has what was written.
            Unreachable: if the bookies that have one do not answer.
        """
        known = replace(seen.metadata, last_entry_id=seen.last_entry_id, length=seen.length_bytes)
        reader = BookKeeperReader(self._cluster, LedgerView(known))
        last = min(last, seen.last_entry_id)
        while first <= last:
            for entry in await reader.read(first, last, max_bytes=READ_BATCH_BYTES_MAX):
                yield entry
                first = entry.entry_id + 1

    async def check(self, seen: SeenLedger, into: CheckedCopies, progress: Progress) -> None:
        """Ask every bookie for every copy it should have, and hold them to their digests."""
        view = LedgerView(seen.metadata)
        into.ledgers += 1
        for first in range(0, seen.last_entry_id + 1, BOOKKEEPER_READS_AHEAD_MAX):
            last = min(first + BOOKKEEPER_READS_AHEAD_MAX - 1, seen.last_entry_id)
            await self._check_some(view, first, last, into)
            progress(into.entries)

    async def _check_some(
        self, view: LedgerView, first: int, last: int, into: CheckedCopies
    ) -> None:
        by_bookie: dict[str, list[int]] = {}
        for entry_id in range(first, last + 1):
            bookies = view.metadata.segment_of(entry_id).bookies
            for place in view.quorums.write_set(entry_id):
                by_bookie.setdefault(bookies[place], []).append(entry_id)
        good, bad, unsure = (dict.fromkeys(range(first, last + 1), 0) for _ in range(3))
        for bookie, entry_ids in by_bookie.items():
            reads = EntryReads(
                self._cluster.links,
                view.digest,
                view.ledger_id,
                self._cluster.settings.speculative_read_s,
                keep_payloads=False,
            )
            found = await reads.read([Wanted(entry_id, [bookie]) for entry_id in entry_ids])
            for entry_id in entry_ids:
                result = found[entry_id]
                if not isinstance(result, AnabranchError):
                    good[entry_id] += 1
                elif isinstance(result, Corruption):
                    bad[entry_id] += 1
                    into.damage.append(BadCopy(view.ledger_id, entry_id, bookie, result.detail))
                elif isinstance(result, Unreachable):
                    unsure[entry_id] += 1
        for entry_id, copies in good.items():
            into.entries += 1
            into.copies += copies
            into.unreachable += unsure[entry_id]
            lacking = view.quorums.write - copies - bad[entry_id] - unsure[entry_id]
            into.lacking += lacking
            if lacking == view.quorums.write:
                into.damage.append(BadCopy(view.ledger_id, entry_id, "", "no bookie has it"))
