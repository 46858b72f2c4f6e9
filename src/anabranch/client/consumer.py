"""A consumer: a queue filled by permits, acknowledgements, and ways to have messages again."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anabranch.client.acking import Acking
from anabranch.client.again import Again
from anabranch.client.attachment import Attachment
from anabranch.client.chunks import Assembly
from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.client.letters import Letters, reconsume_later
from anabranch.client.limits import CHUNKS_AGAIN_S
from anabranch.client.message import Message, MessageId, comes_before
from anabranch.client.packing import messages_charged, unpack
from anabranch.client.permits import Permits
from anabranch.client.settings import ORDERED_TYPES, ConsumerSettings
from anabranch.client.subscribing import Opening, last_and_mark_delete, subscribe_command
from anabranch.errors import AlreadyClosed, InputError, OutcomeUnknown
from anabranch.ids import Position, TopicName, check_subscription_name
from anabranch.telemetry import get_logger
from anabranch.wire import Message as Delivered
from anabranch.wire import encode, flow, message_id, requests

if TYPE_CHECKING:
    from anabranch.client.client import Client

_log = get_logger("client")


class TopicConsumer(Attachment):
    """Receives from a subscription of one topic that has no partitions. A `Consumer`."""

    def __init__(
        self, client: "Client", topic: TopicName, subscription: str, settings: ConsumerSettings
    ) -> None:
        super().__init__(client, topic)
        self.subscription = check_subscription_name(subscription)
        self.name = settings.name or client.runtime.entropy.token_hex(5)
        self._settings = settings
        self._schema = settings.schema.as_wire() if settings.schema is not None else None
        self._topic_text = str(topic)
        self._id = client.new_id()
        self._permits = Permits(settings.queue_messages, settings.queue_bytes)
        self._queue: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._attached = asyncio.Event()
        self._acking = Acking(self._id, lambda: self.connection)
        self._again = Again(self)
        # Raised by every rewind; what was on its way before it is dropped. Ordered types only:
        # elsewhere the broker does not say to which rewind a message belongs.
        self._epoch = 0 if settings.subscription_type in ORDERED_TYPES else None
        self._seeking = False
        self._chunks = Assembly(in_order=self._epoch is not None)
        self.letters: Letters | None = None
        self.on_arrival: Callable[[TopicConsumer], None] | None = None
        """Told when messages came, for a consumer of many topics."""
        self.on_end: Callable[[TopicConsumer, Exception], None] | None = None
        """Told when it is closed, and why."""
        self.start_id: MessageId | None = None
        """Where it begins if it is not durable; earlier messages of that entry are passed over."""
        self.start_inclusive = True

    def give_up_with(self, letters: Letters) -> None:
        """Put messages that came too often into a dead-letter topic."""
        self.letters = letters
        self._again.give_up_with(letters)

    # --- receiving ---------------------------------------------------------------------------

    async def receive(self) -> Message:
        """See `Consumer.receive`."""
        while not self._queue:
            await self._wait_for_messages()
        message = self._queue.popleft()
        self._permits.taken(1, message.stored_bytes)
        self._permit()
        return message

    async def receive_many(self, messages_max: int) -> list[Message]:
        """See `Consumer.receive_many`."""
        if messages_max < 1:
            raise InputError(f"messages_max must be positive: {messages_max}")
        while not self._queue:
            await self._wait_for_messages()
        return self.take(messages_max)

    def take(self, messages_max: int) -> list[Message]:
        """Return what is there, at most so many messages."""
        queue = self._queue
        taken = [queue.popleft() for _ in range(min(messages_max, len(queue)))]
        self._permits.taken(len(taken), sum(message.stored_bytes for message in taken))
        self._permit()
        return taken

    async def _wait_for_messages(self) -> None:
        self.check_open()
        self._arrived.clear()
        await self._arrived.wait()

    def __aiter__(self) -> "TopicConsumer":
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    @property
    def queued_messages(self) -> int:
        """See `Consumer.queued_messages`."""
        return len(self._queue)

    @property
    def is_connected(self) -> bool:
        """See `Consumer.is_connected`."""
        return self.connection is not None

    def _permit(self) -> None:
        if self.connection is not None and (count := self._permits.due()):
            self.connection.write_soon([flow(self._id, count)])

    def on_message(self, delivered: Delivered) -> None:
        """See `MessageTaker.on_message`."""
        epoch = delivered.consumer_epoch
        if self._seeking or (self._epoch is not None and epoch not in (None, self._epoch)):
            self._permits.arrived(messages_charged(delivered), 0, 0)
            self._permit()
            return
        if self._chunks.lacks_room:
            self._permits.arrived(messages_charged(delivered), 0, 0)
            return
        messages = unpack(delivered, self._topic_text, self._chunks)
        if self._chunks.has_spare:
            self._part_from_chunks(delivered)
        charged = len(messages)
        if charged != 1 or messages[0].problem is not None or delivered.ack_set:
            charged = messages_charged(delivered)
        if self.start_id is not None:
            messages = [message for message in messages if not self._is_before_start(message.id)]
        if messages and (size := messages[0].id.batch_size):
            shown = sum(1 << message.id.batch_index for message in messages)
            self._acking.batches.delivered(messages[0].id.position, size, shown)
        messages = self._again.arrived(messages)
        self._permits.arrived(
            charged, len(messages), sum(message.stored_bytes for message in messages)
        )
        self._queue.extend(messages)
        if messages:
            self._arrived.set()
            if self.on_arrival is not None:
                self.on_arrival(self)
        self._permit()

    def _part_from_chunks(self, delivered: Delivered) -> None:
        here = Position(delivered.ledger_id, delivered.entry_id)
        parted = self._chunks.parted(here, delivered.redelivery_count)
        for sentence in parted.losses:
            _log.error("message_in_chunks_lost", topic=self._topic_text, error=sentence)
        for place in parted.done:
            self._acking.soon(MessageId(*place), cumulative=False)
        self._again.refused([MessageId(*place) for place in parted.again], CHUNKS_AGAIN_S)

    def _is_before_start(self, found: MessageId) -> bool:
        assert self.start_id is not None
        return comes_before(found, self.start_id, self.start_inclusive)

    def on_writable(self) -> None:
        """See `Attached.on_writable`; what a consumer writes is small."""

    # --- acknowledging and having again ------------------------------------------------------

    async def acknowledge(
        self, message: Message | MessageId, *, cumulative: bool = False, wait: bool = False
    ) -> None:
        """See `Consumer.acknowledge`."""
        self.check_open()
        done = message if isinstance(message, MessageId) else message.id
        if cumulative and self._epoch is None:
            raise InputError(
                f"a {self._settings.subscription_type} subscription has no order to acknowledge by"
            )
        self._again.done_with(done)
        others = self._chunks.done_with(done.position, cumulative=cumulative)
        if not cumulative:
            for place in others[:-1]:  # before the last one, which stands for the message
                self._acking.soon(MessageId(*place), cumulative=False)
        if wait:
            await self._acking.and_wait(done, cumulative=cumulative)
        else:
            self._acking.soon(done, cumulative=cumulative)

    def negative_acknowledge(
        self, message: Message | MessageId, *, delay_s: float | None = None
    ) -> None:
        """See `Consumer.negative_acknowledge`."""
        self.check_open()
        if delay_s is None:
            delay_s = self._settings.negative_ack_delay_s
        refused = message if isinstance(message, MessageId) else message.id
        others = [MessageId(*place) for place in self._chunks.places(refused.position)[:-1]]
        self._again.refused([*others, refused], delay_s)

    def ask_again(self, places: list[Position]) -> None:
        """Have entries again; on an ordered subscription all that is unacknowledged."""
        if self._epoch is not None:
            self.redeliver()
        elif self.connection is not None:
            self._acking.send()
            again = requests.redeliver(self._id, [message_id(*place) for place in places])
            self.connection.write_soon([encode(again)])

    async def reconsume_later(
        self, message: Message, *, delay_s: float, properties: Mapping[str, str] | None = None
    ) -> None:
        """See `Consumer.reconsume_later`."""
        await reconsume_later(self, message, delay_s=delay_s, properties=properties)

    def redeliver(self) -> None:
        """See `Consumer.redeliver`."""
        self.check_open()
        self._drop_queue()
        if self._epoch is not None:
            self._epoch += 1
        if self.connection is not None:
            self._acking.send()
            again = requests.redeliver(self._id, consumer_epoch=self._epoch)
            self.connection.write_soon([encode(again)])
            # Only for what was dropped: the broker still counts on the rest of its permits.
            self._permit()

    def _drop_queue(self) -> None:
        self._permits.taken(self._permits.queued_messages, self._permits.queued_bytes)
        self._queue.clear()
        self._again.clear()
        self._chunks.clear()

    # --- requests ----------------------------------------------------------------------------

    async def _request(self, command: Any) -> Any:
        """Ask the broker something about this consumer; `command` is given the request's id."""
        self.check_open()
        connection = self.connection
        if connection is None:
            raise OutcomeUnknown("not connected")
        request_id = connection.new_request_id()
        return await connection.request(request_id, [encode(command(request_id))])

    async def seek(self, to: MessageId | int, *, inclusive: bool = True) -> None:
        """See `Consumer.seek`."""
        self._seeking = True
        self._drop_queue()
        self._acking.send()
        before = self.start_id, self.start_inclusive
        if self._settings.durable:  # others say where they begin before they ask
            # Before the answer: a broker may close the consumer and send again ahead of it.
            self.start_id = to if isinstance(to, MessageId) else None
            self.start_inclusive = inclusive
        try:
            if isinstance(to, MessageId):
                where = message_id(*to.first_position, partition=to.partition)
                await self._request(lambda number: requests.seek(self._id, number, where))
            else:
                await self._request(lambda number: requests.seek_to_time(self._id, number, to))
            self._acking.forget()
            # Brokers close the consumers of a subscription that moves.
            while self.connection is None:
                self.check_open()
                await self._attached.wait()
        except BaseException:
            self.start_id, self.start_inclusive = before
            if self.connection is not None:
                self.redeliver()  # what was dropped here, if the broker did not move
            raise
        finally:
            self._seeking = False
            self._permit()

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """See `Consumer.last_message_id`."""
        answer = await self._request(lambda number: requests.last_message_id(self._id, number))
        return last_and_mark_delete(answer)

    async def unsubscribe(self, *, force: bool = False) -> None:
        """See `Consumer.unsubscribe`."""
        try:
            await self._request(lambda number: requests.unsubscribe(self._id, number, force=force))
        except asyncio.CancelledError:
            self.abandon()  # the broker may have done it, and would send nothing any more
            raise
        self._acking.forget()
        self.abandon()

    # --- attaching and closing ---------------------------------------------------------------

    def on_connection_lost(self) -> None:
        """See `Attached.on_connection_lost`; what was not acknowledged comes again."""
        super().on_connection_lost()
        self._attached.clear()
        self._drop_queue()

    def detach(self, connection: BrokerConnection) -> None:
        """See `Attachment.detach`."""
        connection.consumers.pop(self._id, None)
        request_id = connection.new_request_id()
        connection.write([encode(requests.close_consumer(self._id, request_id))])

    def place_to_begin(self) -> MessageId | None:
        """Where a consumer that is not durable begins, also after a lost connection."""
        return self.start_id if not self._settings.durable else None

    async def _settle(self, connection: BrokerConnection) -> None:
        """Make sure of the place, before the first message is asked for."""

    async def attach(self, connection: BrokerConnection) -> None:
        """See `Attachment.attach`."""
        settings = self._settings
        self._drop_queue()
        self._chunks.attached()
        self._permits.reset()
        begin = self.place_to_begin()
        request_id = connection.new_request_id()
        connection.consumers[self._id] = self
        opening = Opening(self._id, request_id, begin, self._epoch)
        wanted = subscribe_command(
            settings, self._topic_text, self.subscription, self.name, self._schema, opening
        )
        try:
            await connection.request(request_id, [encode(wanted)])
            await self._settle(connection)
        except BaseException:
            # It may be open at the broker, which would send messages to nobody.
            self.detach(connection)
            raise
        if connection.closed or self._id not in connection.consumers:
            raise OutcomeUnknown("closed right after it was opened")
        if self.closed:
            self.detach(connection)
            return
        self._seeking = False
        self.connection = connection
        self._attached.set()
        self._acking.send()
        self._permit()

    def gave_up(self, error: Exception) -> None:
        """See `Attachment.gave_up`."""
        self._again.stop()
        self._acking.forget()
        self._arrived.set()
        self._attached.set()
        if self.on_end is not None:
            self.on_end(self, error)

    async def close(self) -> None:
        """See `Consumer.close`."""
        if self.closed:
            return
        self.closed = True
        try:
            self._acking.send()
            connection, self.connection = self.connection, None
            if connection is not None:
                request_id = connection.new_request_id()
                goodbye = requests.close_consumer(self._id, request_id)
                connection.consumers.pop(self._id, None)
                with suppress(OutcomeUnknown, BrokerRefused):  # it is gone either way
                    await connection.request(request_id, [encode(goodbye)])
        finally:
            self.abandon()
