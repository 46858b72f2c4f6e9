"""Reading a ledger that lies on bookies."""

from dataclasses import replace

from anabranch import limits
from anabranch.errors import AnabranchError, ConfigError, InputError, NotFound
from anabranch.ledgers.bookkeeper.cluster import Cluster
from anabranch.ledgers.bookkeeper.digests import Packet, PacketDigest, master_key
from anabranch.ledgers.bookkeeper.ensemble import Quorums
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata, State
from anabranch.ledgers.bookkeeper.reading import EntryReads, Wanted
from anabranch.ledgers.store import Entry


class LedgerView:
    """A ledger as the handles of one store see it: they share what is learned of it."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.ledger_id = metadata.ledger_id
        self.metadata = metadata
        self.deleted = False
        self.quorums = Quorums.of(metadata)
        self.digest = PacketDigest(metadata.digest, metadata.password)
        self.master_key = master_key(metadata.password)
        self.first_place = metadata.ledger_id % metadata.ensemble_size
        """Where reading begins if every bookie has all entries: one that reads on is fastest."""

    def wanted(self, entry_id: int) -> Wanted:
        """Whom to ask for an entry."""
        bookies = self.metadata.segment_of(entry_id).bookies
        places = self.quorums.write_set(
            self.first_place if self.quorums.write == self.quorums.ensemble else entry_id
        )
        return Wanted(entry_id, [bookies[place] for place in places])


def check_password(metadata: LedgerMetadata, password: bytes) -> None:
    """Refuse a ledger that others have closed off.

    Raises:
        ConfigError: if its password is not the one of the settings.
    """
    if metadata.password != password:
        raise ConfigError(
            f"ledger {metadata.ledger_id} has another password than the settings: "
            "set the one that it was made with"
        )


class BookKeeperReader:
    """See `LedgerReader`."""

    def __init__(self, cluster: Cluster, view: LedgerView) -> None:
        self._cluster = cluster
        self.view = view
        self._wave_entries = limits.BOOKKEEPER_READS_AT_FIRST

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader.ledger_id`."""
        return self.view.ledger_id

    @property
    def last_entry_id(self) -> int:
        """See `LedgerReader.last_entry_id`."""
        return self.view.metadata.last_entry_id

    @property
    def length_bytes(self) -> int:
        """Of all durable payloads."""
        return self.view.metadata.length

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        """See `LedgerReader.read`."""
        view = self.view
        if not 0 <= first <= last:
            raise InputError(f"entries {first}..{last} of ledger {view.ledger_id} are no range")
        if view.deleted:
            raise NotFound(f"ledger {view.ledger_id} was deleted")
        if first > self.last_entry_id:
            raise NotFound(
                f"ledger {view.ledger_id} has entries up to {self.last_entry_id}, not {first}"
            )
        last = min(last, self.last_entry_id)
        entries: list[Entry] = []
        while first <= last:
            count = self._how_many(max_bytes)
            found, error = await self._read_some(first, min(last, first + count - 1), max_bytes)
            self._learn_size(sum(len(packet.payload) for packet in found))
            for packet in found:
                max_bytes -= len(packet.payload)
                if max_bytes < 0 and entries:
                    return entries
                entries.append(Entry(view.ledger_id, packet.entry_id, packet.payload))
            if error is not None:
                if not entries:
                    raise error
                return entries
            first += len(found)
        return entries

    def _how_many(self, max_bytes: int) -> int:
        """As many entries as may fit, if they are as large as the others."""
        usual_bytes = max(1, self.length_bytes // (self.last_entry_id + 1))
        return max(1, min(max_bytes // usual_bytes + 1, self._wave_entries))

    def _learn_size(self, wave_bytes: int) -> None:
        """Ask for more at a time as long as what comes is not much."""
        if wave_bytes > limits.BOOKKEEPER_WAVE_BYTES:
            self._wave_entries = max(1, self._wave_entries // 2)
        elif 2 * wave_bytes < limits.BOOKKEEPER_WAVE_BYTES:
            self._wave_entries = min(2 * self._wave_entries, limits.BOOKKEEPER_READS_AHEAD_MAX)

    def _at_once(self) -> int:
        """How many entries may be on their way, should each be as large as bookies take them."""
        if 0 < self.length_bytes <= limits.BOOKKEEPER_IN_FLIGHT_BYTES_MAX:
            return limits.BOOKKEEPER_READS_AHEAD_MAX
        entry_bytes_max = self._cluster.settings.frame_bytes_max
        return max(1, limits.BOOKKEEPER_IN_FLIGHT_BYTES_MAX // entry_bytes_max)

    async def _read_some(
        self, first: int, last: int, max_bytes: int
    ) -> tuple[list[Packet], AnabranchError | None]:
        """Entries in order, and why there are no more of them.

        Without an error there is at least one; the rest may be left out once there is enough.
        """
        found, error = await self._ask(first, last, max_bytes)
        if error is not None and not found and await self._learned():
            found, error = await self._ask(first, last, max_bytes)
        if self.view.deleted:
            return [], NotFound(f"ledger {self.view.ledger_id} was deleted")
        return found, error

    async def _ask(
        self, first: int, last: int, max_bytes: int
    ) -> tuple[list[Packet], AnabranchError | None]:
        view, cluster = self.view, self._cluster
        reads = EntryReads(
            cluster.links, view.digest, view.ledger_id, cluster.settings.speculative_read_s
        )
        wanted = [view.wanted(number) for number in range(first, last + 1)]
        results = await reads.read(wanted, at_once=self._at_once(), max_bytes=max(0, max_bytes))
        if view.metadata.segments[-1].bookies[view.first_place] in reads.failed_bookies:
            view.first_place = (view.first_place + 1) % view.quorums.ensemble
        found: list[Packet] = []
        for number in range(first, last + 1):
            result = results.get(number)
            if result is None:
                break
            if isinstance(result, AnabranchError):
                return found, result
            found.append(result)
        return found, None

    async def _learned(self) -> bool:
        """Whether the ledger has other bookies than was known: some may have been replaced."""
        view = self.view
        try:
            present = (await self._cluster.registry.read(view.ledger_id)).metadata
        except NotFound:
            view.deleted = True
            return False
        if present.segments == view.metadata.segments:
            return False
        # Of a ledger that is open, the metadata do not know the end; whoever looked does.
        closed = present.state is State.CLOSED
        view.metadata = present if closed else replace(view.metadata, segments=present.segments)
        return True
