"""One topic: its managed ledger, its producers and its subscriptions.

The topic lives on one event loop and changes only in plain functions there. A failed append ends
it: the topic closes, its clients are told to come back, and the next one to ask opens it anew.
"""

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple

from anabranch import limits
from anabranch.broker.admission import Admission
from anabranch.broker.claimed_numbers import believable_messages
from anabranch.broker.consumer import Consumer
from anabranch.broker.deduplication import Deduplication, PublishDone
from anabranch.broker.mishaps import Mishaps
from anabranch.broker.policies.admitting import admit_producer, admit_subscription
from anabranch.broker.policies.delivery_rules import DeliveryRules
from anabranch.broker.policies.publishing import judges_messages
from anabranch.broker.policies.quotas import Exceeded
from anabranch.broker.policies.retaining import retention_of
from anabranch.broker.policies.storing import quorums_of
from anabranch.broker.policies.subscribe_rates import SubscribeRates
from anabranch.broker.producer import Producer
from anabranch.broker.refusals import Refused
from anabranch.broker.subscription import Subscription
from anabranch.broker.subscription_names import DEDUPLICATION_CURSOR, refuse_reserved
from anabranch.broker.throttling import (
    DispatchThrottle,
    Throttle,
    largest_entry,
    publish_throttle,
    throttle_of,
)
from anabranch.broker.traffic import Traffic
from anabranch.broker.visibility import Visibility, WholeLog
from anabranch.errors import AlreadyClosed, AnabranchError, ProtocolError
from anabranch.ids import EARLIEST, Position, TopicName
from anabranch.managed_ledger import Cursor, ManagedLedger
from anabranch.ownership import BrokerAddress
from anabranch.policies.effective import EffectivePolicies
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger
from anabranch.wire import Send, ServerError, read_metadata


class LastMessage(NamedTuple):
    """Where a topic ends for now; EARLIEST if it has no message."""

    position: Position
    batch_index: int
    """Of the last message in its batch, -1 if it is in none."""


class Topic:
    """A topic this broker owns."""

    def __init__(
        self,
        name: TopicName,
        ledger: ManagedLedger,
        policies: EffectivePolicies,
        *,
        tasks: Tasks,
        mishaps: Mishaps,
        on_failed: Callable[["Topic"], None],
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.visibility: Visibility = WholeLog(ledger)
        self.admission = Admission(
            str(name), ledger, lambda producer: admit_producer(self, producer)
        )
        self.producers = self.admission.producers
        self.deduplication: Deduplication | None = None
        """None if every entry is stored as it comes."""
        self.policies = policies
        self._deduplicating = asyncio.Lock()
        self.traffic = Traffic()
        """What came in."""
        self.rules = DeliveryRules(ledger.clock.wall_ms)
        self.subscribe_rates = SubscribeRates()
        self._dispatch_throttle: Throttle | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.closed = False
        self.next_owner: BrokerAddress | None = None
        """Where its clients are to go, once it was handed over."""
        self._mishaps = mishaps
        self._tasks = mishaps.contained(tasks, self.fail)
        self._on_failed = on_failed
        self._log = get_logger("broker").bind(topic=str(name))
        ledger.on_durable = self._wake_subscriptions
        ledger.on_failure = self.fail
        for cursor_name, cursor in ledger.cursors.items():
            if cursor_name == DEDUPLICATION_CURSOR:
                continue
            self.subscriptions[cursor_name] = self._new_subscription(cursor_name, cursor)
        self.over_quota: Exceeded | None = None
        """Why nobody may publish, while too much is not acknowledged."""
        self.apply(policies)

    def apply(self, policies: EffectivePolicies) -> None:
        """Live by other policies from now on."""
        self.policies = policies
        retention = retention_of(policies.retention)
        if retention is None:
            self._log.warning("retention_not_applied", rule=str(policies.retention))
        else:
            self.ledger.retention = retention
        if policies.persistence is not None and policies.persistence.is_too_wide:
            self._log.warning("persistence_cut", rule=str(policies.persistence))
        self.ledger.use_quorums(quorums_of(policies.persistence))
        self.entry_bytes_max = largest_entry(policies.message_bytes_max)
        self._publish_throttle = publish_throttle(policies.publish_rate, self.ledger.clock)
        self._dispatch_throttle = throttle_of(policies.dispatch_rate, self.ledger.clock)
        self.judges_messages = judges_messages(policies)
        self.rules.follow(policies)
        self.subscribe_rates.follow(policies.subscribe_rate)
        if self.deduplication is not None and not self.closed:
            self.deduplication.snapshot_every(policies.deduplication_snapshot_s)
        for subscription in self.subscriptions.values():
            subscription.throttle = self._new_throttle(subscription)
            for consumer in subscription.consumers:
                consumer.settle(0)  # it may be held back no more
            subscription.wake()
        if policies.encryption_required:
            self.disconnect_producers(lambda producer: not producer.encrypted)

    def _new_throttle(self, subscription: Subscription) -> DispatchThrottle | None:
        own = throttle_of(self.policies.dispatch_rate_of(subscription.name), self.ledger.clock)
        return DispatchThrottle.of(self._dispatch_throttle, own, go_on=subscription.wake)

    @property
    def holds_messages(self) -> bool:
        """Whether anything is stored."""
        return self.ledger.entry_count > 0

    # --- publishing --------------------------------------------------------------------------

    def publish(self, producer: Producer, send: Send, done: PublishDone) -> int:
        """Append an entry; `done` follows in order, when it is durable or cannot become so.

        Returns:
            How many messages it is taken to hold.

        Raises:
            InputError: if it cannot be taken; nothing was changed, and `done` does not follow.
        """
        messages = self.count_in(producer, send)
        if self.closed:
            done(None, AlreadyClosed(f"{self.name} is closed"))
        elif self.deduplication is None:
            self.ledger.append(send.entry, done)
        else:
            self.deduplication.publish(producer.name, send, done)
        return messages

    def count_in(self, producer: Producer, send: Send) -> int:
        """Count the messages that come, and charge them to the rate at which they may."""
        messages, size = believable_messages(send.num_messages), len(send.entry)
        producer.traffic.messages += messages
        producer.traffic.bytes += size
        self.traffic.messages += messages
        self.traffic.bytes += size
        self.traffic.last_ms = self.rules.now_ms()
        if self._publish_throttle is not None:
            self._publish_throttle.charge(producer.connection, messages, size)
        return messages

    async def prepare(self) -> None:
        """Begin what the policies ask for and takes a while; before anybody publishes."""
        await self._deduplicate()

    async def _deduplicate(self) -> None:
        async with self._deduplicating:
            wanted = self.policies.deduplication_enabled
            if self.closed:
                return
            if wanted and self.deduplication is None:
                started = await Deduplication.open(self.ledger)
                if self.closed:
                    started.close()
                    return
                self.deduplication = started
                started.snapshot_every(self.policies.deduplication_snapshot_s)
                await started.learn(self.ledger, self.admission.all_settled())
            elif not wanted and DEDUPLICATION_CURSOR in self.ledger.cursors:
                if self.deduplication is not None:
                    self.deduplication.close()
                    self.deduplication = None
                await self.ledger.delete_cursor(DEDUPLICATION_CURSOR)

    async def follow(self, policies: EffectivePolicies) -> None:
        """Live by other policies from now on, also by those that take a while to begin with."""
        self.apply(policies)
        try:
            await self._deduplicate()
        except AnabranchError as error:
            self.fail(error)  # whoever opens it anew tries again

    async def add_producer(
        self,
        producer: Producer,
        *,
        on_queued: Callable[[Callable[[], None]], None] = lambda _leave: None,
    ) -> None:
        """Admit a producer, when it is its turn.

        Raises:
            Refused: if its name is in use by a client that is alive, or by its access mode.
            Terminated: if the topic was ended for good.
        """
        await self.admission.admit(producer, on_queued=on_queued)

    def remove_producer(self, producer: Producer) -> None:
        """Let a producer go; no error if it went before."""
        self.admission.remove(producer)

    # --- subscriptions -----------------------------------------------------------------------

    async def subscribe(
        self,
        name: str,
        *,
        initial: Literal["latest", "earliest"],
        properties: dict[str, str],
    ) -> Subscription:
        """Return the durable subscription, creating it if there is none.

        Raises:
            Refused: if there is one of that name that is not durable.
        """
        subscription = self.subscriptions.get(name)
        if subscription is None:
            admit_subscription(self)
            return await self.create_subscription(name, initial=initial, properties=properties)
        if not subscription.cursor.is_durable:
            raise self._taken_by_a_reader()
        return subscription

    def _taken_by_a_reader(self) -> Refused:
        return Refused(
            ServerError.NotAllowedError,
            "NonDurable subscription with the same name already exists.",
        )

    async def create_subscription(
        self, name: str, *, initial: Literal["latest", "earliest"], properties: dict[str, str]
    ) -> Subscription:
        """Create a durable subscription, whatever the policies say; one that is there stays.

        Raises:
            Refused: if the name is reserved, or a reader took it meanwhile.
        """
        refuse_reserved(name)
        cursor = await self.ledger.open_cursor(name, initial=initial, cursor_properties=properties)
        # Another consumer may have created it while this one waited.
        subscription = self.subscriptions.get(name)
        if subscription is None:
            subscription = self.subscriptions[name] = self._new_subscription(name, cursor)
        elif not subscription.cursor.is_durable:
            # Nobody would ever acknowledge what the cursor holds.
            await self.ledger.delete_cursor(name)
            raise self._taken_by_a_reader()
        return subscription

    def read_from(self, name: str, start: Literal["latest", "earliest"] | Position) -> Subscription:
        """Create a subscription that lasts as long as somebody is attached; nothing is stored."""
        assert name not in self.subscriptions, f"{self.name} has a subscription {name}"
        cursor = self.ledger.transient_cursor(name, initial=start)
        subscription = self.subscriptions[name] = self._new_subscription(name, cursor)
        return subscription

    async def last_message(self) -> LastMessage:
        """The last message that can be read."""
        position = self.visibility.last_readable()
        while self.ledger.entries_between(EARLIEST, position):
            entries = await self.ledger.read(position, 1, limits.READ_BATCH_BYTES_MAX)
            if not entries or Position(entries[0].ledger_id, entries[0].entry_id) != position:
                break  # trimmed meanwhile
            try:
                metadata = read_metadata(entries[0].payload)
            except ProtocolError:
                return LastMessage(position, -1)  # delivered as it is, and so it counts
            if not self.visibility.hides(position, metadata):
                batch = metadata.num_messages_in_batch
                return LastMessage(
                    position, -1 if batch is None else believable_messages(batch) - 1
                )
            position = self.ledger.previous_position(position)
        return LastMessage(EARLIEST, -1)

    def detach_for_unsubscribe(
        self, subscription: Subscription, consumer: Consumer, force: bool
    ) -> None:
        """Take a subscription, with all its consumers, out of service before it is deleted.

        Raises:
            Refused: if other consumers are attached and `force` is not set.
        """
        others = [other for other in subscription.consumers if other is not consumer]
        if others and not force:
            raise Refused(
                ServerError.MetadataError,
                f"subscription {subscription.name} has other consumers connected",
            )
        self.subscriptions.pop(subscription.name, None)
        for other in [*others, consumer]:
            subscription.remove_consumer(other)
        for other in others:
            other.disconnect()

    async def delete_subscription(self, subscription: Subscription) -> None:
        """Delete a subscription durably; if that fails the topic is opened anew, with it."""
        if not subscription.cursor.is_durable:
            self._abandoned(subscription)
            return
        try:
            await self.ledger.delete_cursor(subscription.name)
        except AnabranchError as error:
            self.fail(error)
            raise

    def _new_subscription(self, name: str, cursor: Cursor) -> Subscription:
        subscription = Subscription(
            name,
            ledger=self.ledger,
            cursor=cursor,
            visibility=self.visibility,
            tasks=self._tasks,
            on_failure=self.fail,
            on_abandoned=self._abandoned,
            rules=self.rules,
        )
        subscription.throttle = self._new_throttle(subscription)
        return subscription

    def _abandoned(self, subscription: Subscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
        self.ledger.release_cursor(subscription.cursor)

    def _wake_subscriptions(self) -> None:
        try:
            for subscription in self.subscriptions.values():
                subscription.wake()
        except Exception as error:  # noqa: BLE001 - the store that calls serves other topics too
            self._mishaps.report(f"sending of {self.name}", error)
            self.fail(error)

    # --- ending ------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Storage or ownership was lost: serve no more, and let clients find the topic anew."""
        if self.closed:
            return
        self._log.error("topic_failed", error=str(error))
        self.disconnect_clients()
        self._on_failed(self)

    def disconnect_producers(
        self, which: Callable[[Producer], bool] = lambda producer: True
    ) -> None:
        """Close producers, all or some; who comes back may be refused."""
        for producer in [each for each in self.producers.values() if which(each)]:
            self.remove_producer(producer)
            producer.disconnect()

    def disconnect_clients(self) -> None:
        """Close the topic for its clients; they look it up again."""
        self.closed = True
        if self.deduplication is not None:
            self.deduplication.close()
        for producer in list(self.producers.values()):
            producer.disconnect()
        self.admission.close()
        for subscription in list(self.subscriptions.values()):
            subscription.close()

    async def stop(self) -> None:
        """Accept no more and store what is not yet durable; clients are told nothing yet."""
        self.closed = True
        if self.deduplication is not None:
            self.deduplication.close()  # or the next owner reads the log
        await self.ledger.close()

    async def close(self) -> None:
        """Disconnect everybody and store what is not yet durable."""
        self.disconnect_clients()
        await self.ledger.close()

    async def delete(self) -> None:
        """Remove everything that is stored of it; its clients were disconnected before."""
        await self.ledger.delete()
