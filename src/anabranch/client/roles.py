"""What programs hold, producers and consumers: the same calls for one topic and for many."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from anabranch.client.message import Message, MessageId
from anabranch.ids import TopicName


class Producer(Protocol):
    """Publishes messages to a topic, partitioned or not. Made by `Client.producer`."""

    @property
    def topic(self) -> TopicName:
        """Where to."""
        ...

    @property
    def name(self) -> str:
        """Unique among the producers of the topic; the broker's choice if none was given."""
        ...

    @property
    def attachments(self) -> int:
        """How often a broker took it; more than one per partition after losses."""
        ...

    @property
    def next_sequence_id(self) -> int:
        """What the next message gets, or the least it may be given.

        Above all that the broker has of a producer of this name, where it looks for duplicates.
        """
        ...

    async def send(
        self,
        value: bytes | None,
        *,
        key: str | bytes | None = None,
        ordering_key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        sequence_id: int | None = None,
        deliver_at_ms: int | None = None,
        deliver_after_s: float | None = None,
    ) -> MessageId:
        """Publish one message and return where it is stored. See `send_soon`.

        Raises:
            OutcomeUnknown: if no answer came in time; the message may be stored or not.
            Unreachable: if it could not even be sent in time; it is not stored.
            BrokerRefused: if the broker refused this message.
            Terminated: if the topic was ended.
        """
        ...

    async def send_soon(
        self,
        value: bytes | None,
        *,
        key: str | bytes | None = None,
        ordering_key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        sequence_id: int | None = None,
        deliver_at_ms: int | None = None,
        deliver_after_s: float | None = None,
    ) -> asyncio.Future[MessageId]:
        """Publish one message; the future has the answer. Waits only while there is no room.

        Messages of a partition are stored in the order of these calls. Cancelled while it waits
        for room, nothing was sent; cancelling the future does not take the message back.

        Args:
            value: the payload; None says that the key has no value any more.
            key: decides the partition and the consumer, and what compaction keeps.
            ordering_key: decides the consumer instead of the key.
            properties: travel beside the payload.
            event_time_ms: what the application calls the time of the message.
            sequence_id: a number above all before; else the next one.
            deliver_at_ms: not before this time to shared subscriptions.
            deliver_after_s: the same, counted from now.

        Raises:
            InputError: if the message cannot be sent; it is not.
            AlreadyClosed: if the producer is.
        """
        ...

    async def flush(self) -> None:
        """Send what is gathered and wait until everything sent so far is answered.

        Returns also if an answer was a refusal or a time-out: the futures tell.
        """
        ...

    async def close(self) -> None:
        """Wait for the answers that are still open, then close on the broker.

        What is unanswered when the time-out of sends has passed has an unknown outcome.
        """
        ...


class Consumer(Protocol):
    """Receives from a subscription of one topic or of many. Made by `Client.consumer`."""

    @property
    def subscription(self) -> str:
        """Who shares it, shares the messages."""
        ...

    @property
    def name(self) -> str:
        """Shown in the broker's figures."""
        ...

    @property
    def attachments(self) -> int:
        """How often a broker took it; more than one per topic after losses."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether all of its topics are attached now."""
        ...

    @property
    def queued_messages(self) -> int:
        """How many messages are here and not received yet."""
        ...

    async def receive(self) -> Message:
        """Return the next message, waiting for one. Cancelled, it takes none.

        Raises:
            AlreadyClosed: when the consumer is closed.
        """
        ...

    async def receive_many(self, messages_max: int) -> list[Message]:
        """Return what is there, at least one message and at most so many."""
        ...

    def __aiter__(self) -> "Consumer":
        """Receive until it is closed."""
        ...

    async def __anext__(self) -> Message:
        """Return the next message."""
        ...

    async def acknowledge(
        self, message: Message | MessageId, *, cumulative: bool = False, wait: bool = False
    ) -> None:
        """Say that a message is done with, or all up to it in its topic.

        Without `wait` it goes out with others within 10 ms, and may be lost with the connection:
        the message comes again. With `wait` it returns when the acknowledgement is durable.

        Raises:
            OutcomeUnknown: with `wait`, if no answer came; the message may come again.
            BrokerRefused: with `wait`, if the broker refused.
            InputError: if the subscription is shared and `cumulative` is asked for, or if the
                consumer has many topics and the id does not say which.
        """
        ...

    def negative_acknowledge(
        self, message: Message | MessageId, *, delay_s: float | None = None
    ) -> None:
        """Have a message again later; on an ordered subscription with all unacknowledged ones."""
        ...

    async def reconsume_later(
        self,
        message: Message,
        *,
        delay_s: float,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Put a message into the retry topic, to come again after a while, and be done with it.

        After too many times it goes to the dead-letter topic. Properties are added to its own.

        Raises:
            ConfigError: if the consumer was opened without a retry topic.
            OutcomeUnknown: if it is not known whether it was put there; it comes again.
        """
        ...

    def redeliver(self) -> None:
        """Have everything unacknowledged again, from the oldest on."""
        ...

    async def seek(self, to: MessageId | int, *, inclusive: bool = True) -> None:
        """Move the subscription; the next message received is of the new place.

        Args:
            to: a message (`EARLIEST` and `LATEST` too), or a publish time in ms: then the first
                message published at or after it.
            inclusive: whether the message named comes too.

        Raises:
            OutcomeUnknown: if no answer came; the subscription may have moved.
            BrokerRefused: if the broker refused.
        """
        ...

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """The last message of the topic, and up to where the subscription is acknowledged.

        Raises:
            OutcomeUnknown: if no answer came.
            InputError: if the consumer has many topics.
        """
        ...

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription with all it remembers, and close.

        Raises:
            OutcomeUnknown: if no answer came.
            BrokerRefused: if others are attached and `force` is not given.
        """
        ...

    async def close(self) -> None:
        """Send the acknowledgements that are gathered and close on the broker."""
        ...
