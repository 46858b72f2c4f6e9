"""Planted bugs of BookKeeper's replication protocol, in `anabranch.ledgers.bookkeeper`.

The first three were in BookKeeper itself: two were found by model checking, one by a cluster that
lost entries.
"""

from collections.abc import Mapping, Sequence

from anabranch.errors import Corruption
from anabranch.ledgers.bookkeeper.digests import Packet, PacketDigest
from anabranch.ledgers.bookkeeper.ensemble import Quorums, replaced
from anabranch.ledgers.bookkeeper.frames import Request, Status
from anabranch.ledgers.bookkeeper.ledger_metadata import (
    EnsembleSegment,
    LedgerMetadata,
    State,
    encode_metadata,
)
from anabranch.ledgers.bookkeeper.ledger_registry import Found, LedgerRegistry
from anabranch.ledgers.bookkeeper.recovery import LedgerRecovery, RecoveryOutput
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting
from anabranch.metadata.store import Version
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted


@planted("recovery_reads_do_not_fence", target="anabranch.ledgers.bookkeeper.frames:read")
def recovery_reads_do_not_fence(
    ledger_id: int, entry_id: int, *, fence_key: bytes | None = None
) -> Request:
    """Only the question for the last entry fences: who was silent then takes entries later."""
    request: Request = original("recovery_reads_do_not_fence")(
        ledger_id, entry_id, fence_key=fence_key if entry_id < 0 else None
    )
    return request


@planted(
    "recovery_begins_before_the_segment",
    target="anabranch.ledgers.bookkeeper.recovery:LedgerRecovery.__init__",
)
def recovery_begins_before_the_segment(
    self: LedgerRecovery,
    output: RecoveryOutput,
    ledger_id: int,
    quorums: Quorums,
    segment: EnsembleSegment,
) -> None:
    """Bookies that were just added know of nothing, and are believed."""
    original("recovery_begins_before_the_segment")(self, output, ledger_id, quorums, segment)
    self.last_entry_id = -1


@planted(
    "confirms_while_the_ensemble_changes",
    target="anabranch.ledgers.bookkeeper.writer:LedgerWriting.confirmed",
)
def confirms_while_the_ensemble_changes(
    self: LedgerWriting, adds: Sequence[Add], place: int, bookie: str
) -> None:
    """An entry is confirmed by bookies that the metadata do not name for it any more."""
    if self.bookies[place] != bookie:
        return
    for add in adds:
        add.acks |= 1 << place
    changing, self._changing = self._changing, False
    self._confirm()
    self._changing = changing


@planted(
    "replaced_bookie_counts", target="anabranch.ledgers.bookkeeper.writer:LedgerWriting.confirmed"
)
def replaced_bookie_counts(
    self: LedgerWriting, adds: Sequence[Add], place: int, bookie: str
) -> None:
    """A late answer counts for the place, whoever has that now."""
    original("replaced_bookie_counts")(self, adds, place, self.bookies[place])


@planted(
    "new_bookie_misses_entries", target="anabranch.ledgers.bookkeeper.writer:LedgerWriting.changed"
)
def new_bookie_misses_entries(
    self: LedgerWriting, replacements: Mapping[int, str], tried: Sequence[int]
) -> None:
    """Entries that are on enough bookies already are not sent to the new one."""
    self.bookies = replaced(self.bookies, replacements)
    self._unreplaced.update(tried)
    for place in replacements:
        self._failed.pop(place, None)
        self._unreplaced.discard(place)
    for add in self.pending:
        if add.acks.bit_count() < self.quorums.ack:
            for place in add.places:
                if place in replacements:
                    add.acks &= ~(1 << place)
                    self._output.send(add, place, self.bookies[place])
    self._changing = False
    self._confirm()
    self._want_change()


@planted(
    "one_absent_is_the_end",
    target="anabranch.ledgers.bookkeeper.recovery:LedgerRecovery.entry_answered",
)
def one_absent_is_the_end(
    self: LedgerRecovery, entry_id: int, status: Status, packet: Packet | None
) -> None:
    """The first bookie that lacks an entry decides that nobody has it."""
    asked = self._asked.get(entry_id)
    if asked is not None and packet is None and status.says_absent:
        asked.absent += self._quorums.write
    original("one_absent_is_the_end")(self, entry_id, status, packet)


@planted(
    "ensemble_changes_unconditionally",
    target="anabranch.ledgers.bookkeeper.ledger_registry:LedgerRegistry.replace",
)
async def ensemble_changes_unconditionally(
    self: LedgerRegistry, metadata: LedgerMetadata, version: Version
) -> Found:
    """A writer writes its new ensemble over whatever others have written."""
    if metadata.state is not State.OPEN:
        found: Found = await original("ensemble_changes_unconditionally")(self, metadata, version)
        return found
    path = self.paths.ledger(metadata.ledger_id)
    stat = await self._store.put(path, encode_metadata(metadata))
    return Found(metadata, stat.version)


@planted(
    "damaged_packet_is_served",
    target="anabranch.ledgers.bookkeeper.digests:PacketDigest.open_packet",
)
def damaged_packet_is_served(
    self: PacketDigest, packet: Buffer, ledger_id: int, entry_id: int
) -> Packet:
    """What a bookie gave is taken for what its writer sent."""
    try:
        opened: Packet = original("damaged_packet_is_served")(self, packet, ledger_id, entry_id)
    except Corruption:
        payload = memoryview(packet)[self.overhead_bytes :]
        return Packet(max(entry_id, 0), -1, 0, payload)
    return opened


@planted(
    "recovery_closes_over_another",
    target="anabranch.ledgers.bookkeeper.transitions:close_recovered",
)
async def recovery_closes_over_another(
    registry: LedgerRegistry,
    found: Found,
    last_entry_id: int,
    length: int,
    segments: tuple[EnsembleSegment, ...],
) -> Found:
    """A recovery closes the ledger where it has found the end, also if another was first."""
    present = await registry.read(found.metadata.ledger_id)
    if present.metadata.state is State.CLOSED:
        found = await registry.replace(found.metadata, present.version)
    closed: Found = await original("recovery_closes_over_another")(
        registry, found, last_entry_id, length, segments
    )
    return closed
