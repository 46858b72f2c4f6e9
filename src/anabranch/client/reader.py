"""A reader: the messages of a topic from a place on, without a subscription that remembers."""

from typing import TYPE_CHECKING

from anabranch.client.connection import BrokerConnection
from anabranch.client.consumer import TopicConsumer
from anabranch.client.many_topics import ManyTopics
from anabranch.client.message import EARLIEST, LATEST, Message, MessageId
from anabranch.client.questions import partition_of, partitions_of
from anabranch.client.settings import ConsumerSettings
from anabranch.client.subscribing import last_and_mark_delete
from anabranch.errors import AlreadyClosed, InputError
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
        self.topic = topic
        self._client = client
        name = f"reader-{client.runtime.entropy.token_hex(5)}"
        self.parts: list[Following] = []
        """What reads: one for each partition, or one for all of a topic without."""
        self._source: Following | ManyTopics | None = None
        self._name = name

        def make(part: TopicName) -> Following:
            made = Following(client, part, name, settings, start, inclusive)
            self.parts.append(made)
            return made

        self._make = make
        self._start = start

    async def open(self) -> None:
        """Attach it; what `Client.reader` does. Raises as that."""
        count = await partitions_of(self._client, self.topic)
        if not count:
            self._source = self._make(self.topic)
            await self._client.start(self._source)
            return
        if self._start not in (EARLIEST, LATEST):
            raise InputError(f"{self.topic} has partitions: start with earliest or latest")
        self._source = ManyTopics(self._client, self._name, self._name, self._make)
        await self._source.add([partition_of(self.topic, index) for index in range(count)])

    def _opened(self) -> "Following | ManyTopics":
        assert self._source is not None, "made by Client.reader, which opens it"
        return self._source

    async def read_next(self) -> Message:
        """Return the next message, waiting for one. Cancelled, it takes none.

        Messages of a partition come in order.

        Raises:
            AlreadyClosed: when the reader is closed.
        """
        message = await self._opened().receive()
        part = self.parts[0] if len(self.parts) == 1 else self._part_of(message)
        part.passed(message)
        return message

    def _part_of(self, message: Message) -> "Following":
        return next(part for part in self.parts if str(part.topic) == message.topic)

    async def has_message_available(self) -> bool:
        """Whether `read_next` would return a message of those that are in the topic now.

        Raises:
            OutcomeUnknown: if the broker did not answer.
        """
        for part in self.parts:
            if part.queued_messages:
                return True
            last, mark_delete = await part.last_message_id()
            if part.queued_messages or part.is_ahead(last, mark_delete):
                return True
        return False

    async def seek(self, to: MessageId | int, *, inclusive: bool = True) -> None:
        """Go on somewhere else: at a message, or at a publish time in ms."""
        await self._opened().seek(to, inclusive=inclusive)

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.read_next()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Close on the broker, which forgets the reader."""
        await self._opened().close()


class Following(TopicConsumer):
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
        self._chunks.done_with(message.id.position, cumulative=True)

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
