"""Owners of topics on model bookies, and what they promised to others.

Each owner takes a topic over without asking, looks whether all is there that was promised before,
and works until somebody takes it away or it has had enough. One who repairs takes ledgers alone.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from anabranch.errors import AnabranchError, InputError
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import LedgerStore
from anabranch.managed_ledger import Cursor, ManagedLedger, ManagedLedgerConfig, ManagedLedgers
from anabranch.managed_ledger.formats import decode_chain
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.simulation.process import ProcessFailed
from anabranch.testing.simulation.world import World

SUBSCRIPTIONS: Final = ("first", "second")
CONFIG: Final = ManagedLedgerConfig(ledger_entries_max=60, entry_cache_bytes_max=20_000)
BATCH_MESSAGES: Final = 8
"""Every entry counts as a batch of so many messages, where a part of it is acknowledged."""
_WHOLE_BATCH: Final = (1 << BATCH_MESSAGES) - 1
_READ_BYTES_MAX: Final = 1 << 20


@dataclass
class Acknowledged:
    """What became of the acknowledgements of one subscription."""

    asked: set[Position] = field(default_factory=set)
    answered: set[Position] = field(default_factory=set)
    up_to: Position = EARLIEST
    """Everything up to here was asked for, whatever is there."""
    mark: Position = EARLIEST
    """The last one below which all is acknowledged, as far as that was answered."""
    parts_asked: dict[Position, int] = field(default_factory=dict)
    """Of batches, a bit for each message that was asked for by itself."""
    parts_answered: dict[Position, int] = field(default_factory=dict)

    def wanted(self, position: Position) -> bool:
        """Whether somebody asked to acknowledge a position, at once or message by message."""
        whole = position <= self.up_to or position in self.asked
        return whole or self.parts_asked.get(position) == _WHOLE_BATCH


class Topic:
    """What is known of one topic outside the processes that own it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attempted = 0
        self.contents: dict[Position, bytes] = {}
        self.stored: dict[int, Position] = {}
        self.subscriptions = {name: Acknowledged() for name in SUBSCRIPTIONS}

    def show(self, position: Position, content: bytes) -> int:
        """Something was read at a position, where nothing else ever is; return its number."""
        known = self.contents.setdefault(position, content)
        assert known == content, f"C8: two contents at {position} of {self.name}"
        return int(content.partition(b" ")[0])


class Stories:
    """All topics of one world."""

    def __init__(self, world: World, names: tuple[str, ...], operations_min: int) -> None:
        self.world = world
        self.topics = [Topic(name) for name in names]
        self.enough = asyncio.Event()
        self.over = False
        self.repaired: set[int] = set()
        """Ledgers that were opened by somebody who does not go on with the topic."""
        self._operations = 0
        self._operations_min = operations_min

    def operate(self, mark: str) -> None:
        """Count an operation that was answered."""
        self._operations += 1
        self.world.reach("operations")
        self.world.reach(mark)
        if self._operations >= self._operations_min:
            self.enough.set()


@dataclass(frozen=True, slots=True)
class Before:
    """What had been promised of a topic at some moment."""

    stored: dict[int, Position]
    answered: dict[str, set[Position]]
    parts: dict[str, dict[Position, int]]
    marks: dict[str, Position]

    @staticmethod
    def of(topic: Topic) -> "Before":
        """Now."""
        subscriptions = topic.subscriptions.items()
        return Before(
            dict(topic.stored),
            {name: set(acknowledged.answered) for name, acknowledged in subscriptions},
            {name: dict(acknowledged.parts_answered) for name, acknowledged in subscriptions},
            {name: acknowledged.mark for name, acknowledged in subscriptions},
        )


class Owner:
    """Takes topics over with the stores of one process."""

    def __init__(
        self, stories: Stories, runtime: Runtime, metadata: MetadataStore, ledgers: LedgerStore
    ) -> None:
        self._stories = stories
        self._runtime = runtime
        self._entropy = runtime.entropy
        self._metadata = metadata
        self._ledgers = ledgers
        world = stories.world
        self._tasks = Tasks(lambda name, error: world.fail(ProcessFailed(name), error))

    async def work(self) -> None:
        """Take over one topic after the other until the story is over."""
        stories = self._stories
        while not stories.over:
            topic = stories.topics[self._entropy.below(len(stories.topics))]
            try:
                await self._own(topic)
            except AnabranchError as error:
                if isinstance(error, InputError):
                    raise
                stories.operate(f"owning: {type(error).__name__}")
            await asyncio.sleep(self._entropy.uniform(0.0, 0.5))

    async def _own(self, topic: Topic) -> None:
        opened, cursors = await self.take_over(topic, thorough=self._entropy.below(3) == 0)
        self._stories.operate("taken over")
        work = [self._produce(topic, opened), *(self._consume(topic, opened, c) for c in cursors)]
        spawned = [self._tasks.spawn(f"work on {topic.name}", each) for each in work]
        # Those that go on longer work on a topic that somebody else takes over meanwhile.
        await asyncio.wait(spawned, timeout=self._entropy.uniform(0.2, 3.0))
        if self._entropy.below(2):
            await opened.close()
            self._stories.operate("closed")

    async def take_over(
        self, topic: Topic, *, thorough: bool = True
    ) -> tuple[ManagedLedger, list[Cursor]]:
        """Open a topic and compare it, or its cursors alone, with what was promised before."""
        before = Before.of(topic)
        owner = ManagedLedgers(
            metadata=self._metadata, ledgers=self._ledgers, runtime=self._runtime, config=CONFIG
        )
        opened = await owner.open(topic.name)
        cursors = [await opened.open_cursor(name, initial="earliest") for name in SUBSCRIPTIONS]
        found = await self._read_all(topic, opened) if thorough else {}
        if thorough:
            self._check_entries(topic, before, found, opened.first_position())
        for cursor in cursors:
            self._check_cursor(topic, before, found, cursor)
            self._check_parts(topic, before, cursor)
        # What survived unanswered is now a fact like any other.
        topic.stored.update(found)
        return opened, cursors

    async def _read_all(self, topic: Topic, opened: ManagedLedger) -> dict[int, Position]:
        found: dict[int, Position] = {}
        start = EARLIEST
        while entries := await opened.read(start, 100, _READ_BYTES_MAX):
            for entry in entries:
                position = Position(entry.ledger_id, entry.entry_id)
                number = topic.show(position, bytes(entry.payload))
                assert not found or number > next(reversed(found)), "out of order, or twice"
                found[number] = position
            start = Position(position.ledger_id, position.entry_id + 1)
        return found

    def _check_entries(
        self, topic: Topic, before: Before, found: dict[int, Position], first: Position
    ) -> None:
        for number, position in before.stored.items():
            if position >= first:
                assert found.get(number) == position, f"entry {number} at {position} is lost"
                continue
            for name, acknowledged in topic.subscriptions.items():
                assert acknowledged.wanted(position), f"{position} was trimmed unread by {name}"

    def _check_cursor(
        self, topic: Topic, before: Before, found: dict[int, Position], cursor: Cursor
    ) -> None:
        name = cursor.name
        assert cursor.mark_delete >= before.marks[name], f"C11: the mark of {name} went back"
        for position in before.answered[name]:
            assert cursor.is_acknowledged(position), f"C11: the ack of {position} is lost"
        for position in found.values():
            if cursor.is_acknowledged(position):
                wanted = topic.subscriptions[name].wanted(position)
                assert wanted, f"nobody acknowledged {position}"

    def _check_parts(self, topic: Topic, before: Before, cursor: Cursor) -> None:
        asked = topic.subscriptions[cursor.name].parts_asked
        for position, bits in before.parts[cursor.name].items():
            lost = bits & _pending(cursor, position)
            assert not lost, f"C11: the acks of messages {lost:b} of {position} are lost"
        for position, bits in asked.items():
            if not cursor.is_acknowledged(position):
                given = _WHOLE_BATCH & ~_pending(cursor, position)
                assert not given & ~bits, f"nobody acknowledged messages {given:b} of {position}"
                if given:
                    self._stories.world.reach("part of a batch taken over")

    # --- working ------------------------------------------------------------------------------

    async def _produce(self, topic: Topic, opened: ManagedLedger) -> None:
        while opened.error is None and not self._stories.over:
            for _ in range(1 + self._entropy.below(12)):
                topic.attempted += 1
                number = topic.attempted
                content = b"%d " % number + b"x" * self._entropy.below(300)
                began = opened.ledgers[-1].ledger_id
                opened.append(content, partial(self._stored, topic, number, content, began))
            await asyncio.sleep(self._entropy.uniform(0.0, 0.3))

    def _stored(
        self,
        topic: Topic,
        number: int,
        content: bytes,
        began: int,
        position: Position | None,
        error: Exception | None,
    ) -> None:
        if position is not None:
            assert topic.show(position, content) == number
            topic.stored[number] = position
            if began in self._stories.repaired:
                later = position.ledger_id > began
                where = "went on behind a repair" if later else "stored beside a repair"
                self._stories.world.reach(where)
            self._stories.operate("stored")
        else:
            assert isinstance(error, AnabranchError), error
            self._stories.operate("not stored")

    async def _consume(self, topic: Topic, opened: ManagedLedger, cursor: Cursor) -> None:
        acknowledged = topic.subscriptions[cursor.name]
        while opened.error is None and not self._stories.over:
            await asyncio.sleep(self._entropy.uniform(0.0, 0.4))
            start = cursor.next_unacknowledged(EARLIEST)
            try:
                entries = await opened.read(start, 1 + self._entropy.below(30), _READ_BYTES_MAX)
            except AnabranchError:
                return
            positions = [Position(entry.ledger_id, entry.entry_id) for entry in entries]
            for entry, position in zip(entries, positions, strict=True):
                topic.show(position, bytes(entry.payload))
            if not positions or opened.error is not None:
                continue
            parts: dict[Position, int] = {}
            chance = self._entropy.below(6)
            if chance < 2:
                asked = set(positions)
                acknowledged.up_to = max(acknowledged.up_to, positions[-1])
                cursor.acknowledge_cumulative(positions[-1])
            elif chance < 3:
                asked, parts = set(), self._acknowledge_parts(acknowledged, cursor, positions)
            else:
                asked = {p for p in positions if self._entropy.below(10) < 7}
                acknowledged.asked |= asked
                cursor.acknowledge(sorted(asked))
            if self._entropy.below(2):
                mark = cursor.mark_delete
                cursor.flush(partial(self._flushed, acknowledged, asked, parts, mark))

    def _acknowledge_parts(
        self, acknowledged: Acknowledged, cursor: Cursor, positions: list[Position]
    ) -> dict[Position, int]:
        """Acknowledge some messages of some batches; return which of which."""
        parts = {}
        for position in positions[:3]:
            parts[position] = bits = 1 + self._entropy.below(_WHOLE_BATCH)
            asked = acknowledged.parts_asked
            asked[position] = asked.get(position, 0) | bits
            cursor.acknowledge_batch(position, [_WHOLE_BATCH & ~bits])
        return parts

    def _flushed(
        self,
        acknowledged: Acknowledged,
        asked: set[Position],
        parts: dict[Position, int],
        mark: Position,
        error: object,
    ) -> None:
        if error is None:
            acknowledged.answered |= asked
            for position, bits in parts.items():
                known = acknowledged.parts_answered
                known[position] = known.get(position, 0) | bits
                self._stories.world.reach("part of a batch answered")
            acknowledged.mark = max(acknowledged.mark, mark)
            self._stories.operate("flushed")
        else:
            assert isinstance(error, AnabranchError), error
            self._stories.operate("not flushed")


class Repairer:
    """Opens the newest ledgers of topics, as BookKeeper's auto-recovery does, and no more."""

    def __init__(
        self, stories: Stories, runtime: Runtime, metadata: MetadataStore, ledgers: LedgerStore
    ) -> None:
        self._stories = stories
        self._entropy = runtime.entropy
        self._metadata = metadata
        self._ledgers = ledgers

    async def work(self) -> None:
        """Repair what is in order until the story is over."""
        stories = self._stories
        while not stories.over:
            await asyncio.sleep(self._entropy.uniform(0.2, 3.0))
            topic = stories.topics[self._entropy.below(len(stories.topics))]
            try:
                await self._repair(topic)
            except AnabranchError as error:
                if isinstance(error, InputError):
                    raise
                stories.operate(f"repairing: {type(error).__name__}")

    async def _repair(self, topic: Topic) -> None:
        node = await self._metadata.get(f"{MANAGED_LEDGERS}/{topic.name}")
        spans = decode_chain(node.value, topic.name).spans if node is not None else ()
        if not spans or spans[-1].closed_ms:
            return
        self._stories.repaired.add(spans[-1].ledger_id)
        await self._ledgers.open(spans[-1].ledger_id)
        self._stories.operate("repaired")


def _pending(cursor: Cursor, position: Position) -> int:
    """A bit for each message of a batch that a cursor wants."""
    if cursor.is_acknowledged(position):
        return 0
    words = cursor.pending_bits(position)
    return _WHOLE_BATCH if words is None else words[0]
