"""Planted bugs of `anabranch.broker`."""

from collections.abc import Callable, Iterable, Sequence

from anabranch import limits
from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.dispatch import SharedDispatcher
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import LastMessage, Topic
from anabranch.ids import Position
from anabranch.managed_ledger import Cursor
from anabranch.managed_ledger.cursors import Cursors
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted
from anabranch.wire import BaseCommand, MessageIdData, publish_time_ms


@planted("read_outlives_rewind", target="anabranch.broker.subscription:Subscription._read")
async def read_outlives_rewind(
    self: Subscription, start: Position, count: int, replays: list[Position], generation: int
) -> None:
    """A storage read that was begun before a rewind is delivered after it."""
    del generation
    await original("read_outlives_rewind")(self, start, count, replays, self._generation)


@planted(
    "leaver_takes_its_messages_along",
    target="anabranch.broker.dispatch:SharedDispatcher.remove",
)
def leaver_takes_its_messages_along(self: SharedDispatcher, consumer: Consumer) -> bool:
    """What a consumer held when it went away is not given to the others."""
    if consumer in self.consumers:
        self.consumers.remove(consumer)
    return False


@planted("ack_answered_before_durable", target="anabranch.managed_ledger.cursor:Cursor.flush")
def ack_answered_before_durable(self: Cursor, done: Callable[[Exception | None], None]) -> None:
    """An acknowledgement is answered while it is only in memory."""
    done(None)


@planted("readers_start_at_the_end", target="anabranch.broker.topic:Topic.read_from")
def readers_start_at_the_end(self: Topic, name: str, start: str | Position) -> Subscription:
    """Wherever a reader wants to begin, it sees new messages only."""
    del start
    found: Subscription = original("readers_start_at_the_end")(self, name, "latest")
    return found


@planted("readers_start_at_the_front", target="anabranch.broker.topic:Topic.read_from")
def readers_start_at_the_front(self: Topic, name: str, start: str | Position) -> Subscription:
    """Wherever a reader wants to begin, it sees the whole topic."""
    del start
    found: Subscription = original("readers_start_at_the_front")(self, name, "earliest")
    return found


@planted("start_is_skipped", target="anabranch.broker.topic:Topic.read_from")
def start_is_skipped(self: Topic, name: str, start: str | Position) -> Subscription:
    """A reader begins after the entry that it named, which may be half read."""
    if isinstance(start, Position):
        start = self.ledger.next_position(start)
    found: Subscription = original("start_is_skipped")(self, name, start)
    return found


@planted("seek_goes_too_far", target="anabranch.broker.subscription:Subscription.seek")
async def seek_goes_too_far(
    self: Subscription, position: Position, ack_set: Sequence[int] = ()
) -> None:
    """A seek passes over the very entry that was named."""
    await original("seek_goes_too_far")(self, self._ledger.next_position(position), ack_set)


@planted("seek_moves_one_alone", target="anabranch.broker.subscription:Subscription._move")
async def seek_moves_one_alone(
    self: Subscription, position: Position, ack_set: Sequence[int] = ()
) -> None:
    """A seek sends one consumer away; the others go on as if nothing had happened."""
    await self.cursor.move(position, ack_set)
    for consumer in self.consumers[:1]:
        self.remove_consumer(consumer)
        consumer.disconnect()


@planted("time_is_passed_over", target="anabranch.broker.subscription:_is_published_before")
def time_is_passed_over(entry: Buffer, time_ms: int) -> bool:
    """A message published at the very time of a seek counts as one from before."""
    return publish_time_ms(entry) <= time_ms


@planted("mark_delete_is_left_out", target="anabranch.wire.replies:last_message_id")
def mark_delete_is_left_out(
    request_id: int, last: MessageIdData, mark_delete: MessageIdData | None = None
) -> BaseCommand:
    """A client that starts at the end is not told where that was."""
    del mark_delete
    answer: BaseCommand = original("mark_delete_is_left_out")(request_id, last)
    return answer


@planted("a_batch_ends_at_its_entry", target="anabranch.broker.topic:Topic.last_message")
async def a_batch_ends_at_its_entry(self: Topic) -> LastMessage:
    """The last message of a batch is named without its place in it."""
    last: LastMessage = await original("a_batch_ends_at_its_entry")(self)
    return last._replace(batch_index=-1)


@planted(
    "reader_leaves_its_place",
    target="anabranch.broker.subscription:Subscription.end_if_abandoned",
)
def reader_leaves_its_place(self: Subscription) -> None:
    """What a reader had read is remembered after it went away."""


@planted("seek_keeps_what_is_being_read", target="anabranch.broker.subscription:Subscription._read")
async def seek_keeps_what_is_being_read(
    self: Subscription, start: Position, count: int, replays: list[Position], generation: int
) -> None:
    """What was being read when a seek came is delivered to those who come back after it."""
    del generation
    entries = await self._ledger.read(start, count, limits.READ_BATCH_BYTES_MAX)
    self._reading = False
    if self._deliver(entries, replays):
        self.wake()


@planted("seek_answered_before_durable", target="anabranch.broker.subscription:Subscription.seek")
async def seek_answered_before_durable(
    self: Subscription, position: Position, ack_set: Sequence[int] = ()
) -> None:
    """A seek is answered while it is only in memory."""
    self.cursor.reset(position, ack_set)
    self._send_away()


@planted("readers_hold_back_trimming", target="anabranch.managed_ledger.cursors:Cursors.slowest")
def readers_hold_back_trimming(self: Cursors) -> Position | None:
    """Nothing is removed that some reader has not read."""
    cursors = (*self.by_name.values(), *self._transient)
    return min((cursor.mark_delete for cursor in cursors), default=None)


@planted("entries_go_out_backwards", target="anabranch.broker.consumer:Consumer.deliver")
def entries_go_out_backwards(self: Consumer, deliveries: list[Delivery]) -> None:
    """Entries that are sent together are sent in the wrong order."""
    original("entries_go_out_backwards")(self, deliveries[::-1])


@planted(
    "first_consumer_gets_all", target="anabranch.broker.dispatch:SharedDispatcher._next_consumer"
)
def first_consumer_gets_all(self: SharedDispatcher) -> Consumer | None:
    """Of those who share a subscription one gets everything."""
    first = self.consumers[0] if self.consumers else None
    return first if first is not None and first.can_take else None


@planted(
    "redeliveries_are_not_counted",
    target="anabranch.broker.dispatch:SharedDispatcher.redelivery_count",
)
def redeliveries_are_not_counted(self: SharedDispatcher, position: Position) -> int:
    """Every delivery says that it is the first."""
    del self, position
    return 0


@planted("single_acks_are_dropped", target="anabranch.managed_ledger.cursor:Cursor.acknowledge")
def single_acks_are_dropped(self: Cursor, positions: Iterable[Position]) -> None:
    """Only cumulative acknowledgements reach the cursor."""
    del self, positions


@planted(
    "parts_of_batches_are_dropped",
    target="anabranch.managed_ledger.cursor:Cursor.acknowledge_batch",
)
def parts_of_batches_are_dropped(self: Cursor, position: Position, ack_set: Sequence[int]) -> bool:
    """What is acknowledged of a batch counts only when all of it is."""
    del self, position
    return not any(ack_set)


@planted("large_entries_are_left_out", target="anabranch.broker.consumer:Consumer.deliver")
def large_entries_are_left_out(self: Consumer, deliveries: list[Delivery]) -> None:
    """An entry near the limit is passed over."""
    bound = limits.MESSAGE_BYTES_MAX - limits.MIB
    small = [delivery for delivery in deliveries if len(delivery.payload) < bound]
    if small:
        original("large_entries_are_left_out")(self, small)
