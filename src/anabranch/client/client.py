"""The client: an address, the connections opened for it, and the way to the owner of a topic."""

import asyncio
from types import TracebackType
from typing import Any

from anabranch import limits
from anabranch.client.attachment import Attachment
from anabranch.client.connection import BrokerConnection
from anabranch.client.consumer import Consumer
from anabranch.client.message import EARLIEST, LATEST, MessageId
from anabranch.client.producer import Producer
from anabranch.client.reader import Reader
from anabranch.client.service_addresses import ServiceAddresses, parse_service_url
from anabranch.client.settings import (
    Batching,
    ConsumerSettings,
    InitialPosition,
    ProducerSettings,
    Schema,
    SubscriptionType,
)
from anabranch.errors import InputError, OutcomeUnknown, Unreachable
from anabranch.generated.pulsar_api_pb2 import CommandLookupTopicResponse
from anabranch.ids import TopicName
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import FailureSink, Tasks
from anabranch.telemetry import get_logger
from anabranch.wire import encode, requests
from anabranch.wire.compression import Compression

_DEFAULT_BATCHING = Batching()
_log = get_logger("client")


class Client:
    """Opens producers, consumers and readers, all over a few shared connections.

        async with Client("pulsar://127.0.0.1:6650") as client:
            producer = await client.producer("phrases")
            await producer.send(b"hello")

    It belongs to the event loop it was made in. Lost connections come back by themselves.
    """

    def __init__(
        self,
        service_url: str,
        runtime: Runtime | None = None,
        *,
        on_failure: FailureSink | None = None,
        open_timeout_s: float | None = limits.OPEN_TIMEOUT_S,
    ) -> None:
        """Nothing is connected yet; see `connect`.

        Args:
            service_url: `pulsar://host:port` of any broker, or several with commas between.
            runtime: the doors to clock and network; those of the machine if none is given.
            on_failure: told when a background task fails, which is a mistake in this package.
            open_timeout_s: how long opening something may take; None for as long as it takes.

        Raises:
            ConfigError: if the address is none.
        """
        self.service_url = service_url
        self._service = ServiceAddresses(service_url)
        self.runtime = runtime if runtime is not None else _machine()
        self.tasks = Tasks(on_failure or self._failed)
        self.open_timeout_s = open_timeout_s
        self.message_bytes_max = limits.MESSAGE_BYTES_MAX
        """What the brokers said last about metadata and payload of one message."""
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._connecting: dict[tuple[str, int], asyncio.Lock] = {}
        self._next_id = 0
        self._open: dict[Attachment, Any] = {}
        """What is open; the value knows how to close it."""

    @classmethod
    async def connect(cls, service_url: str, **options: Any) -> "Client":
        """Make a client and see whether anybody answers at its address.

        Raises:
            Unreachable: if nobody does.
            BrokerRefused: if the broker does not want this client.
        """
        client = cls(service_url, **options)
        try:
            await client._connect(client._service.present)
        except OutcomeUnknown as error:
            raise Unreachable(f"{error}: is the server running?") from error
        return client

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("task_failed", task=name, error=repr(error))
        for attachment in list(self._open):
            attachment.end(OutcomeUnknown(f"{name} failed: {error!r}"))

    def new_id(self) -> int:
        """A producer or consumer number, unique in this client."""
        self._next_id += 1
        return self._next_id

    # --- opening -----------------------------------------------------------------------------

    async def producer(
        self,
        topic: str,
        *,
        name: str = "",
        batching: Batching | None = _DEFAULT_BATCHING,
        compression: Compression = "none",
        pending_messages_max: int = limits.PRODUCER_PENDING_MESSAGES,
        pending_bytes_max: int = limits.PRODUCER_PENDING_BYTES,
        send_timeout_s: float | None = limits.SEND_TIMEOUT_S,
        properties: dict[str, str] | None = None,
        schema: Schema | None = None,
    ) -> Producer:
        """Open a producer.

        Args:
            topic: a full name, or a short one such as `phrases`.
            name: unique among the topic's producers; the broker finds one if none is given.
            batching: when messages go out together; None for an entry each.
            compression: how payloads are packed; all but zlib take the extra `compression`.
            pending_messages_max: messages without an answer before senders wait.
            pending_bytes_max: the same, in bytes.
            send_timeout_s: when a message without an answer is given up; None for never.
            properties: shown in the broker's figures.
            schema: what the payloads are, for the broker to check; they stay bytes here.

        Raises:
            BrokerRefused: if the broker does not want it.
            Unreachable: if no broker took it in time.
            InputError: if an argument is wrong.
        """
        settings = ProducerSettings(
            name=name,
            batching=batching,
            compression=compression,
            pending_messages_max=pending_messages_max,
            pending_bytes_max=pending_bytes_max,
            send_timeout_s=send_timeout_s,
            properties=properties,
            schema=schema,
        )
        producer = Producer(self, TopicName.parse(topic), settings)
        await self._start(producer)
        return producer

    async def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        subscription_type: SubscriptionType = "exclusive",
        initial_position: InitialPosition = "latest",
        name: str = "",
        queue_messages: int = limits.CONSUMER_QUEUE_MESSAGES,
        queue_bytes: int = limits.CONSUMER_QUEUE_BYTES,
        negative_ack_delay_s: float = limits.NEGATIVE_ACK_DELAY_S,
        priority: int = 0,
        properties: dict[str, str] | None = None,
        schema: Schema | None = None,
    ) -> Consumer:
        """Open a consumer.

        Args:
            topic: a full name, or a short one such as `phrases`.
            subscription: who shares it, shares the messages.
            subscription_type: how consumers share it, as far as the broker serves the type.
            initial_position: where a new subscription begins.
            name: shown in the broker's figures.
            queue_messages: messages that may be sent ahead of `receive`.
            queue_bytes: the same in bytes, judged by the size of the messages so far.
            negative_ack_delay_s: when a refused message is asked for again.
            priority: lower numbers of a shared subscription are served first.
            properties: shown in the broker's figures.
            schema: what the payloads are, for the broker to check; they stay bytes here.

        Raises:
            BrokerRefused: if the broker does not want it.
            Unreachable: if no broker took it in time.
            InputError: if an argument is wrong.
        """
        settings = ConsumerSettings(
            subscription_type=subscription_type,
            initial_position=initial_position,
            name=name,
            queue_messages=queue_messages,
            queue_bytes=queue_bytes,
            negative_ack_delay_s=negative_ack_delay_s,
            priority=priority,
            properties=properties,
            schema=schema,
        )
        consumer = Consumer(self, TopicName.parse(topic), subscription, settings)
        await self._start(consumer)
        return consumer

    async def reader(
        self,
        topic: str,
        *,
        start: MessageId | InitialPosition = "earliest",
        inclusive: bool = False,
        name: str = "",
        queue_messages: int = limits.CONSUMER_QUEUE_MESSAGES,
        queue_bytes: int = limits.CONSUMER_QUEUE_BYTES,
        schema: Schema | None = None,
    ) -> Reader:
        """Open a reader.

        Args:
            topic: a full name, or a short one such as `phrases`.
            start: the first message there is, those to come, or behind a message.
            inclusive: whether the message that `start` names is read too.
            name: shown in the broker's figures.
            queue_messages: see `consumer`.
            queue_bytes: see `consumer`.
            schema: see `consumer`.

        Raises:
            BrokerRefused: if the broker does not want it.
            Unreachable: if no broker took it in time.
            InputError: if an argument is wrong.
        """
        if isinstance(start, str):
            if start not in ("earliest", "latest"):
                raise InputError(f"start is earliest, latest or a message id, not {start!r}")
            start = EARLIEST if start == "earliest" else LATEST
        settings = ConsumerSettings(
            initial_position="earliest" if start == EARLIEST else "latest",
            name=name,
            queue_messages=queue_messages,
            queue_bytes=queue_bytes,
            schema=schema,
            durable=False,
        )
        reader = Reader(self, TopicName.parse(topic), settings, start=start, inclusive=inclusive)
        await self._start(reader.attachment)
        return reader

    async def _start(self, attachment: Producer | Consumer) -> None:
        self._open[attachment] = attachment.close
        await attachment.start()

    def forget(self, attachment: Attachment) -> None:
        """It is closed."""
        self._open.pop(attachment, None)

    # --- the way to a broker -----------------------------------------------------------------

    async def connection_for(self, topic: TopicName) -> BrokerConnection:
        """Look a topic's owner up and return a connection to it.

        Raises:
            BrokerRefused: if the lookup was refused.
            OutcomeUnknown: if nobody answered; to be tried again.
        """
        try:
            return await self._look_up(topic)
        except OutcomeUnknown:
            self._service.next()  # whoever was asked may be gone, or stopped
            raise

    async def _look_up(self, topic: TopicName) -> BrokerConnection:
        connection, authoritative = await self._connect(self._service.present), False
        for _ in range(limits.LOOKUP_REDIRECTS_MAX):
            request_id = connection.new_request_id()
            lookup = requests.lookup(str(topic), request_id, authoritative=authoritative)
            answer = await connection.request(request_id, [encode(lookup)])
            address = parse_service_url(answer.brokerServiceUrl)
            if answer.response == CommandLookupTopicResponse.Connect:
                return await self._connect(address)
            connection, authoritative = await self._connect(address), answer.authoritative
        raise OutcomeUnknown(
            f"lookup of {topic} was redirected {limits.LOOKUP_REDIRECTS_MAX} times"
        )

    async def connection_at(self, service_url: str) -> BrokerConnection:
        """Return a connection to the broker that another one named.

        Raises:
            ConfigError: if that is no address.
            OutcomeUnknown: if nobody answers there.
        """
        return await self._connect(parse_service_url(service_url))

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
        """Close what is open, which waits for the answers of producers, then the connections.

        Cancelled, it waits for nothing any more, and closes all the same.
        """
        try:
            for close in list(self._open.values()):
                await close()
        finally:
            for attachment in list(self._open):
                attachment.abandon()
            for connection in self._connections.values():
                connection.close()
            await self.tasks.close()


def _machine() -> Runtime:
    """The doors of this machine: a program that uses the SDK has nobody else to wire them."""
    from anabranch.runtime.real import real_runtime

    return real_runtime()
