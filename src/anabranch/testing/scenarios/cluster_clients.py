"""Clients of several brokers that come and go, and so find out who owns a topic now.

Clients that stay attached to a broker ask nobody. Visitors look the topic up for each few messages;
a claimant fences whoever published before it; a surveyor compares what all brokers say.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from anabranch.client import BrokerRefused, Client
from anabranch.client.connection import BrokerConnection
from anabranch.errors import OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import CommandLookupTopicResponse, ProducerAccessMode
from anabranch.ids import TopicName
from anabranch.limits import LOOKUP_REDIRECTS_MAX
from anabranch.runtime import Runtime
from anabranch.testing.scenarios.standalone import Story, produce
from anabranch.wire import encode, requests

VISIT_GAP_S: Final = 1.5
VISIT_MESSAGES_MAX: Final = 3
CLAIM_GAP_S: Final = 2.0
AGREE_S_MAX: Final = 60.0
ASK_AGAIN_S: Final = 0.5


class NotingClient(Client):
    """Counts how often it went where a broker had sent it."""

    def __init__(self, service_url: str, runtime: Runtime, **options: Any) -> None:
        super().__init__(service_url, runtime, **options)
        self.hints_followed = 0
        go = self.brokers.at

        async def noted(service_url: str) -> BrokerConnection:
            self.hints_followed += 1
            return await go(service_url)

        self.brokers.at = noted  # type: ignore[method-assign]


async def visit(story: Story, runtime: Runtime, number: int, is_over: asyncio.Event) -> None:
    """Come with a few messages, again and again and once after the storm, each time by a lookup."""
    visits = 0
    is_last = False
    while not is_last:
        await asyncio.sleep(runtime.entropy.uniform(0.0, 2 * VISIT_GAP_S))
        is_last = is_over.is_set()
        visits += 1
        messages = 1 + runtime.entropy.below(VISIT_MESSAGES_MAX)
        await produce(story, runtime, number, epoch=visits, messages=messages)


async def claim(client: Client, runtime: Runtime, topic: str, is_over: asyncio.Event) -> int:
    """Take a topic for oneself, again and again; the epochs only rise. Returns the last one."""
    highest = -1
    while not is_over.is_set():
        await asyncio.sleep(runtime.entropy.uniform(0.0, 2 * CLAIM_GAP_S))
        try:
            connection = await client.brokers.owner_of(TopicName.parse(topic))
            answer_epoch = await _open_alone(client, connection, topic)
        except (BrokerRefused, OutcomeUnknown):
            continue
        assert answer_epoch > highest, f"epoch {answer_epoch} of {topic} after {highest}"
        highest = answer_epoch
    return highest


async def _open_alone(client: Client, connection: BrokerConnection, topic: str) -> int:
    request_id = connection.new_request_id()
    mode = ProducerAccessMode.ExclusiveWithFencing
    wanted = requests.producer(topic, client.new_id(), request_id, access_mode=mode)
    answer = await connection.request(request_id, [encode(wanted)])
    epoch: int = answer.topic_epoch
    return epoch


async def intrude(
    client: Client, service_url: str, topic: str, owning: Callable[[], list[str]]
) -> None:
    """Ask a broker for a topic that it does not own; it must say no.

    A topic may lawfully change brokers while its broker is asked: only one that had it neither
    before nor after has no right to it.

    Raises:
        OutcomeUnknown: if it does not answer.
    """
    owners = set(owning())
    connection = await client.brokers.at(service_url)
    request_id = connection.new_request_id()
    wanted = requests.producer(topic, client.new_id(), request_id)
    try:
        await connection.request(request_id, [encode(wanted)])
    except BrokerRefused:
        return
    owners |= set(owning())
    assert service_url in owners, f"{service_url} opened {topic}, which {sorted(owners)} had"


async def whereabouts(client: Client, service_url: str, topic: str) -> str:
    """Where a lookup leads that begins at a broker.

    Raises:
        BrokerRefused, OutcomeUnknown: if nobody can say now.
    """
    authoritative = False
    for _ in range(LOOKUP_REDIRECTS_MAX):
        connection = await client.brokers.at(service_url)
        request_id = connection.new_request_id()
        lookup = requests.lookup(topic, request_id, authoritative=authoritative)
        answer = await connection.request(request_id, [encode(lookup)])
        service_url, authoritative = answer.brokerServiceUrl, answer.authoritative
        if answer.response == CommandLookupTopicResponse.Connect:
            return service_url
    raise OutcomeUnknown(f"lookup of {topic} went round in circles")


async def agreed_owner(
    client: Client, urls: list[str], topic: str, owning: Callable[[], list[str]]
) -> str:
    """Ask every broker until all name the same one, and it alone takes itself for the owner.

    They have a while to hear of each other.
    """
    answers: dict[str, str] = {}
    try:
        async with asyncio.timeout(AGREE_S_MAX):
            while True:
                for url in urls:
                    try:
                        answers[url] = await whereabouts(client, url, topic)
                    except (BrokerRefused, OutcomeUnknown) as error:
                        answers[url] = f"{type(error).__name__}: {error}"
                if owning() == sorted(set(answers.values())):
                    return answers[urls[0]]
                await asyncio.sleep(ASK_AGAIN_S)
    except TimeoutError:
        raise AssertionError(
            f"brokers do not agree on the owner of {topic}: {answers}, and it is had by {owning()}"
        ) from None
