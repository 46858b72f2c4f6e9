"""Planted bugs of `anabranch.managed_ledger`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from anabranch.generated import schema_registry_format_pb2 as registry
from anabranch.ids import Position
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.appender import Appender
from anabranch.managed_ledger.cache import EntryCache, TopicCache, _Tail
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.managed_ledger.cursors import Cursors
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import ChainDocument, CursorDocument
from anabranch.managed_ledger.ledger import ManagedLedger
from anabranch.managed_ledger.published_chain import PublishedChain
from anabranch.managed_ledger.retention import Retention
from anabranch.managed_ledger.schema_formats import SchemaInfo
from anabranch.managed_ledger.schemas import SchemaStorage
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
async def termination_is_not_stored(self: PublishedChain) -> Position:
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
