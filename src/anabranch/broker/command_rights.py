"""Which right each command of the wire takes, and for what. Pure.

A command without a row is refused where rights are asked for. Commands about a producer or consumer
that this connection has opened need no other right than having opened it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import TopicName
from anabranch.security import Resource, Right


class CommandRight(NamedTuple):
    """One row: the right, and how a command says what it is for."""

    right: Right
    resource: Callable[[BaseCommand], Resource] | None = None
    tells_of_tenants: bool = False
    """Whether also those who may not ask learn that a tenant does not exist."""


def _of_topic(field: str) -> Callable[[BaseCommand], Resource]:
    return lambda command: Resource.of_topic(TopicName.parse(getattr(command, field).topic))


def _of_subscription(command: BaseCommand) -> Resource:
    request = command.subscribe
    return Resource.of_topic(TopicName.parse(request.topic), request.subscription)


def _of_namespace(field: str) -> Callable[[BaseCommand], Resource]:
    def resource(command: BaseCommand) -> Resource:
        name = getattr(command, field).namespace
        topic = TopicName.parse(f"persistent://{name}/any")
        return Resource(topic.tenant, topic.namespace_name)

    return resource


_OPENED: Final = CommandRight(Right.KNOWN)

COMMAND_RIGHTS: Final[dict[int, CommandRight]] = {
    BaseCommand.CONNECT: CommandRight(Right.ANYBODY),
    BaseCommand.AUTH_RESPONSE: _OPENED,
    BaseCommand.PING: _OPENED,
    BaseCommand.PONG: _OPENED,
    BaseCommand.LOOKUP: CommandRight(Right.LOOK_UP, _of_topic("lookupTopic")),
    BaseCommand.PARTITIONED_METADATA: CommandRight(
        Right.LOOK_UP, _of_topic("partitionMetadata"), tells_of_tenants=True
    ),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: CommandRight(
        Right.LIST, _of_namespace("getTopicsOfNamespace")
    ),
    BaseCommand.WATCH_TOPIC_LIST: CommandRight(Right.LIST, _of_namespace("watchTopicList")),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: _OPENED,
    BaseCommand.GET_SCHEMA: CommandRight(Right.LOOK_UP, _of_topic("getSchema")),
    BaseCommand.GET_OR_CREATE_SCHEMA: CommandRight(Right.PRODUCE, _of_topic("getOrCreateSchema")),
    BaseCommand.PRODUCER: CommandRight(Right.PRODUCE, _of_topic("producer")),
    BaseCommand.SEND: _OPENED,
    BaseCommand.CLOSE_PRODUCER: _OPENED,
    BaseCommand.SUBSCRIBE: CommandRight(Right.CONSUME, _of_subscription),
    BaseCommand.ACK: _OPENED,
    BaseCommand.FLOW: _OPENED,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _OPENED,
    BaseCommand.SEEK: _OPENED,
    BaseCommand.GET_LAST_MESSAGE_ID: _OPENED,
    BaseCommand.CONSUMER_STATS: _OPENED,
    BaseCommand.UNSUBSCRIBE: _OPENED,
    BaseCommand.CLOSE_CONSUMER: _OPENED,
}
