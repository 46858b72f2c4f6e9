"""A consumer of many topics: one per topic or partition, and messages from them in turn."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anabranch.client.consumer import TopicConsumer
from anabranch.client.letters import Letters, reconsume_later
from anabranch.client.limits import TOPICS_PER_CONSUMER_MAX
from anabranch.client.message import EARLIEST, LATEST, Message, MessageId
from anabranch.client.opening import open_together
from anabranch.errors import AlreadyClosed, AnabranchError, InputError
from anabranch.ids import TopicName

if TYPE_CHECKING:
    from anabranch.client.client import Client


class ManyTopics:
    """Receives from the same subscription of many topics. Most of a `Consumer`."""

    def __init__(
        self,
        client: "Client",
        subscription: str,
        name: str,
        make: Callable[[TopicName], TopicConsumer],
    ) -> None:
        self.subscription = subscription
        self.name = name
        self._client = client
        self._make = make
        self._topics: dict[str, TopicConsumer] = {}
        self._ready: deque[TopicConsumer] = deque()
        """Those with messages, whose turn it is."""
        self._is_ready: dict[TopicConsumer, None] = {}
        self._arrived = asyncio.Event()
        self._trouble: Exception | None = None
        self.closed = False
        self.letters: Letters | None = None

    # --- topics ------------------------------------------------------------------------------

    async def add(self, topics: Sequence[TopicName]) -> None:
        """Receive from more topics; from all of them or, if that fails, from none.

        Raises:
            BrokerRefused: if a broker does not want one of them.
            Unreachable: if no broker took one of them in time.
            InputError: if there would be too many.
        """
        fresh = [self._make(topic) for topic in topics if str(topic) not in self._topics]
        if len(fresh) + len(self._topics) > TOPICS_PER_CONSUMER_MAX:
            raise InputError(f"a consumer has at most {TOPICS_PER_CONSUMER_MAX} topics")
        for each in fresh:
            each.on_arrival = self._has_messages
        await open_together(self._client, fresh)
        for each in fresh:
            each.on_end = self._ended
            self._topics[str(each.topic)] = each
            if each.queued_messages:
                self._has_messages(each)

    async def add_those_that_open(self, topics: Sequence[TopicName]) -> list[AnabranchError]:
        """Receive from more topics, each for itself; returns what was in the way of the others."""
        fresh = [topic for topic in topics if str(topic) not in self._topics]
        room = TOPICS_PER_CONSUMER_MAX - len(self._topics)
        problems: list[AnabranchError] = []
        if len(fresh) > room:
            problems.append(InputError(f"a consumer has at most {TOPICS_PER_CONSUMER_MAX} topics"))
        adding = (self.add([topic]) for topic in fresh[:room])
        for result in await asyncio.gather(*adding, return_exceptions=True):
            if isinstance(result, AnabranchError):
                problems.append(result)
            elif result is not None:
                raise result
        return problems

    async def remove(self, topic: TopicName) -> None:
        """Receive from a topic no more."""
        if (gone := self._topics.pop(str(topic), None)) is not None:
            gone.on_end = None
            await gone.close()

    @property
    def topics(self) -> list[str]:
        """Where it receives from, partitions by their own names."""
        return sorted(self._topics)

    def _has_messages(self, consumer: TopicConsumer) -> None:
        if consumer not in self._is_ready:
            self._is_ready[consumer] = None
            self._ready.append(consumer)
            self._arrived.set()

    def _ended(self, consumer: TopicConsumer, error: Exception) -> None:
        self._topics.pop(str(consumer.topic), None)
        self._trouble = error
        if not self._topics:
            self.closed = True
            self._arrived.set()

    @property
    def attachments(self) -> int:
        """See `Consumer.attachments`."""
        return sum(each.attachments for each in self._topics.values())

    @property
    def is_connected(self) -> bool:
        """See `Consumer.is_connected`."""
        return all(each.is_connected for each in self._topics.values())

    @property
    def queued_messages(self) -> int:
        """See `Consumer.queued_messages`."""
        return sum(each.queued_messages for each in self._topics.values())

    # --- receiving ---------------------------------------------------------------------------

    async def receive(self) -> Message:
        """See `Consumer.receive`."""
        (message,) = await self.receive_many(1)
        return message

    async def receive_many(self, messages_max: int) -> list[Message]:
        """See `Consumer.receive_many`; those of one call are of one topic."""
        if messages_max < 1:
            raise InputError(f"messages_max must be positive: {messages_max}")
        while True:
            while self._ready:
                consumer = self._ready.popleft()
                del self._is_ready[consumer]
                taken = consumer.take(messages_max)
                if consumer.queued_messages:
                    self._has_messages(consumer)
                if taken:
                    return taken
            self.check_open()
            self._arrived.clear()
            await self._arrived.wait()

    def __aiter__(self) -> "ManyTopics":
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    def check_open(self) -> None:
        """Raise AlreadyClosed if it is."""
        if self.closed:
            why = f": {self._trouble}" if self._trouble is not None else ""
            raise AlreadyClosed(f"{self.subscription} is closed{why}") from self._trouble

    # --- acknowledging and having again ------------------------------------------------------

    def topic_of(self, message: Message | MessageId) -> TopicConsumer:
        """The consumer of the topic that a message is of.

        Raises:
            InputError: if it is of none of them, or does not say.
        """
        self.check_open()
        if isinstance(message, Message):
            found = self._topics.get(message.topic)
        else:
            known = [
                each for each in self._topics.values() if each.topic.partition == message.partition
            ]
            found = known[0] if len(known) == 1 else None
        if found is None:
            raise InputError(
                f"{message!r} does not say which of {len(self._topics)} topics it is of: "
                "give the message itself"
            )
        return found

    async def acknowledge(
        self, message: Message | MessageId, *, cumulative: bool = False, wait: bool = False
    ) -> None:
        """See `Consumer.acknowledge`."""
        await self.topic_of(message).acknowledge(message, cumulative=cumulative, wait=wait)

    def negative_acknowledge(
        self, message: Message | MessageId, *, delay_s: float | None = None
    ) -> None:
        """See `Consumer.negative_acknowledge`."""
        self.topic_of(message).negative_acknowledge(message, delay_s=delay_s)

    async def reconsume_later(
        self, message: Message, *, delay_s: float, properties: Mapping[str, str] | None = None
    ) -> None:
        """See `Consumer.reconsume_later`."""
        await reconsume_later(self, message, delay_s=delay_s, properties=properties)

    def redeliver(self) -> None:
        """See `Consumer.redeliver`."""
        self.check_open()
        for each in self._topics.values():
            each.redeliver()

    # --- requests ----------------------------------------------------------------------------

    async def seek(self, to: MessageId | int, *, inclusive: bool = True) -> None:
        """See `Consumer.seek`; a message moves the subscription in its own partition alone."""
        self.check_open()
        if isinstance(to, MessageId) and to not in (EARLIEST, LATEST):
            await self.topic_of(to).seek(to, inclusive=inclusive)
            return
        await asyncio.gather(
            *(each.seek(to, inclusive=inclusive) for each in self._topics.values())
        )

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """See `Consumer.last_message_id`."""
        if len(self._topics) != 1:
            raise InputError(f"{len(self._topics)} topics have no last message together")
        (only,) = self._topics.values()
        return await only.last_message_id()

    async def unsubscribe(self, *, force: bool = False) -> None:
        """See `Consumer.unsubscribe`."""
        await self._end([each.unsubscribe(force=force) for each in self._topics.values()])

    async def close(self) -> None:
        """See `Consumer.close`."""
        await self._end([each.close() for each in self._topics.values()])

    async def _end(self, endings: "list[Coroutine[Any, Any, None]]") -> None:
        self.closed = True
        try:
            results = await asyncio.gather(*endings, return_exceptions=True)
        finally:
            self._arrived.set()
            for each in list(self._topics.values()):
                with suppress(AlreadyClosed):
                    each.abandon()
            if self.letters is not None:
                await self.letters.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result
