"""The command that opens a consumer, and what a broker says of the last message. Pure."""

from typing import Any, NamedTuple

from anabranch.client.message import MessageId
from anabranch.client.settings import INITIAL_POSITIONS, SUBSCRIPTION_TYPES, ConsumerSettings
from anabranch.generated.pulsar_api_pb2 import BaseCommand, Schema
from anabranch.wire import message_id, requests


class Opening(NamedTuple):
    """What is new each time that a consumer is opened."""

    consumer_id: int
    request_id: int
    begin: MessageId | None
    """Where, if it is not for the subscription to say."""
    epoch: int | None


def subscribe_command(
    settings: ConsumerSettings,
    topic: str,
    subscription: str,
    name: str,
    schema: Schema | None,
    opening: Opening,
) -> BaseCommand:
    """Ask for a consumer with such settings."""
    begin = opening.begin
    return requests.subscribe(
        topic,
        subscription,
        SUBSCRIPTION_TYPES[settings.subscription_type],
        opening.consumer_id,
        opening.request_id,
        consumer_name=name,
        priority_level=settings.priority,
        durable=settings.durable,
        start_message_id=message_id(begin.ledger_id, begin.entry_id) if begin else None,
        initial_position=INITIAL_POSITIONS[settings.initial_position],
        properties=settings.properties,
        schema=schema,
        subscription_properties=settings.subscription_properties,
        read_compacted=settings.read_compacted,
        create_topic=settings.create_topic,
        key_shared=settings.key_sharing(),
        consumer_epoch=opening.epoch,
    )


def last_and_mark_delete(answer: Any) -> tuple[MessageId, MessageId | None]:
    """Read the answer to a request for the last message; not every broker says the second."""
    last = MessageId.of(answer.last_message_id)
    if not answer.HasField("consumer_mark_delete_position"):
        return last, None
    return last, MessageId.of(answer.consumer_mark_delete_position)
