"""What producers ask of the broker, messages apart: to be opened and to be closed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.broker.claimed_numbers import checked_client_name, kept_client_metadata
from anabranch.broker.claims import claim, release, withdraw
from anabranch.broker.producer import Producer
from anabranch.broker.subscription_names import checked_subscription
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import TopicName
from anabranch.wire import replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session


async def open_producer(session: "Session", command: BaseCommand) -> None:
    """Open a producer, and its topic if need be; one that waits for its turn is told so."""
    request = command.producer
    producer_id = request.producer_id
    existing = session.producers.get(producer_id)
    if existing is not None and request.epoch <= existing[0].epoch:
        _answer(session, request.request_id, existing[0])
        return
    key = ("producer", producer_id)
    token = claim(session, key)
    queued = False

    def told_to_wait(leave: Callable[[], None]) -> None:
        # It has its answer, and its turn may be long in coming: it is no request any more.
        nonlocal queued
        queued = True
        _answer(session, request.request_id, producer, ready=False)
        session.request_ended()
        token.on_gone = leave
        if session.creating.get(key) is not token:
            leave()

    try:
        name = TopicName.parse(request.topic)
        if request.initial_subscription_name:
            subscription = checked_subscription(request.initial_subscription_name)
            await session.access.check_consumer(name, subscription)
        topic = await session.broker.topics.open(name, create=True)
        schema_version = await session.broker.schemas.for_producer(
            topic, request.schema if request.HasField("schema") else None
        )
        if request.initial_subscription_name:
            await topic.subscribe(subscription, initial="earliest", properties={})
        producer = Producer(
            session,
            producer_id=producer_id,
            name=checked_client_name(request.producer_name) or session.broker.new_producer_name(),
            epoch=request.epoch,
            schema_version=schema_version,
            access_mode=request.producer_access_mode,
            topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
            disconnect=lambda: session.drop_producer(producer_id),
            fence=lambda: _forget(session, producer_id),
            encrypted=request.encrypted,
            said=kept_client_metadata(request.metadata),
            since_ms=session.broker.clock.wall_ms(),
        )
        await topic.add_producer(producer, on_queued=told_to_wait)
    finally:
        if queued:
            session.request_begun()
        overtaken = not release(session, key, token)
    if overtaken:
        topic.remove_producer(producer)
        return
    if topic.deduplication is not None:
        producer.last_sequence_id = topic.deduplication.ids.last_stored(producer.name)
    session.producer_opened(producer, topic)
    _answer(session, request.request_id, producer)


def _forget(session: "Session", producer_id: int) -> None:
    # As Pulsar does: its next SEND ends the connection, and with its old epoch it is refused.
    session.producers.pop(producer_id, None)


def _answer(session: "Session", request_id: int, producer: Producer, *, ready: bool = True) -> None:
    session.reply(
        replies.producer_success(
            request_id,
            producer.name,
            producer.last_sequence_id,
            producer.schema_version,
            topic_epoch=producer.topic_epoch,
            ready=ready,
        )
    )


def close_producer(session: "Session", command: BaseCommand) -> None:
    """Close a producer; what it sent before is answered first."""
    request = command.close_producer
    withdraw(session, ("producer", request.producer_id))
    opened = session.producers.pop(request.producer_id, None)
    if opened is None:
        session.reply(replies.success(request.request_id))
        return
    producer, topic = opened

    def drained() -> None:
        topic.remove_producer(producer)
        if not session.closed:
            session.reply(replies.success(request.request_id))

    # Receipts of what was sent before the close come first, as the client expects.
    producer.after_pending(drained)
