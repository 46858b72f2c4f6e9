"""A reader: the messages of a topic from a place on, without a subscription that remembers."""

from typing import TYPE_CHECKING

from anabranch.client.connection import BrokerConnection
from anabranch.client.consumer import Consumer, last_and_mark_delete
from anabranch.client.message import EARLIEST, LATEST, Message, MessageId
from anabranch.client.settings import ConsumerSettings
from anabranch.errors import AlreadyClosed
from anabranch.ids import TopicName
from anabranch.wire import encode, requests

if TYPE_CHECKING:
    from anabranch.client.client import Client


class Reader:
    """Reads one topic. Made by `Client.reader`."""

    def __init__(
        self,
        client: "Client",
        topic: TopicName,
        settings: ConsumerSettings,
        *,
        start: MessageId,
        inclusive: bool,
    ) -> None:
        name = f"reader-{client.runtime.entropy.token_hex(5)}"
        self._consumer = _Following(client, topic, name, settings, start, inclusive)

    @property
    def topic(self) -> TopicName:
        """What it reads."""
        return self._consumer.topic

    @property
    def attachment(self) -> Consumer:
        """What `Client.reader` attaches."""
        return self._consumer

    async def read_next(self) -> Message:
        """Return the next message, waiting for one. Cancelled, it takes none.

        Raises:
            AlreadyClosed: when the reader is closed.
        """
        message = await self._consumer.receive()
        self._consumer.passed(message)
        return message

    async def has_message_available(self) -> bool:
        """Whether `read_next` would return a message of those that are in the topic now.

        Raises:
            OutcomeUnknown: if the broker did not answer.
        """
        consumer = self._consumer
        if consumer.queued_messages:
            return True
        last, mark_delete = await consumer.last_message_id()
        return consumer.queued_messages > 0 or consumer.is_ahead(last, mark_delete)

    async def seek(self, to: MessageId | int, *, inclusive: bool = True) -> None:
        """Go on somewhere else: at a message, or at a publish time in ms."""
        await self._consumer.seek(to, inclusive=inclusive)

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.read_next()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Close on the broker, which forgets the reader."""
        await self._consumer.close()


class _Following(Consumer):
    """A consumer that begins behind what was read, however often it is attached."""

    def __init__(
        self,
        client: "Client",
        topic: TopicName,
        name: str,
        settings: ConsumerSettings,
        start: MessageId,
        inclusive: bool,
    ) -> None:
        super().__init__(client, topic, name, settings)
        self.start_id = start
        self.start_inclusive = inclusive
        self._sought_ms: int | None = None
        """A publish time that was sought, until it is known which place that is."""
        self._sought_on: BrokerConnection | None = None
        """The connection on which the next attachment finds the subscription moved there."""

    def passed(self, message: Message) -> None:
        """A message was read: the next attachment begins behind it."""
        self._begin_behind(message.id)
        # So that the broker's figures show how far the reader is.
        self._acking.soon(message.id, cumulative=True)

    def _begin_behind(self, place: MessageId) -> None:
        self.start_id, self.start_inclusive = place, False
        self._sought_ms = None

    async def seek(self, to: MessageId | int, *, inclusive: bool = True) -> None:
        """See `Consumer.seek`."""
        before = self.start_id, self.start_inclusive, self._sought_ms
        # Before the request: the broker closes this consumer, which then begins there.
        if isinstance(to, MessageId):
            self.start_id, self.start_inclusive, self._sought_ms = to, inclusive, None
        else:
            self.start_id, self._sought_ms, self._sought_on = None, to, self.connection
        try:
            await super().seek(to, inclusive=inclusive)
        except BaseException:
            self.start_id, self.start_inclusive, self._sought_ms = before
            raise

    async def _settle(self, connection: BrokerConnection) -> None:
        """Learn which place a time or `LATEST` is: later it would be another one."""
        request_id = connection.new_request_id()
        if self._sought_ms is not None and self._sought_on is not connection:
            # The broker has forgotten the seek with the reader. It closes this consumer now.
            again = requests.seek_to_time(self._id, request_id, self._sought_ms)
            await connection.request(request_id, [encode(again)])
            self._sought_on = connection
        elif self._sought_ms is not None or self.start_id == LATEST:
            ask = requests.last_message_id(self._id, request_id)
            _, place = last_and_mark_delete(await connection.request(request_id, [encode(ask)]))
            self._sought_on = None
            if place is not None:
                self._begin_behind(place)

    def _is_before_start(self, found: MessageId) -> bool:
        # A seek whose answer was lost may have moved the broker back; the reader was told that
        # it is where it was, and goes on there.
        start = self.start_id
        assert start is not None
        if start.position != LATEST.position and found.position < start.position:
            return True
        return super()._is_before_start(found)

    def is_ahead(self, last: MessageId, mark_delete: MessageId | None) -> bool:
        """Whether there is something between what was read and the last message."""
        if last.entry_id < 0:
            return False
        start = self.start_id
        if start is None or start.position == LATEST.position:
            return mark_delete is not None and mark_delete.position < last.position
        if start.position == EARLIEST.position:
            return True
        if start.position != last.position:
            return start.position < last.position
        if start.batch_index >= 0 and start.batch_index < last.batch_index:
            return True
        return self.start_inclusive
