"""Planted bugs of `anabranch.ledgers`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from anabranch.journal import RecordPlace
from anabranch.journal.format import RECORD_HEADER_BYTES
from anabranch.ledgers.catalog import StorageCatalog
from anabranch.ledgers.clusters import CreatedLedger, LedgerKey, StorageClusters
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.embedded_ledger import EmbeddedReader, EmbeddedWriter
from anabranch.ledgers.id_ranges import IdRanges
from anabranch.ledgers.index import Ledger, LedgerIndex
from anabranch.ledgers.index_file import SegmentIndex
from anabranch.ledgers.ledger_ids import LedgerIds, SharedAuthority
from anabranch.ledgers.records import Close, Delete, encode_fact
from anabranch.ledgers.sealed_ledgers import SealedLedgers
from anabranch.ledgers.stamps import NO_STAMP, LedgerPlace
from anabranch.ledgers.store import AppendDone, Entry
from anabranch.ledgers.upkeep import Upkeep
from anabranch.managed_ledger.chain import LedgerSpan
from anabranch.managed_ledger.environment import Environment
from anabranch.metadata.counters import BlockCounter
from anabranch.metadata.store import Guard
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted


@planted("open_does_not_fence", target="anabranch.ledgers.embedded:EmbeddedLedgerStore.open")
async def open_does_not_fence(self: EmbeddedLedgerStore, ledger_id: int) -> EmbeddedReader:
    """A ledger is recovered while its writer may go on."""
    ledger = self._find(ledger_id)
    if ledger.closed_last is None:
        await self.record(Close(ledger_id, ledger.last_entry_id, ledger.length_bytes))
    return EmbeddedReader(self, ledger)


@planted("compaction_loses_facts", target="anabranch.ledgers.index:LedgerIndex.facts_to_copy")
def compaction_loses_facts(
    _self: LedgerIndex, _segment: int, _facts: Iterable[bytes]
) -> list[bytes]:
    """A segment is written anew with its entries only: beginnings, ends and deletions are gone."""
    return []


@planted("old_index_outlives_compaction", target="anabranch.ledgers.upkeep:Upkeep._forget_index")
async def old_index_outlives_compaction(_self: Upkeep, _segment: int) -> None:
    """The index file of a segment stays while another file takes the segment's place."""


@planted(
    "moved_entries_are_not_looked_for",
    target="anabranch.ledgers.embedded_ledger:EmbeddedReader.read",
)
async def moved_entries_are_not_looked_for(
    self: EmbeddedReader, first: int, last: int, *, max_bytes: int
) -> list[Entry]:
    """A read that was under way when its entries moved fails."""
    return await self._read(first, min(last, self.last_entry_id), max_bytes)


@planted("rewritten_segment_may_be_short", target="anabranch.journal.recovery:_check_whole")
def rewritten_segment_may_be_short(_segment: object) -> None:
    """Nobody looks whether all of a rewritten segment is there."""


@planted(
    "embedded_completes_within_the_call",
    target="anabranch.ledgers.embedded_ledger:EmbeddedWriter.append",
)
def embedded_completes_within_the_call(
    self: EmbeddedWriter, payload: Buffer, done: AppendDone
) -> int:
    """An append is answered before it returns."""
    append = original("embedded_completes_within_the_call")
    entry_id: int = append(self, payload, lambda *_: None)
    done(entry_id, None)
    return entry_id


@planted("embedded_range_excludes_its_end", target="anabranch.ledgers.index:Ledger.select")
def embedded_range_excludes_its_end(
    self: Ledger, first: int, last: int, max_bytes: int
) -> list[list[RecordPlace]]:
    """A read of several entries leaves out the last one."""
    places: list[list[RecordPlace]] = original("embedded_range_excludes_its_end")(
        self, first, max(first, last - 1), max_bytes
    )
    return places


@planted("embedded_id_is_used_again", target="anabranch.ledgers.index:LedgerIndex.was_used")
def embedded_id_is_used_again(self: LedgerIndex, ledger_id: int) -> bool:
    """Who asks for an id is not told of deleted ledgers, and neither is who uses it then."""
    self.deleted = IdRanges()
    return ledger_id in self.ledgers


@planted(
    "embedded_close_does_not_wait", target="anabranch.ledgers.embedded_ledger:EmbeddedWriter.close"
)
async def embedded_close_does_not_wait(self: EmbeddedWriter) -> int:
    """A ledger is reported as closed while its appends are still under way."""
    self._closed = True
    return self.last_entry_id


@planted("deletion_is_not_written", target="anabranch.ledgers.embedded:EmbeddedLedgerStore.delete")
async def deletion_is_not_written(self: EmbeddedLedgerStore, ledger_id: int) -> None:
    """A deletion is known to the running process alone."""
    self._find(ledger_id).granted_epoch = -1
    self._index.learn(self._tail, encode_fact(Delete([(ledger_id, ledger_id)])))


@planted("short_form_for_every_id", target="anabranch.ledgers.id_forms:path_form")
def short_form_for_every_id(ledger_id: int) -> str:
    """Ids above 31 bits are written with ten digits too."""
    digits = f"{ledger_id:010d}"
    return f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


@planted(
    "added_cluster_raises_no_floor", target="anabranch.metadata.counters:BlockCounter.raise_floor"
)
async def added_cluster_raises_no_floor(_self: BlockCounter, _floor: int) -> None:
    """Ids go on as if no other cluster had given any out."""


@planted("ids_start_anew", target="anabranch.metadata.counters:BlockCounter._advance")
async def ids_start_anew(self: BlockCounter, floor: int, count: int) -> int:
    """The counter is in memory: each process and each store begins with 1."""
    self._end = max(self._end, floor, 1) + count
    return self._end


@planted("id_below_the_chain_is_taken", target="anabranch.managed_ledger.opening:create_ledger")
async def id_below_the_chain_is_taken(
    name: str, env: Environment, *, above: int, **wishes: Any
) -> CreatedLedger:
    """A managed ledger goes on with an id that is not above all in its chain."""
    del above
    create: Any = original("id_below_the_chain_is_taken")
    ledger: CreatedLedger = await create(name, env, above=-1, **wishes)
    return ledger


@planted("stamp_is_not_published", target="anabranch.managed_ledger.opening:new_span")
def stamp_is_not_published(created: CreatedLedger) -> LedgerSpan:
    """A chain names a ledger without saying in which storage cluster it is."""
    span: LedgerSpan = original("stamp_is_not_published")(created)
    return replace(span, stamp=NO_STAMP)


@planted("unstamped_is_the_active", target="anabranch.ledgers.clusters:StorageClusters.key")
def unstamped_is_the_active(self: StorageClusters, place: LedgerPlace) -> LedgerKey:
    """A ledger without a stamp is looked for where new ledgers go."""
    return place.stamp.cluster or self.document.active, place.ledger_id


@planted("publish_ignores_the_catalog", target="anabranch.ledgers.catalog:StorageCatalog.guard")
def publish_ignores_the_catalog(self: StorageCatalog) -> Guard | None:
    """Ledgers are published whatever has become of the catalog since they were created."""
    del self
    return None


@planted(
    "ids_are_not_shared_with_pulsar",
    target="anabranch.ledgers.ledger_ids:SharedAuthority.share",
)
async def ids_are_not_shared_with_pulsar(self: SharedAuthority) -> None:
    """Ids come from the document, also where Pulsar draws from its own generator."""
    del self


@planted("reserved_ids_are_used_up", target="anabranch.ledgers.ledger_ids:LedgerIds.pass_over")
def reserved_ids_are_used_up(self: LedgerIds, up_to: int) -> None:
    """A process draws from what it reserved, although others have drawn later ids since."""
    del self, up_to


@planted(
    "index_of_a_rewritten_segment_is_believed",
    target="anabranch.ledgers.sealed_ledgers:SealedLedgers._index_of",
)
async def index_of_a_rewritten_segment_is_believed(
    self: SealedLedgers, number: int
) -> SegmentIndex | None:
    """Whatever index there is tells of the file that was opened."""
    plain = original("index_of_a_rewritten_segment_is_believed")
    content: SegmentIndex | None = await plain(self, number)
    if content is None:
        return None
    return replace(content, segment_bytes=await self._files[number].size())


@planted("sealed_records_are_believed", target="anabranch.ledgers.sealed_ledgers:record_payload")
def sealed_records_are_believed(data: memoryview, seed: int) -> memoryview:
    """Records are not compared with their checksums."""
    del seed
    return data[RECORD_HEADER_BYTES:]
