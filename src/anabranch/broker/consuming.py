"""What consumers and readers ask of the broker, messages and acknowledgements apart.

Subscribing, with everything that says where to begin; seeking; the last message; leaving.
"""

from typing import TYPE_CHECKING

from anabranch.broker.claimed_numbers import checked_client_metadata, checked_client_name
from anabranch.broker.claims import claim, release, withdraw
from anabranch.broker.consumer import Consumer, KeySharing
from anabranch.broker.dispatch import EXCLUSIVE
from anabranch.broker.policies.admitting import admit_consumer
from anabranch.broker.policies.subscribe_rates import Subscriber
from anabranch.broker.refusals import Refused
from anabranch.broker.subscription import Subscription
from anabranch.broker.subscription_names import checked_subscription
from anabranch.broker.subscription_types import IN_ORDER, TYPE_NAMES
from anabranch.broker.topic import Topic
from anabranch.errors import AlreadyClosed, AnabranchError
from anabranch.generated.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    KeySharedMeta,
    KeySharedMode,
)
from anabranch.ids import Position, TopicName
from anabranch.wire import MessageIdData, ServerError, message_id, replies, signed

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_LATEST_LEDGER = 2**63 - 1
"""Stands for "after the last message". The C++ client cannot send the entry id that belongs to it,
so the ledger decides alone."""
_COMPACTION_CURSOR = "__compaction"


# --- coming and going ------------------------------------------------------------------------


async def subscribe(session: "Session", command: BaseCommand) -> None:
    """Open a consumer, its subscription and its topic, as far as they are not there."""
    request = command.subscribe
    consumer_id = request.consumer_id
    if consumer_id in session.consumers:
        session.reply(replies.success(request.request_id))
        return
    name = _checked_subscription(request)
    said = checked_client_metadata(request.metadata)
    token = claim(session, ("consumer", consumer_id))
    subscription = None
    try:
        topic_name = TopicName.parse(request.topic)
        topic = await session.broker.topics.open(topic_name, create=request.force_topic_creation)
        if request.HasField("schema"):
            await session.broker.schemas.for_consumer(topic, request.schema)
        if request.read_compacted and _COMPACTION_CURSOR in topic.ledger.cursors:
            raise Refused(
                ServerError.NotAllowedError, f"compacted copies are not read: {topic_name}"
            )
        if request.subType == EXCLUSIVE:
            await _part_from_ghosts(session, topic.subscriptions.get(name))
        consumer_name = (
            checked_client_name(request.consumer_name) or session.broker.new_consumer_name()
        )
        if topic_name.is_persistent:
            subscriber = Subscriber(session.host, consumer_name, consumer_id)
            topic.subscribe_rates.admit(subscriber, session.broker.clock.monotonic_s())
        subscription = await _subscription(session, topic, name, request)
        consumer = Consumer(
            session,
            consumer_id=consumer_id,
            name=consumer_name,
            priority=request.priority_level,
            partition=topic_name.partition,
            epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
            disconnect=lambda: session.drop_consumer(consumer_id),
            sharing=_sharing(request.keySharedMeta) if request.HasField("keySharedMeta") else None,
            rules=topic.rules,
            said=said,
        )
        if topic.closed or session.closed or topic.subscriptions.get(name) is not subscription:
            raise AlreadyClosed(f"{topic_name} or its subscription {name} was closed meanwhile")
        admit_consumer(topic, subscription, TYPE_NAMES[request.subType])
        subscription.add_consumer(consumer, request.subType)
    finally:
        overtaken = not release(session, ("consumer", consumer_id), token)
        if subscription is not None:
            subscription.end_if_abandoned()
    if overtaken:
        subscription.remove_consumer(consumer)
        return
    session.consumers[consumer_id] = (consumer, subscription, topic)
    session.reply(replies.success(request.request_id))


def _sharing(wanted: KeySharedMeta) -> KeySharing:
    return KeySharing(
        sticky=wanted.keySharedMode == KeySharedMode.STICKY,
        out_of_order=wanted.allowOutOfOrderDelivery,
        ranges=tuple((each.start, each.end) for each in wanted.hashRanges),
    )


async def _part_from_ghosts(session: "Session", subscription: Subscription | None) -> None:
    """Give up consumers whose client is gone without a word, perhaps the one that comes now."""
    for other in list(subscription.consumers) if subscription is not None else ():
        if other.outlet is not session:
            await other.outlet.is_alive()


async def _subscription(
    session: "Session", topic: Topic, name: str, request: CommandSubscribe
) -> Subscription:
    earliest = request.initialPosition == CommandSubscribe.Earliest
    if request.durable:
        properties = {pair.key: pair.value for pair in request.subscription_properties}
        return await topic.subscribe(
            name, initial="earliest" if earliest else "latest", properties=properties
        )
    known = topic.subscriptions.get(name)
    if known is not None and known.cursor.is_durable:
        raise Refused(
            ServerError.NotAllowedError, "Durable subscription with the same name already exists."
        )
    if known is not None:
        return known
    start = _place_of(request.start_message_id) if request.HasField("start_message_id") else None
    if start is None or start.ledger_id == _LATEST_LEDGER:
        subscription = topic.read_from(name, "earliest" if earliest else "latest")
    else:
        subscription = topic.read_from(name, start)
    if request.start_message_rollback_duration_sec > 0:
        ago_ms = request.start_message_rollback_duration_sec * 1000
        try:
            await subscription.seek_to_time(session.broker.clock.wall_ms() - ago_ms)
        except BaseException:
            subscription.end_if_abandoned()
            raise
    return subscription


def _checked_subscription(request: CommandSubscribe) -> str:
    if request.read_compacted and request.subType not in IN_ORDER:
        raise Refused(
            ServerError.NotAllowedError,
            "readCompacted only allowed on failover or exclusive subscriptions",
        )
    return checked_subscription(request.subscription)


def close_consumer(session: "Session", command: BaseCommand) -> None:
    """Close a consumer; its subscription stays if it is durable."""
    request = command.close_consumer
    withdraw(session, ("consumer", request.consumer_id))
    opened = session.consumers.pop(request.consumer_id, None)
    if opened is not None:
        consumer, subscription, _ = opened
        subscription.remove_consumer(consumer)
    session.reply(replies.success(request.request_id))


async def unsubscribe(session: "Session", command: BaseCommand) -> None:
    """Delete the subscription of a consumer."""
    request = command.unsubscribe
    consumer, subscription, topic = _opened(session, request.consumer_id)
    topic.detach_for_unsubscribe(subscription, consumer, request.force)
    del session.consumers[request.consumer_id]
    try:
        await topic.delete_subscription(subscription)
    except AnabranchError:
        # The client keeps its consumer when it is refused: tell it that there is none any more.
        session.reply(replies.close_consumer(request.consumer_id))
        raise
    session.reply(replies.success(request.request_id))


# --- moving about ----------------------------------------------------------------------------


def redeliver(session: "Session", command: BaseCommand) -> None:
    """Send again what a consumer has not acknowledged."""
    request = command.redeliverUnacknowledgedMessages
    opened = session.consumers.get(request.consumer_id)
    if opened is None:
        return
    consumer, subscription, _ = opened
    positions = [Position(place.ledgerId, place.entryId) for place in request.message_ids]
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    subscription.redeliver(consumer, positions or None, epoch)


async def seek(session: "Session", command: BaseCommand) -> None:
    """Move a subscription. Its consumers are closed, and come back to find it moved."""
    request = command.seek
    by_id = request.HasField("message_id")
    if not by_id and not request.HasField("message_publish_time"):
        raise Refused(
            ServerError.MetadataError, "Message id and message publish time were not present"
        )
    _, subscription, _ = _opened(session, request.consumer_id)
    try:
        if by_id:
            where = request.message_id
            await subscription.seek(_place_of(where), tuple(where.ack_set))
        else:
            await subscription.seek_to_time(request.message_publish_time)
    finally:
        # Its reader may have left while the time was being looked for.
        subscription.end_if_abandoned()
    session.reply(replies.success(request.request_id))


async def get_last_message_id(session: "Session", command: BaseCommand) -> None:
    """Name the last message that can be read, and how far the subscription is done."""
    request = command.getLastMessageId
    _, subscription, topic = _opened(session, request.consumer_id)
    last = await topic.last_message()
    mark_delete = subscription.cursor.mark_delete
    partition = topic.name.partition
    session.reply(
        replies.last_message_id(
            request.request_id,
            message_id(*last.position, partition=partition, batch_index=last.batch_index),
            message_id(*mark_delete),
        )
    )


def _opened(session: "Session", consumer_id: int) -> tuple[Consumer, Subscription, Topic]:
    opened = session.consumers.get(consumer_id)
    if opened is None:
        raise Refused(ServerError.MetadataError, f"Consumer not found: {consumer_id}")
    return opened


def _place_of(where: MessageIdData) -> Position:
    return Position(signed(where.ledgerId), signed(where.entryId))
