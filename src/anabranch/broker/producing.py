"""What producers ask of the broker, messages apart: to be opened and to be closed."""

from typing import TYPE_CHECKING

from anabranch.broker.claims import claim, release
from anabranch.broker.producer import Producer
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import TopicName, check_subscription_name
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
    try:
        topic = await session.broker.topics.open(TopicName.parse(request.topic), create=True)
        schema_version = await session.broker.schemas.for_producer(
            topic, request.schema if request.HasField("schema") else None
        )
        if request.initial_subscription_name:
            name = check_subscription_name(request.initial_subscription_name)
            await topic.subscribe(name, initial="earliest", properties={})
        producer = Producer(
            session,
            producer_id=producer_id,
            name=request.producer_name or session.broker.new_producer_name(),
            epoch=request.epoch,
            schema_version=schema_version,
            access_mode=request.producer_access_mode,
            topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
            disconnect=lambda: session.drop_producer(producer_id),
            fence=lambda: _forget(session, producer_id),
        )
        await topic.add_producer(
            producer,
            on_queued=lambda: _answer(session, request.request_id, producer, ready=False),
            is_wanted=lambda: session.creating.get(key) is token,
        )
    finally:
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
    session.creating.pop(("producer", request.producer_id), None)
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
