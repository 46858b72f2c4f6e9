"""Topics that store nothing: what comes in goes out at once, to whoever can take it.

There is no ledger and no cursor: an entry that a subscription has nobody for, who has permits and a
socket that takes it, is dropped there. What the rest of the broker asks of ledgers and cursors is
answered by stand-ins that hold nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, cast

from anabranch.broker.claimed_numbers import believable_messages
from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.deduplication import PublishDone
from anabranch.broker.mishaps import Mishaps
from anabranch.broker.policies.admitting import admit_subscription
from anabranch.broker.producer import Producer
from anabranch.broker.refusals import Refused
from anabranch.broker.subscription import Subscription
from anabranch.broker.subscription_names import refuse_reserved
from anabranch.broker.topic import LastMessage, Topic
from anabranch.errors import AlreadyClosed, ProtocolError
from anabranch.ids import EARLIEST, Position, TopicName
from anabranch.ledgers.store import LedgerQuorums
from anabranch.managed_ledger import Cursor, ManagedLedger
from anabranch.managed_ledger.retention import Retention
from anabranch.managed_ledger.storage_figures import StorageFigures
from anabranch.policies.effective import EffectivePolicies
from anabranch.runtime import Clock
from anabranch.runtime.network import Buffer
from anabranch.runtime.tasks import Tasks
from anabranch.wire import Ack, Send, ServerError, read_metadata

_LEDGER: Final = 0
"""The number of the ledger that positions of entries name which are in none."""


class _NoLedger:
    """Stands where a managed ledger would; keeps a topic's properties for as long as it lives."""

    terminated = None
    ledgers = ()
    entry_count = 0
    size_bytes = 0
    last_confirmed = EARLIEST

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.cursors: Mapping[str, Cursor] = {}
        self.properties: dict[str, str] = {}
        self.retention = Retention()
        self.figures = StorageFigures(clock)
        self.on_durable: Callable[[], None] | None = None
        self.on_failure: Callable[[Exception], None] | None = None

    def next_position(self, position: Position) -> Position:
        return position

    def use_quorums(self, quorums: LedgerQuorums | None) -> None:
        """There are no ledgers."""

    def release_cursor(self, cursor: Cursor) -> None:
        """There was nothing to hold."""

    async def delete_cursor(self, name: str) -> None:
        """There was nothing stored."""

    async def set_properties(self, changes: Mapping[str, str | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.properties.pop(key, None)
            else:
                self.properties[key] = value

    async def close(self) -> None:
        """Nothing is kept."""

    async def delete(self) -> None:
        """Nothing is kept."""


class _NoCursor:
    """Stands where a cursor would: nothing is ever acknowledged, or waits to be."""

    mark_delete = EARLIEST

    def __init__(self, name: str, *, is_durable: bool) -> None:
        self.name = name
        self.is_durable = is_durable
        """Whether the subscription stays when its last consumer goes."""
        self.properties: Mapping[str, int] = {}
        self.cursor_properties: Mapping[str, str] = {}

    def backlog(self) -> int:
        return 0

    async def flushed(self) -> None:
        """Nothing waits to be stored."""

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        done(None)


class NonPersistentSubscription(Subscription):
    """Sends what comes while somebody can take it."""

    dropped = 0
    """Messages that nobody could take."""

    def offer(self, position: Position, entry: Buffer) -> None:
        """Send an entry to whoever the subscription's type chooses, or drop it."""
        dispatcher = self._dispatcher
        try:
            metadata = read_metadata(entry)
        except ProtocolError:
            metadata = None
        messages = 1 if metadata is None else believable_messages(metadata.message_count)
        if dispatcher is None or not dispatcher.entries_wanted():
            self.dropped += messages
            return
        before = sum(consumer.permits for consumer in dispatcher.consumers)
        dispatcher.dispatch([Delivery(position, entry, messages, 0, None, metadata)])
        if sum(consumer.permits for consumer in dispatcher.consumers) == before:
            self.dropped += messages
        # Nobody acknowledges it to us, and nobody gets it again.
        dispatcher.drop_replay(position)
        if dispatcher.consumers:
            dispatcher.acknowledged(dispatcher.consumers[0], [position])

    def wake(self) -> None:
        """There is never anything to catch up on."""

    def acknowledge(self, consumer: Consumer, ack: Ack) -> None:
        """What was sent is forgotten already."""

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None
    ) -> None:
        """What was sent is forgotten already."""
        if epoch is not None:
            consumer.epoch = max(epoch, consumer.epoch or 0)

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """There is nowhere to go.

        Raises:
            Refused: always.
        """
        raise Refused(ServerError.NotAllowedError, "a non-persistent topic has no past to seek in")

    async def seek_to_time(self, time_ms: int) -> None:
        """There is nowhere to go.

        Raises:
            Refused: always.
        """
        await self.seek(EARLIEST)


class NonPersistentTopic(Topic):
    """A topic that stores nothing."""

    def __init__(
        self,
        name: TopicName,
        policies: EffectivePolicies,
        *,
        clock: Clock,
        tasks: Tasks,
        mishaps: Mishaps,
        on_failed: Callable[[Topic], None],
    ) -> None:
        ledger = cast("ManagedLedger", _NoLedger(name.managed_ledger_name, clock))
        super().__init__(name, ledger, policies, tasks=tasks, mishaps=mishaps, on_failed=on_failed)
        self._published = 0

    def publish(self, producer: Producer, send: Send, done: PublishDone) -> int:
        """Pass an entry on to every subscription; `done` follows at once."""
        messages = self.count_in(producer, send)
        if self.closed:
            done(None, AlreadyClosed(f"{self.name} is closed"))
            return messages
        position = Position(_LEDGER, self._published)
        self._published += 1
        if self.subscriptions:
            kept = bytes(send.entry)  # sockets may take it later than its sender's buffer lives
            for subscription in list(self.subscriptions.values()):
                cast("NonPersistentSubscription", subscription).offer(position, kept)
        done(position, None)
        return messages

    async def follow(self, policies: EffectivePolicies) -> None:
        """Live by other policies from now on."""
        self.apply(policies)

    async def subscribe(
        self, name: str, *, initial: Literal["latest", "earliest"], properties: dict[str, str]
    ) -> Subscription:
        """Return the subscription, creating it if there is none; it begins with what comes."""
        known = self.subscriptions.get(name)
        if known is not None:
            return known
        admit_subscription(self)
        return await self.create_subscription(name, initial=initial, properties=properties)

    async def create_subscription(
        self, name: str, *, initial: Literal["latest", "earliest"], properties: dict[str, str]
    ) -> Subscription:
        """Create a subscription that lasts as long as the topic is open here.

        Raises:
            Refused: if the name is reserved.
        """
        refuse_reserved(name)
        return self._add(name, is_durable=True)

    def read_from(self, name: str, start: Literal["latest", "earliest"] | Position) -> Subscription:
        """Create a subscription that lasts as long as somebody is attached."""
        return self._add(name, is_durable=False)

    def _add(self, name: str, *, is_durable: bool) -> Subscription:
        cursor = cast("Cursor", _NoCursor(name, is_durable=is_durable))
        subscription = self.subscriptions[name] = NonPersistentSubscription(
            name,
            ledger=self.ledger,
            cursor=cursor,
            visibility=self.visibility,
            tasks=self._tasks,
            on_failure=self.fail,
            on_abandoned=self._abandoned,
        )
        return subscription

    async def last_message(self) -> LastMessage:
        """There is none."""
        return LastMessage(EARLIEST, -1)
