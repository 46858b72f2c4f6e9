"""What an operator does to a topic and its subscriptions: end, skip, expire, move, look.

Plain functions on a topic that is open here. Clients that are in the way are told to come back.
"""

from typing import NamedTuple

from anabranch import limits
from anabranch.broker.refusals import Refused
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.errors import ProtocolError
from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger.entry_search import newest_matching
from anabranch.runtime.network import Buffer
from anabranch.wire import ServerError, publish_time_ms


class StoredMessage(NamedTuple):
    """An entry as it is kept, and where."""

    position: Position
    entry: Buffer


def subscription_of(topic: Topic, name: str) -> Subscription:
    """Return a subscription.

    Raises:
        Refused: if there is none of that name.
    """
    found = topic.subscriptions.get(name)
    if found is None:
        raise Refused(
            ServerError.SubscriptionNotFound,
            f"Subscription {name} not found for topic {topic.name}",
        )
    return found


async def skip(topic: Topic, name: str, count: int) -> int:
    """Pass over entries of a subscription, durably; return how many there were."""
    subscription = subscription_of(topic, name)
    passed = subscription.cursor.skip(count) if count > 0 else 0
    await _settle(subscription)
    return passed


async def skip_all(topic: Topic, name: str) -> int:
    """Pass over everything a subscription has not acknowledged, durably."""
    subscription = subscription_of(topic, name)
    passed = subscription.cursor.clear() if subscription.cursor.backlog() else 0
    await _settle(subscription)
    return passed


async def truncate(topic: Topic) -> None:
    """Let go of everything that is stored: passed over by all, and kept by no retention."""
    for name in list(topic.subscriptions):
        await skip_all(topic, name)
    await topic.ledger.truncate()


async def expire(topic: Topic, name: str, before_ms: int) -> bool:
    """Acknowledge what was published before a time, durably; whether there was anything."""
    subscription = subscription_of(topic, name)
    newest = await newest_matching(
        topic.ledger,
        topic.visibility.last_readable(),
        lambda entry: _published_before(entry, before_ms),
    )
    return newest is not None and await _expire_up_to(topic, subscription, newest)


async def expire_to(topic: Topic, name: str, last: Position) -> bool:
    """Acknowledge everything up to an entry, durably; whether there was anything."""
    subscription = subscription_of(topic, name)
    if last > topic.visibility.last_readable():
        return False
    return await _expire_up_to(topic, subscription, last)


async def _expire_up_to(topic: Topic, subscription: Subscription, last: Position) -> bool:
    if last <= subscription.cursor.mark_delete:
        return False
    before = subscription.cursor.backlog()
    subscription.cursor.acknowledge_cumulative(last)
    subscription.expired.count(before - subscription.cursor.backlog(), topic.rules.now_ms())
    await _settle(subscription)
    return True


async def _settle(subscription: Subscription) -> None:
    subscription.wake()
    await subscription.cursor.flushed()


async def position_at(topic: Topic, time_ms: int) -> Position:
    """The first entry published at or after a time; where the next one goes if there is none."""
    earlier = await newest_matching(
        topic.ledger,
        topic.visibility.last_readable(),
        lambda entry: _published_before(entry, time_ms),
    )
    return topic.ledger.next_position(EARLIEST if earlier is None else earlier)


async def peek(topic: Topic, name: str, place: int) -> StoredMessage | None:
    """The `place`th of the entries not acknowledged, from 1; None if there are fewer."""
    cursor = subscription_of(topic, name).cursor
    position = cursor.next_unacknowledged(topic.ledger.next_position(cursor.mark_delete))
    for _ in range(place - 1):
        position = cursor.next_unacknowledged(topic.ledger.next_position(position))
    return await read_entry(topic, position)


async def read_entry(topic: Topic, position: Position) -> StoredMessage | None:
    """The entry at a position; None if there is none."""
    if position > topic.visibility.last_readable():
        return None
    entries = await topic.ledger.read(position, 1, limits.READ_BATCH_BYTES_MAX)
    if not entries:
        return None
    found = Position(entries[0].ledger_id, entries[0].entry_id)
    return StoredMessage(found, entries[0].payload) if found == position else None


async def terminate(topic: Topic) -> Position:
    """End a topic for good and return its last entry; producers are told when they send."""
    last = await topic.ledger.terminate()
    for producer in list(topic.producers.values()):
        producer.disconnect()
    topic.producers.clear()
    for subscription in topic.subscriptions.values():
        subscription.wake()
    return last


async def remove_subscription(topic: Topic, name: str, *, force: bool) -> None:
    """Delete a subscription, durably.

    Raises:
        Refused: if it has consumers and `force` is not set.
    """
    subscription = subscription_of(topic, name)
    if subscription.consumers and not force:
        raise Refused(ServerError.ConsumerBusy, "Subscription has active connected consumers")
    topic.subscriptions.pop(name, None)
    for consumer in list(subscription.consumers):
        subscription.remove_consumer(consumer)
        consumer.disconnect()
    await topic.delete_subscription(subscription)


def _published_before(entry: Buffer, time_ms: int) -> bool:
    try:
        return publish_time_ms(entry) < time_ms
    except ProtocolError:
        return True  # nobody can tell, and so it does not hold up what comes after it
