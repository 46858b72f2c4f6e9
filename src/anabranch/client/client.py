"""The client: an address, the connections opened for it, and the way to the owner of a topic."""

import asyncio
from typing import Literal
from urllib.parse import urlsplit

from anabranch import limits
from anabranch.client.connection import BrokerConnection
from anabranch.client.consumer import Consumer
from anabranch.client.producer import Producer
from anabranch.errors import ConfigError, OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import CommandLookupTopicResponse
from anabranch.ids import TopicName
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import FailureSink, Tasks
from anabranch.wire import encode, requests

_LOOKUP_REDIRECTS_MAX = 20


def parse_service_url(url: str) -> tuple[str, int]:
    """Return host and port of a `pulsar://host:port` address.

    Raises:
        ConfigError: if it is none.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or 6650
    except ValueError as error:
        raise ConfigError(f"service URL {url!r}: {error}") from error
    if parts.scheme != "pulsar" or not parts.hostname:
        raise ConfigError(f"service URL must be pulsar://host:port, not {url!r}")
    return parts.hostname, port


class Client:
    """Opens producers and consumers, all over a few shared connections."""

    def __init__(self, service_url: str, runtime: Runtime, *, on_failure: FailureSink) -> None:
        self._service = parse_service_url(service_url)
        self.runtime = runtime
        self.tasks = Tasks(on_failure)
        self.message_bytes_max = limits.MESSAGE_BYTES_MAX
        """What the brokers said last about metadata and payload of one message."""
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._connecting: dict[tuple[str, int], asyncio.Lock] = {}
        self._next_id = 0
        self._open: list[Producer | Consumer] = []

    def new_id(self) -> int:
        """A producer or consumer number, unique in this client."""
        self._next_id += 1
        return self._next_id

    async def producer(self, topic: str, *, name: str = "", in_flight_max: int = 1000) -> Producer:
        """Open a producer.

        Raises:
            BrokerRefused: if the broker does not want it.
        """
        producer = Producer(self, TopicName.parse(topic), name=name, in_flight_max=in_flight_max)
        self._open.append(producer)
        await producer.start()
        return producer

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        subscription_type: Literal["exclusive", "shared"] = "exclusive",
        initial_position: Literal["latest", "earliest"] = "latest",
        queue_messages: int = 1000,
    ) -> Consumer:
        """Open a consumer.

        Raises:
            BrokerRefused: if the broker does not want it.
        """
        consumer = Consumer(
            self,
            TopicName.parse(topic),
            subscription,
            subscription_type=subscription_type,
            initial_position=initial_position,
            queue_messages=queue_messages,
        )
        self._open.append(consumer)
        await consumer.start()
        return consumer

    async def connection_for(self, topic: TopicName) -> BrokerConnection:
        """Look a topic's owner up and return a connection to it.

        Raises:
            BrokerRefused: if the lookup was refused.
            OutcomeUnknown: if nobody answered; to be tried again.
        """
        address, authoritative = self._service, False
        for _ in range(_LOOKUP_REDIRECTS_MAX):
            connection = await self._connect(address)
            request_id = connection.new_request_id()
            lookup = requests.lookup(str(topic), request_id, authoritative=authoritative)
            answer = await connection.request(request_id, [encode(lookup)])
            address = parse_service_url(answer.brokerServiceUrl)
            if answer.response == CommandLookupTopicResponse.Connect:
                return await self._connect(address)
            authoritative = answer.authoritative
        raise OutcomeUnknown(f"lookup of {topic} was redirected {_LOOKUP_REDIRECTS_MAX} times")

    async def _connect(self, address: tuple[str, int]) -> BrokerConnection:
        async with self._connecting.setdefault(address, asyncio.Lock()):
            known = self._connections.get(address)
            if known is not None and not known.closed:
                return known
            try:
                fresh = await BrokerConnection.open(self.runtime.network, *address)
            except (OSError, TimeoutError) as error:
                raise OutcomeUnknown(f"nothing answers at {address[0]}:{address[1]}") from error
            self._connections[address] = fresh
            self.message_bytes_max = fresh.message_bytes_max
            return fresh

    async def close(self) -> None:
        """Close producers, consumers and connections."""
        for each in list(self._open):
            await each.close()
        await self.tasks.close()
        for connection in self._connections.values():
            connection.close()
