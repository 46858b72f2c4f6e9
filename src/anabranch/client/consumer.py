"""A consumer: a queue filled by permits, acknowledgements, and ways to have messages again."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anabranch.client.acking import Acking
from anabranch.client.attachment import Attachment
from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.client.later import Later
from anabranch.client.message import Message, MessageId
from anabranch.client.packing import messages_charged, unpack
from anabranch.client.permits import Permits
from anabranch.client.settings import (
    INITIAL_POSITIONS,
    ORDERED_TYPES,
    SUBSCRIPTION_TYPES,
    ConsumerSettings,
)
from anabranch.errors import AlreadyClosed, InputError, OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import KeySharedMeta, KeySharedMode
from anabranch.ids import TopicName, check_subscription_name
from anabranch.wire import Message as Delivered
from anabranch.wire import encode, flow, message_id, requests

if TYPE_CHECKING:
    from anabranch.client.client import Client


def last_and_mark_delete(answer: Any) -> tuple[MessageId, MessageId | None]:
    """Read the answer to a request for the last message; not every broker says the second."""
    last = MessageId.of(answer.last_message_id)
    if not answer.HasField("consumer_mark_delete_position"):
        return last, None
    return last, MessageId.of(answer.consumer_mark_delete_position)


class Consumer(Attachment):
    """Receives from one subscription. Made by `Client.consumer`."""

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
        self._again = Later()
        self._again_timer: asyncio.TimerHandle | None = None
        # Raised by every rewind; what was on its way before it is dropped. Ordered types only:
        # elsewhere the broker does not say to which rewind a message belongs.
        self._epoch = 0 if settings.subscription_type in ORDERED_TYPES else None
        self._seeking = False
        self.start_id: MessageId | None = None
        """Where it begins if it is not durable; earlier messages of that entry are passed over."""
        self.start_inclusive = True

    # --- receiving ---------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Return the next message, waiting for one. Cancelled, it takes none.

        Raises:
            AlreadyClosed: when the consumer is closed.
        """
        while not self._queue:
            await self._wait_for_messages()
        message = self._queue.popleft()
        self._permits.taken(1, message.stored_bytes)
        self._permit()
        return message

    async def receive_many(self, messages_max: int) -> list[Message]:
        """Return what is there, at least one message and at most so many."""
        if messages_max < 1:
            raise InputError(f"messages_max must be positive: {messages_max}")
        while not self._queue:
            await self._wait_for_messages()
        queue = self._queue
        taken = [queue.popleft() for _ in range(min(messages_max, len(queue)))]
        self._permits.taken(len(taken), sum(message.stored_bytes for message in taken))
        self._permit()
        return taken

    async def _wait_for_messages(self) -> None:
        self.check_open()
        self._arrived.clear()
        await self._arrived.wait()

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    @property
    def queued_messages(self) -> int:
        """How many messages are here and not received yet."""
        return len(self._queue)

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
        messages = unpack(delivered, self._topic_text)
        charged = len(messages)
        if charged != 1 or messages[0].problem is not None or delivered.ack_set:
            charged = messages_charged(delivered)
        if self.start_id is not None:
            messages = [message for message in messages if not self._is_before_start(message.id)]
        if messages and (size := messages[0].id.batch_size):
            shown = sum(1 << message.id.batch_index for message in messages)
            self._acking.batches.delivered(messages[0].id.position, size, shown)
        self._permits.arrived(
            charged, len(messages), sum(message.stored_bytes for message in messages)
        )
        self._queue.extend(messages)
        if messages:
            self._arrived.set()
        self._permit()

    def _is_before_start(self, found: MessageId) -> bool:
        start = self.start_id
        assert start is not None
        if found.position != start.position:
            return False  # the broker begins with this entry
        if found.batch_index < 0 or start.batch_index < 0:
            return not self.start_inclusive
        if found.batch_index == start.batch_index:
            return not self.start_inclusive
        return found.batch_index < start.batch_index

    def on_writable(self) -> None:
        """See `Attached.on_writable`; what a consumer writes is small."""

    # --- acknowledging and having again ------------------------------------------------------

    async def acknowledge(
        self, message: Message | MessageId, *, cumulative: bool = False, wait: bool = False
    ) -> None:
        """Say that a message is done with, or all up to it.

        Without `wait` it goes out with others within 10 ms, and may be lost with the connection:
        the message comes again. With `wait` it returns when the acknowledgement is durable.

        Raises:
            OutcomeUnknown: with `wait`, if no answer came; the message may come again.
            BrokerRefused: with `wait`, if the broker refused.
            InputError: if the subscription is shared and `cumulative` is asked for.
        """
        self.check_open()
        done = message if isinstance(message, MessageId) else message.id
        if cumulative and self._epoch is None:
            raise InputError(
                f"a {self._settings.subscription_type} subscription has no order to acknowledge by"
            )
        if len(self._again):
            self._again.drop(done)
        if wait:
            await self._acking.and_wait(done, cumulative=cumulative)
        else:
            self._acking.soon(done, cumulative=cumulative)

    def negative_acknowledge(
        self, message: Message | MessageId, *, delay_s: float | None = None
    ) -> None:
        """Have a message again later; on an ordered subscription with all unacknowledged ones."""
        self.check_open()
        if delay_s is None:
            delay_s = self._settings.negative_ack_delay_s
        refused = message if isinstance(message, MessageId) else message.id
        loop = asyncio.get_running_loop()
        self._again.add(refused, loop.time() + delay_s)
        self._watch_again(loop)

    def _watch_again(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._again_timer is not None:
            self._again_timer.cancel()
            self._again_timer = None
        if (due_s := self._again.next_s()) is not None:
            self._again_timer = loop.call_at(due_s, self._redeliver_due)

    def _redeliver_due(self) -> None:
        self._again_timer = None
        loop = asyncio.get_running_loop()
        due = self._again.take(loop.time())
        self._watch_again(loop)
        if not due:
            return
        if self._epoch is not None:
            self.redeliver()
        elif self.connection is not None:
            self._acking.send()
            again = requests.redeliver(self._id, [message_id(*position) for position in due])
            self.connection.write_soon([encode(again)])

    def redeliver(self) -> None:
        """Have everything unacknowledged again, from the oldest on."""
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
        """Move the subscription; the next message received is of the new place.

        Args:
            to: a message (`EARLIEST` and `LATEST` too), or a publish time in ms: then the first
                message published at or after it.
            inclusive: whether the message named comes too.

        Raises:
            OutcomeUnknown: if no answer came; the subscription may have moved.
            BrokerRefused: if the broker refused.
        """
        self._seeking = True
        self._drop_queue()
        self._acking.send()
        try:
            if isinstance(to, MessageId):
                where = message_id(to.ledger_id, to.entry_id, partition=to.partition)
                await self._request(lambda number: requests.seek(self._id, number, where))
            else:
                await self._request(lambda number: requests.seek_to_time(self._id, number, to))
            if self._settings.durable:  # others say where they begin before they ask
                self.start_id = to if isinstance(to, MessageId) else None
                self.start_inclusive = inclusive
            self._acking.forget()
            # Brokers close the consumers of a subscription that moves.
            while self.connection is None:
                self.check_open()
                await self._attached.wait()
        except BaseException:
            if self.connection is not None:
                self.redeliver()  # what was dropped here, if the broker did not move
            raise
        finally:
            self._seeking = False
            self._permit()

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """The last message of the topic, and up to where the subscription is acknowledged.

        Raises:
            OutcomeUnknown: if no answer came.
        """
        answer = await self._request(lambda number: requests.last_message_id(self._id, number))
        return last_and_mark_delete(answer)

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription with all it remembers, and close.

        Raises:
            OutcomeUnknown: if no answer came.
            BrokerRefused: if others are attached and `force` is not given.
        """
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
        self._permits.reset()
        begin = self.place_to_begin()
        request_id = connection.new_request_id()
        connection.consumers[self._id] = self
        wanted = requests.subscribe(
            self._topic_text,
            self.subscription,
            SUBSCRIPTION_TYPES[settings.subscription_type],
            self._id,
            request_id,
            consumer_name=self.name,
            priority_level=settings.priority,
            durable=settings.durable,
            start_message_id=message_id(begin.ledger_id, begin.entry_id) if begin else None,
            initial_position=INITIAL_POSITIONS[settings.initial_position],
            properties=settings.properties,
            schema=self._schema,
            key_shared=KeySharedMeta(keySharedMode=KeySharedMode.AUTO_SPLIT)
            if settings.subscription_type == "key_shared"
            else None,
            consumer_epoch=self._epoch,
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
        if self._again_timer is not None:
            self._again_timer.cancel()
        self._acking.forget()
        self._arrived.set()
        self._attached.set()

    async def close(self) -> None:
        """Send the acknowledgements that are gathered and close on the broker."""
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
