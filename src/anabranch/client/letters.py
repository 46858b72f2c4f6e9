"""Messages that nobody could deal with: into a retry topic, or into a dead-letter topic.

Names of topics and properties are those of Pulsar's Java client, so that its tools find them.
"""

import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.client.message import Message, MessageId
from anabranch.client.roles import Producer
from anabranch.errors import AlreadyClosed, ConfigError
from anabranch.ids import Position, TopicName

if TYPE_CHECKING:
    from anabranch.client.client import Client

_TIMES: Final = "RECONSUMETIMES"
_DELAY: Final = "DELAY_TIME"
_REAL_TOPIC: Final = "REAL_TOPIC"
_ORIGIN: Final = "ORIGIN_MESSAGE_ID"
_UNREADABLE: Final = "UNREADABLE"


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """When a message is given up, and where it goes; for shared and key_shared subscriptions."""

    redeliveries_max: int
    """How often a message may come again before it is given up."""
    topic: str = ""
    """Where it goes then; `TOPIC-SUBSCRIPTION-DLQ` if none is named."""
    retry_topic: str = ""
    """Where `reconsume_later` puts messages; `TOPIC-SUBSCRIPTION-RETRY` if none is named."""
    initial_subscription: str = ""
    """A subscription of the dead-letter topic that is made with it, so that nothing is lost."""

    def __post_init__(self) -> None:
        if self.redeliveries_max < 1:
            raise ConfigError(f"redeliveries_max must be positive: {self.redeliveries_max}")


class Letters:
    """The two topics of one subscription."""

    def __init__(
        self, client: "Client", topic: TopicName, subscription: str, settings: DeadLetters
    ) -> None:
        self._client = client
        self._settings = settings
        self.redeliveries_max = settings.redeliveries_max
        self.dead_topic = settings.topic or f"{topic}-{subscription}-DLQ"
        self.retry_topic = settings.retry_topic or f"{topic}-{subscription}-RETRY"
        self._producers: dict[str, Producer] = {}
        self._closed = False

    async def _producer(self, topic: str) -> Producer:
        if topic not in self._producers:
            subscription = self._settings.initial_subscription
            opened = await self._client.producer(
                topic,
                batching=None,
                initial_subscription=subscription if topic == self.dead_topic else "",
            )
            if self._closed or topic in self._producers:
                await opened.close()  # closed, or opened by another, meanwhile
            else:
                self._producers[topic] = opened
        if self._closed:
            raise AlreadyClosed(f"the consumer that {topic} is for is closed")
        return self._producers[topic]

    async def close(self) -> None:
        """Close the producers; what is still to be put away comes again to others."""
        self._closed = True
        opened, self._producers = self._producers, {}
        for producer in opened.values():
            await producer.close()

    async def bury(self, message: Message) -> MessageId:
        """Put a message into the dead-letter topic, as it is if it cannot be read.

        Raises as `Producer.send`.
        """
        return await self._put(self.dead_topic, message, _origin_of(message), None)

    async def put_again(
        self, message: Message, *, delay_s: float, properties: Mapping[str, str] | None
    ) -> MessageId:
        """Put a message into the retry topic, or give it up. Raises as `Producer.send`."""
        about = {**_origin_of(message), **(properties or {})}
        told = message.properties.get(_TIMES, "0")
        times = (int(told) if told.isascii() and told.isdigit() else 0) + 1
        about[_TIMES] = str(times)
        about[_DELAY] = str(round(delay_s * 1000))
        if times > self.redeliveries_max:
            return await self._put(self.dead_topic, message, about, None)
        if message.problem is not None:
            raise message.problem  # as it is, it would pass there for one that can be read
        return await self._put(self.retry_topic, message, about, delay_s)

    async def _put(
        self, topic: str, message: Message, about: Mapping[str, str], delay_s: float | None
    ) -> MessageId:
        producer = await self._producer(topic)
        try:
            return await producer.send(
                None if message.is_null else message.raw_value,
                key=_key_of(message),
                ordering_key=message.ordering_key,
                properties=about,
                event_time_ms=message.event_time_ms,
                deliver_after_s=delay_s,
            )
        except AlreadyClosed:
            if self._producers.get(topic) is producer:
                del self._producers[topic]  # it has ended for good; the next message has another
            raise


def _key_of(message: Message) -> str | bytes | None:
    if not message.has_key_of_bytes:
        return message.key
    try:
        return message.key_bytes
    except binascii.Error:
        return message.key


def _origin_of(message: Message) -> dict[str, str]:
    """The properties of a message, where it was first, and why it cannot be read."""
    about = dict(message.properties)
    about.setdefault(_REAL_TOPIC, message.topic)
    place = f"{message.id.ledger_id}:{message.id.entry_id}:{message.id.partition}"
    if message.id.batch_index >= 0:
        place += f":{message.id.batch_index}"
    about.setdefault(_ORIGIN, place)
    if message.problem is not None:
        about[_UNREADABLE] = str(message.problem)
    return about


class _WithLetters(Protocol):
    @property
    def letters(self) -> "Letters | None": ...

    async def acknowledge(self, message: Message) -> None: ...


async def reconsume_later(
    consumer: _WithLetters,
    message: Message,
    *,
    delay_s: float,
    properties: Mapping[str, str] | None,
) -> None:
    """See `Consumer.reconsume_later`."""
    if consumer.letters is None:
        raise ConfigError("there is no retry topic: open the consumer with dead_letters")
    await consumer.letters.put_again(message, delay_s=delay_s, properties=properties)
    await consumer.acknowledge(message)


class Hopeless:
    """Messages that came as often as they may, until they are acknowledged or refused. Pure."""

    def __init__(self, redeliveries_max: int) -> None:
        self._max = redeliveries_max
        self._known: dict[Position, dict[MessageId, Message]] = {}

    def look_at(self, messages: list[Message]) -> list[Message]:
        """Note those that came too often; returns those that are not even to be shown."""
        if not messages or messages[0].redelivery_count < self._max:
            return []
        self._known[messages[0].id.position] = {message.id: message for message in messages}
        return messages if messages[0].redelivery_count > self._max else []

    def drop(self, done: MessageId) -> None:
        """It was dealt with after all."""
        entry = self._known.get(done.position)
        if entry is not None:
            entry.pop(done, None)
            if not entry:
                del self._known[done.position]

    def take(self, place: Position) -> list[Message]:
        """The messages of an entry that are to be given up, and forget them."""
        return list(self._known.pop(place, {}).values())

    def clear(self) -> None:
        """Everything unacknowledged comes again."""
        self._known.clear()
