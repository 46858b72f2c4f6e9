"""Planted bugs of `anabranch.managed_ledger`."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from anabranch.generated import schema_registry_format_pb2 as registry
from anabranch.ids import Position
from anabranch.ledgers.store import Entry, LedgerDescription, LedgerReader, LedgerState
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.appender import Appender
from anabranch.managed_ledger.cache import EntryCache, TopicCache, _Tail
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.managed_ledger.checking import Check
from anabranch.managed_ledger.compressed_documents import DocumentCompression
from anabranch.managed_ledger.cursor import Cursor
from anabranch.managed_ledger.cursors import Cursors
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import ChainDocument, CursorDocument, decode_cursor
from anabranch.managed_ledger.inspection import (
    FolderView,
    ViewedChain,
    ViewedCursor,
    ViewedLedger,
    ViewOf,
)
from anabranch.managed_ledger.ledger import ManagedLedger
from anabranch.managed_ledger.opening import discard_ledger
from anabranch.managed_ledger.published_chain import PublishedChain
from anabranch.managed_ledger.retention import Retention
from anabranch.managed_ledger.schema_formats import IndexEntry, SchemaInfo
from anabranch.managed_ledger.schemas import SchemaStorage
from anabranch.managed_ledger.trimming import Trimming
from anabranch.testing.planted import original, planted

_APPENDER = "anabranch.managed_ledger.appender:Appender.__init__"


@planted("roll_one_entry_late", target=_APPENDER)
def roll_one_entry_late(self: Appender, *hooks: Any, entries_max: int, bytes_max: int) -> None:
    """A ledger takes one entry more than it may."""
    original("roll_one_entry_late")(self, *hooks, entries_max=entries_max + 1, bytes_max=bytes_max)


@planted("roll_ignores_bytes", target=_APPENDER)
def roll_ignores_bytes(self: Appender, *hooks: Any, entries_max: int, bytes_max: int) -> None:
    """A ledger may grow to any size."""
    original("roll_ignores_bytes")(self, *hooks, entries_max=entries_max, bytes_max=bytes_max << 32)


@planted("roll_ignores_age", target="anabranch.managed_ledger.ledger:ManagedLedger._wake")
def roll_ignores_age(self: ManagedLedger) -> None:
    """A ledger looks new after every append."""
    self._opened_s = self._env.runtime.clock.monotonic_s()
    original("roll_ignores_age")(self)


_CHAIN = "anabranch.managed_ledger.published_chain:PublishedChain"


@planted("properties_are_replaced", target=f"{_CHAIN}.set_properties")
async def properties_are_replaced(self: PublishedChain, changes: Mapping[str, str | None]) -> None:
    """Properties that a change does not name are lost."""
    self.document = replace(self.document, properties={})
    await original("properties_are_replaced")(self, changes)


@planted("termination_is_not_stored", target=f"{_CHAIN}.terminate")
async def termination_is_not_stored(self: PublishedChain, _: Mapping[str, str]) -> Position:
    """The end of a log is known to its present owner only."""
    closed_ms = await self.close_writer()
    position = self.chain.last_confirmed
    self.document = replace(self.document, terminated=position)
    self.chain.roll(closed_ms, None)
    self.writer = None
    return position


@planted("trim_follows_the_fastest", target="anabranch.managed_ledger.cursors:Cursors.slowest")
def trim_follows_the_fastest(self: Cursors) -> Position | None:
    """What one cursor has passed is removed, whoever still needs it."""
    return max((cursor.mark_delete for cursor in self.by_name.values()), default=None)


@planted("retention_is_ignored", target="anabranch.managed_ledger.retention:removable")
def retention_is_ignored(
    chain: Chain, slowest: Position | None, retention: Retention, now_ms: int
) -> int:
    """What was acknowledged goes at once."""
    del retention
    return int(original("retention_is_ignored")(chain, slowest, Retention(), now_ms))


@planted("recovery_misses_the_last_entry", target="anabranch.managed_ledger.opening:_recover")
async def recovery_misses_the_last_entry(
    name: str, document: ChainDocument, env: Environment
) -> tuple[LedgerSpan, ...]:
    """A new owner counts one entry less than the last ledger holds."""
    found: tuple[LedgerSpan, ...]
    found = await original("recovery_misses_the_last_entry")(name, document, env)
    if not found or not found[-1].entries:
        return found
    return (*found[:-1], replace(found[-1], entries=found[-1].entries - 1))


@planted("cache_evicts_the_smallest", target="anabranch.managed_ledger.cache:EntryCache.resized")
def cache_evicts_the_smallest(self: EntryCache, topic: TopicCache, change_bytes: int) -> None:
    """A topic that holds little gives up its entries for one that holds much."""
    before = topic.bytes_held
    topic.bytes_held += change_bytes
    self.bytes_held += change_bytes
    self._reclassify(topic, before, topic.bytes_held)
    while self.bytes_held > self.bytes_max:
        victim = next(iter(next(members for members in self._classes if members)))
        freed = victim.evict_oldest()
        victim.bytes_held -= freed
        self.bytes_held -= freed
        self._reclassify(victim, victim.bytes_held + freed, victim.bytes_held)


@planted("evicted_entries_stay", target="anabranch.managed_ledger.cache:_Tail.evict_oldest")
def evicted_entries_stay(self: _Tail) -> int:
    """What was evicted is not counted any more, but kept."""
    self.head += 1
    return len(self.entries[self.head - 1].payload)


@planted("nothing_is_cached", target="anabranch.managed_ledger.cache:TopicCache.add")
def nothing_is_cached(self: TopicCache, entry: Entry) -> None:
    """Every read goes to the ledger store."""
    del self, entry


@planted(
    "batch_acks_are_not_stored", target="anabranch.managed_ledger.acknowledged:Acknowledged.batches"
)
def batch_acks_are_not_stored(self: Acknowledged) -> Iterator[tuple[Position, tuple[int, ...]]]:
    """What was acknowledged of a batch is forgotten with the process."""
    del self
    return iter(())


@planted(
    "last_ack_of_many_is_lost",
    target="anabranch.managed_ledger.acknowledged:Acknowledged.acknowledge",
)
def last_ack_of_many_is_lost(self: Acknowledged, positions: Iterable[Position]) -> bool:
    """Of several acknowledgements at once the last does not count."""
    every = list(positions)
    return bool(original("last_ack_of_many_is_lost")(self, every[: max(1, len(every) - 1)]))


@planted(
    "cursor_ledger_is_not_read",
    target="anabranch.managed_ledger.cursors:Cursors._read_cursor_ledger",
)
async def cursor_ledger_is_not_read(
    self: Cursors, name: str, node: CursorDocument
) -> tuple[CursorDocument, bool]:
    """A new owner goes by the node, although the state is in a ledger."""
    found: tuple[CursorDocument, bool]
    found = await original("cursor_ledger_is_not_read")(self, name, node)
    return replace(found[0], mark_delete=node.mark_delete, ranges=(), batches=()), False


@planted(
    "known_schema_is_stored_again",
    target="anabranch.managed_ledger.schemas:SchemaStorage.put_if_absent",
)
async def known_schema_is_stored_again(
    self: SchemaStorage, schema_id: str, info: SchemaInfo, schema_hash: bytes
) -> int:
    """A schema is a new version each time somebody comes with it."""
    number = b"%d" % len(await self.versions(schema_id))
    found: int = await original("known_schema_is_stored_again")(
        self, schema_id, info, schema_hash + number
    )
    return found


@planted(
    "schema_types_are_those_of_the_wire",
    target="anabranch.managed_ledger.schema_formats:encode_info",
)
def schema_types_are_those_of_the_wire(info: SchemaInfo) -> bytes:
    """The type of a stored schema has the number that clients use, not the one of the registry."""
    message = registry.SchemaInfo.FromString(original("schema_types_are_those_of_the_wire")(info))
    message.type = info.type
    return message.SerializeToString()


@planted(
    "trimmed_ledgers_go_before_they_are_unlinked",
    target="anabranch.managed_ledger.trimming:Trimming._trim",
)
async def trimmed_ledgers_go_before_they_are_unlinked(self: Trimming, retention: Retention) -> int:
    """A crash in between leaves a chain that names ledgers which are gone."""
    for span in self._published.chain.closed[: self._removable(retention)]:
        await discard_ledger(self._env.ledgers, span.place)
    return int(await original("trimmed_ledgers_go_before_they_are_unlinked")(self, retention))


@planted("ended_first_and_marked_later", target=f"{_CHAIN}.terminate")
async def ended_first_and_marked_later(
    self: PublishedChain, properties: Mapping[str, str]
) -> Position:
    """A crash in between leaves a log that has ended and does not say that it goes on elsewhere."""
    position: Position = await original("ended_first_and_marked_later")(self, {})
    await self.set_properties(properties)
    return position


_DOCUMENTS = "anabranch.managed_ledger.compressed_documents"


@planted("compressed_head_is_little_endian", target=f"{_DOCUMENTS}:unpack")
def compressed_head_is_little_endian(value: bytes, what: str) -> bytes:
    """The length in the head of a compressed document is read the wrong way round."""
    turned = value
    if value.startswith(b"\x47\x78"):
        turned = value[:2] + value[5:1:-1] + value[6:]
    found: bytes = original("compressed_head_is_little_endian")(turned, what)
    return found


@planted("every_document_is_said_to_be_lz4", target=f"{_DOCUMENTS}:DocumentCompression.pack")
def every_document_is_said_to_be_lz4(self: DocumentCompression, document: bytes) -> bytes:
    """The head of a compressed document names LZ4, whatever it was compressed by."""
    packed: bytes = original("every_document_is_said_to_be_lz4")(self, document)
    named = 4 if self.kind == "lz4" else 1
    return packed if packed is document else packed[:7] + bytes([named]) + packed[8:]


@planted("migration_is_not_marked", target="anabranch.managed_ledger.ledger:ManagedLedger.migrate")
async def migration_is_not_marked(self: ManagedLedger) -> Position:
    """A log that goes on elsewhere only looks as if it had ended."""
    return await self.terminate()


@planted("deleted_log_keeps_its_ledgers", target=f"{_CHAIN}.remove")
async def deleted_log_keeps_its_ledgers(self: PublishedChain) -> None:
    """Only the node of a log is removed."""
    await self.node.delete()


@planted("retention_time_is_forever", target="anabranch.managed_ledger.retention:removable")
def retention_time_is_forever(
    chain: Chain, slowest: Position | None, retention: Retention, now_ms: int
) -> int:
    """What is kept for some time is kept for good."""
    if retention.time_ms > 0:
        retention = replace(retention, time_ms=-1)
    return int(original("retention_time_is_forever")(chain, slowest, retention, now_ms))


@planted("idle_ledger_stays", target="anabranch.managed_ledger.ledger:ManagedLedger.tend")
def idle_ledger_stays(self: ManagedLedger) -> None:
    """A ledger that gets no more entries is never ended."""
    self._trimming.soon()


@planted(
    "skip_counts_acknowledged_entries",
    target="anabranch.managed_ledger.acknowledged:Acknowledged.pending_position",
)
def skip_counts_acknowledged_entries(self: Acknowledged, number: int) -> Position:
    """Entries that are acknowledged are counted as if they were pending."""
    chain = self._chain
    left = chain.entries_between(self.mark_delete, chain.last_confirmed)
    return (
        chain.position_after(self.mark_delete, number) if number <= left else chain.last_confirmed
    )


@planted("clear_stops_at_the_last_ack", target="anabranch.managed_ledger.cursor:Cursor.clear")
def clear_stops_at_the_last_ack(self: Cursor) -> int:
    """Of everything that is pending only what lies before the last acknowledged entry goes."""
    last = max((Position(i, e) for i, _, e in self._state.ranges()), default=self.mark_delete)
    before = self.backlog()
    self.acknowledge_cumulative(last)
    return before - self.backlog()


@planted(
    "reset_keeps_what_was_acknowledged",
    target="anabranch.managed_ledger.acknowledged:Acknowledged.moved_to",
)
def reset_keeps_what_was_acknowledged(
    self: Acknowledged, position: Position, ack_set: Sequence[int] = ()
) -> Acknowledged:
    """A cursor that goes back does not bring again what was acknowledged by itself."""
    moved: Acknowledged = original("reset_keeps_what_was_acknowledged")(self, position, ack_set)
    moved.acknowledge([Position(i, e) for i, first, end in self.ranges() for e in (first, end)])
    return moved


@planted(
    "old_cumulative_ack_moves_the_mark_back",
    target="anabranch.managed_ledger.acknowledged:Acknowledged.acknowledge_cumulative",
)
def old_cumulative_ack_moves_the_mark_back(
    self: Acknowledged, position: Position, ack_set: Sequence[int] | None = None
) -> bool:
    """An acknowledgement that comes late takes the mark back to where it points."""
    if position < self.mark_delete and self._chain.contains(position):
        self.mark_delete = position
        return True
    return bool(original("old_cumulative_ack_moves_the_mark_back")(self, position, ack_set))


@planted(
    "damaged_cursor_ledger_is_given_up", target="anabranch.managed_ledger.cursors:newest_readable"
)
async def damaged_cursor_ledger_is_given_up(reader: LedgerReader) -> Entry | None:
    """If the last entry is damaged, those before it are not looked at."""
    found: Entry | None = await original("damaged_cursor_ledger_is_given_up")(reader)
    return found if found is not None and found.entry_id == reader.last_entry_id else None


@planted("schemas_before_a_deletion_are_found", target="anabranch.managed_ledger.schemas:_living")
def schemas_before_a_deletion_are_found(index: tuple[IndexEntry, ...]) -> tuple[IndexEntry, ...]:
    """A deletion is a version like any other."""
    return index


@planted("zlib_without_an_end_is_refused", target="anabranch.wire.compression:_inflate")
def zlib_without_an_end_is_refused(data: bytes, size: int) -> bytes:
    """Nothing is taken of a stream that was flushed and not finished, as Pulsar's are."""
    stream = zlib.decompressobj()
    stream.decompress(data, size + 1)
    found: bytes = original("zlib_without_an_end_is_refused")(data, size)
    return found if stream.eof else b""


_INSPECTION = "anabranch.managed_ledger.inspection"


@planted("open_ledger_looks_empty", target=f"{_INSPECTION}:FolderView.describe")
async def open_ledger_looks_empty(self: FolderView, ledger_id: int) -> LedgerDescription:
    """Whoever looks sees nothing of what was written to a ledger that is not closed."""
    found: LedgerDescription = await original("open_ledger_looks_empty")(self, ledger_id)
    if found.state is LedgerState.CLOSED:
        return found
    return replace(found, last_entry_id=-1, length_bytes=0)


@planted("cursor_is_shown_by_its_node", target=f"{_INSPECTION}:view_cursor")
async def cursor_is_shown_by_its_node(
    view_of: ViewOf | None, name: str, value: bytes
) -> ViewedCursor:
    """Whoever looks does not see what a cursor has in its ledger."""
    del view_of
    return ViewedCursor(name, decode_cursor(value, name), None)


_CHECK = "anabranch.managed_ledger.checking:Check"


@planted("counts_are_not_compared", target=f"{_CHECK}._compare")
def counts_are_not_compared(self: Check, *_: object) -> None:
    """A check does not mind how many entries and bytes a chain says."""
    del self


@planted("lost_ledger_is_not_missed", target=f"{_CHECK}._ledger")
async def lost_ledger_is_not_missed(
    self: Check, viewed: ViewedChain, ledger: ViewedLedger, *, is_last: bool
) -> None:
    """A check passes over ledgers that are not there."""
    if ledger.found is not None:
        await original("lost_ledger_is_not_missed")(self, viewed, ledger, is_last=is_last)


@planted("every_ledger_reserves_a_buffer", target=_APPENDER)
def every_ledger_reserves_a_buffer(self: Appender, *hooks: Any, **bounds: int) -> None:
    """Room for appends is set aside before there are any."""
    original("every_ledger_reserves_a_buffer")(self, *hooks, **bounds)
    self._failed = partial(lambda _room, failed, error: failed(error), bytes(64 * 1024), hooks[1])
