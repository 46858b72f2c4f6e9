"""The client: an address, the connections opened for it, and the way to the owner of a topic."""

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from anabranch import limits
from anabranch.client.attachment import Attachment
from anabranch.client.brokers import Brokers
from anabranch.client.credentials import Credentials, credentials_or_certificate
from anabranch.client.letters import DeadLetters
from anabranch.client.limits import (
    CONSUMER_QUEUE_BYTES,
    CONSUMER_QUEUE_MESSAGES,
    NEGATIVE_ACK_DELAY_S,
    OPEN_TIMEOUT_S,
    PARTITIONS_REFRESH_S,
    PRODUCER_PENDING_BYTES,
    PRODUCER_PENDING_MESSAGES,
    SEND_TIMEOUT_S,
)
from anabranch.client.machine import machine
from anabranch.client.message import EARLIEST, LATEST, MessageId
from anabranch.client.open_consumers import open_consumer
from anabranch.client.partitioned_producer import PartitionedProducer
from anabranch.client.producer import TopicProducer
from anabranch.client.questions import partitions_of, schema_of
from anabranch.client.reader import Reader
from anabranch.client.roles import Consumer, Producer
from anabranch.client.routing import KeyHash, Router, Routes, Routing
from anabranch.client.settings import (
    AccessMode,
    Batching,
    ConsumerSettings,
    InitialPosition,
    ProducerSettings,
    Schema,
    SubscriptionType,
)
from anabranch.errors import InputError, OutcomeUnknown, Unreachable
from anabranch.ids import TopicName
from anabranch.runtime import Runtime
from anabranch.runtime.network import Tls
from anabranch.runtime.tasks import FailureSink, Tasks
from anabranch.telemetry import get_logger
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
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        listener_name: str | None = None,
        on_failure: FailureSink | None = None,
        open_timeout_s: float | None = OPEN_TIMEOUT_S,
    ) -> None:
        """Nothing is connected yet; see `connect`.

        Args:
            service_url: `pulsar://host:port` of any broker, or several with commas between;
                `pulsar+ssl://` for TLS.
            runtime: the doors to clock and network; those of the machine if none is given.
            credentials: who this client is, a `Token` or `Basic`.
            tls: whom to trust, and a certificate to be known by; else what the machine trusts.
            listener_name: which of their addresses brokers shall name, if they have several.
            on_failure: told when a background task fails, which is a mistake in this package.
            open_timeout_s: how long opening something may take; None for as long as it takes.

        Raises:
            ConfigError: if the address is none.
        """
        self.service_url = service_url
        self.runtime = runtime if runtime is not None else machine()
        self.brokers = Brokers(
            self.runtime.network,
            service_url,
            credentials=credentials_or_certificate(credentials, tls),
            tls=tls,
            listener_name=listener_name,
        )
        self.tasks = Tasks(on_failure or self._failed)
        self.open_timeout_s = open_timeout_s
        self._next_id = 0
        self._open: dict[Attachment, Any] = {}
        """What is open; the value knows how to close it."""

    @classmethod
    async def connect(
        cls,
        service_url: str,
        runtime: Runtime | None = None,
        *,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        listener_name: str | None = None,
        on_failure: FailureSink | None = None,
        open_timeout_s: float | None = OPEN_TIMEOUT_S,
    ) -> "Client":
        """Make a client, as the class itself does, and see whether anybody answers.

        Raises:
            Unreachable: if nobody does.
            BrokerRefused: if the broker does not want this client.
        """
        client = cls(
            service_url,
            runtime,
            credentials=credentials,
            tls=tls,
            listener_name=listener_name,
            on_failure=on_failure,
            open_timeout_s=open_timeout_s,
        )
        try:
            await client.brokers.any()
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
        chunking: bool = False,
        access_mode: AccessMode = "shared",
        routing: Routing | Router = "round_robin",
        key_hash: KeyHash = "murmur3",
        pending_messages_max: int = PRODUCER_PENDING_MESSAGES,
        pending_bytes_max: int = PRODUCER_PENDING_BYTES,
        send_timeout_s: float | None = SEND_TIMEOUT_S,
        properties: dict[str, str] | None = None,
        schema: Schema | None = None,
        initial_subscription: str = "",
    ) -> Producer:
        """Open a producer.

        Args:
            topic: a full name, or a short one such as `phrases`.
            name: unique among the topic's producers; the broker finds one if none is given.
            batching: when messages go out together; None for an entry each.
            compression: how payloads are packed; all but zlib take the extra `compression`.
            chunking: whether a message larger than an entry goes as several; without batching.
            access_mode: whether the topic is shared with others, and what is done if it is not.
            routing: of a partitioned topic, where messages without a key go: in turn, all to one
                partition, or as a function says, which is given the key and the number of them.
            key_hash: what decides the partition of a key; Java's client uses `java_string`.
            pending_messages_max: messages of a partition without an answer before senders wait.
            pending_bytes_max: the same, in bytes.
            send_timeout_s: when a message without an answer is given up; None for never.
            properties: shown in the broker's figures.
            schema: what the payloads are, for the broker to check; see `anabranch.client.schemas`.
            initial_subscription: made with the topic, if the topic is new.

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
            access_mode=access_mode,
            chunking=chunking,
            initial_subscription=initial_subscription,
        )
        where = TopicName.parse(topic)
        routes = Routes(routing, key_hash, self.runtime.entropy.below(limits.PARTITIONS_MAX))
        partitions = await partitions_of(self, where)
        if partitions:
            whole = PartitionedProducer(self, where, settings, routes)
            await whole.open(partitions)
            return whole
        producer = TopicProducer(self, where, settings)
        await self.start(producer)
        return producer

    async def consumer(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        *,
        subscription_type: SubscriptionType = "exclusive",
        initial_position: InitialPosition = "latest",
        name: str = "",
        queue_messages: int = CONSUMER_QUEUE_MESSAGES,
        queue_bytes: int = CONSUMER_QUEUE_BYTES,
        negative_ack_delay_s: float = NEGATIVE_ACK_DELAY_S,
        dead_letters: DeadLetters | None = None,
        key_ranges: Sequence[tuple[int, int]] = (),
        out_of_order: bool = False,
        priority: int = 0,
        properties: dict[str, str] | None = None,
        subscription_properties: dict[str, str] | None = None,
        schema: Schema | None = None,
        read_compacted: bool = False,
        refresh_s: float = PARTITIONS_REFRESH_S,
    ) -> Consumer:
        """Open a consumer.

        Args:
            topic: a full name, or a short one such as `phrases`; several of them; or a pattern of
                names in a namespace, such as `re.compile("public/default/orders-.*")`.
            subscription: who shares it, shares the messages.
            subscription_type: how consumers share it, as far as the broker serves the type.
            initial_position: where a new subscription begins.
            name: shown in the broker's figures.
            queue_messages: messages of a topic that may be sent ahead of `receive`.
            queue_bytes: the same in bytes, judged by the size of the messages so far.
            negative_ack_delay_s: when a refused message is asked for again.
            dead_letters: when a message is given up; opens the retry topic too.
            key_ranges: of a key_shared subscription, the hashes wanted; else a share of all.
            out_of_order: whether a key may move while messages of it are unacknowledged.
            priority: lower numbers of a shared subscription are served first.
            properties: shown in the broker's figures.
            subscription_properties: kept with a new subscription.
            schema: what the payloads are, for the broker to check; see `anabranch.client.schemas`.
            read_compacted: only the last message of every key, where the broker compacts.
            refresh_s: how often to look for new partitions, and for new topics of a pattern.

        Raises:
            BrokerRefused: if the broker does not want it.
            Unreachable: if no broker took it in time.
            InputError: if an argument is wrong.
        """
        settings = ConsumerSettings(
            subscription_type=subscription_type,
            initial_position=initial_position,
            name=name or self.runtime.entropy.token_hex(5),
            queue_messages=queue_messages,
            queue_bytes=queue_bytes,
            negative_ack_delay_s=negative_ack_delay_s,
            priority=priority,
            properties=properties,
            schema=schema,
            key_ranges=tuple(key_ranges),
            out_of_order=out_of_order,
            read_compacted=read_compacted,
            subscription_properties=subscription_properties,
            create_topic=not isinstance(topic, re.Pattern),
        )
        return await open_consumer(self, topic, subscription, settings, dead_letters, refresh_s)

    async def reader(
        self,
        topic: str,
        *,
        start: MessageId | InitialPosition = "earliest",
        inclusive: bool = False,
        name: str = "",
        queue_messages: int = CONSUMER_QUEUE_MESSAGES,
        queue_bytes: int = CONSUMER_QUEUE_BYTES,
        schema: Schema | None = None,
        read_compacted: bool = False,
    ) -> Reader:
        """Open a reader.

        Args:
            topic: a full name, or a short one such as `phrases`.
            start: the first message there is, those to come, or behind a message; of a topic with
                partitions one of the first two.
            inclusive: whether the message that `start` names is read too.
            name: shown in the broker's figures.
            queue_messages: see `consumer`.
            queue_bytes: see `consumer`.
            schema: see `consumer`.
            read_compacted: see `consumer`.

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
            read_compacted=read_compacted,
            durable=False,
        )
        reader = Reader(self, TopicName.parse(topic), settings, start=start, inclusive=inclusive)
        await reader.open()
        return reader

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it has none.

        Raises:
            BrokerRefused: if the broker does not want to say it.
            Unreachable: if nobody answered in time.
        """
        return await partitions_of(self, TopicName.parse(topic))

    async def schema(self, topic: str, version: bytes | None = None) -> Schema:
        """A version of a topic's schema, as `Message.schema_version` names it; else the newest.

        Raises:
            BrokerRefused: if there is none.
            Unreachable: if nobody answered in time.
        """
        return await schema_of(self, TopicName.parse(topic), version)

    async def start(self, attachment: Attachment) -> None:
        """Attach a producer or consumer for the first time, and close it with the rest."""
        self._open[attachment] = attachment.close
        await attachment.start()

    def forget(self, attachment: Attachment) -> None:
        """It is closed."""
        self._open.pop(attachment, None)

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
            self.brokers.close()
            await self.tasks.close()
