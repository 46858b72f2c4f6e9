"""What a client asks before it opens something: partitions, topics of a namespace, schemas."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch import limits
from anabranch.client.attachment import is_final
from anabranch.client.connection import BrokerRefused
from anabranch.client.limits import RECONNECT_DELAY_S_MAX, RECONNECT_DELAY_S_MIN
from anabranch.client.settings import Schema
from anabranch.errors import OutcomeUnknown, ProtocolError, Unreachable
from anabranch.generated.pulsar_api_pb2 import BaseCommand, CommandGetTopicsOfNamespace
from anabranch.generated.pulsar_api_pb2 import Schema as WireSchema
from anabranch.ids import TopicName
from anabranch.wire import requests

if TYPE_CHECKING:
    from anabranch.client.client import Client

_ALL = CommandGetTopicsOfNamespace.ALL


async def _answer_to(client: "Client", what: str, command: Callable[[int], BaseCommand]) -> Any:
    """Ask until somebody answers.

    Raises:
        BrokerRefused: if the answer is a refusal that stays one.
        Unreachable: if nobody answered in time.
    """
    trouble: Exception | None = None
    delay_s = RECONNECT_DELAY_S_MIN
    try:
        async with asyncio.timeout(client.open_timeout_s):
            while True:
                try:
                    return await client.brokers.ask(command)
                except OutcomeUnknown as error:
                    trouble = error
                except BrokerRefused as error:
                    if is_final(error.code, first=True):
                        raise
                    trouble = error
                await asyncio.sleep(delay_s * client.runtime.entropy.uniform(0.9, 1.1))
                delay_s = min(2 * delay_s, RECONNECT_DELAY_S_MAX)
    except TimeoutError:
        raise Unreachable(
            f"{what} could not be opened within {client.open_timeout_s:g} s: {trouble}"
        ) from trouble


async def partitions_of(client: "Client", topic: TopicName) -> int:
    """How many partitions a topic has; 0 if it has none, or is one.

    Raises:
        BrokerRefused: if the broker does not want to say it.
        Unreachable: if nobody answered in time.
    """
    if topic.partition >= 0:
        return 0
    answer = await _answer_to(
        client, str(topic), lambda number: requests.partition_metadata(str(topic), number)
    )
    if not 0 <= answer.partitions <= limits.PARTITIONS_MAX:
        raise ProtocolError(f"{topic} cannot have {answer.partitions} partitions")
    return int(answer.partitions)


async def topics_of(client: "Client", namespace: str) -> list[TopicName]:
    """The topics of a namespace, without their partitions, in order.

    Raises:
        BrokerRefused: if the broker does not want to say it.
        Unreachable: if nobody answered in time.
    """
    answer = await _answer_to(
        client,
        namespace,
        lambda number: requests.topics_of_namespace(namespace, number, mode=_ALL),
    )
    names = {whole_of(TopicName.parse(name)) for name in answer.topics}
    return sorted(names, key=str)


def whole_of(topic: TopicName) -> TopicName:
    """The topic that a partition is one of; itself if it is none."""
    return TopicName(topic.domain, topic.tenant, topic.namespace, topic.partitioned_local)


def partition_of(topic: TopicName, index: int) -> TopicName:
    """One partition of a topic."""
    return TopicName(
        topic.domain, topic.tenant, topic.namespace, f"{topic.local}-partition-{index}"
    )


async def schema_of(client: "Client", topic: TopicName, version: bytes | None) -> Schema:
    """A version of a topic's schema; the newest if none is named.

    Raises:
        BrokerRefused: if there is none.
        Unreachable: if nobody answered in time.
    """
    answer = await _answer_to(
        client, str(topic), lambda number: requests.get_schema(str(topic), number, version)
    )
    found: Any = answer.schema
    return Schema(
        WireSchema.Type.Name(found.type),
        found.schema_data,
        found.name,
        {pair.key: pair.value for pair in found.properties},
    )
