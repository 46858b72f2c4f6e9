"""A producer: messages gathered into entries, which `entry_sender` sends.

The data path is plain calls: a message joins the open batch, a full batch becomes an entry, the
entry is handed to the connection, a receipt settles it. Only where there is no room is a wait.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Unpack

from anabranch.client.answers import Answer
from anabranch.client.chunks import SentChunks
from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.client.entry_sender import EntrySender
from anabranch.client.limits import ENTRY_METADATA_BYTES
from anabranch.client.message import MessageId
from anabranch.client.packing import Outgoing, PackedBatch, Packer, check_outgoing
from anabranch.client.send_options import SendOptions, outgoing
from anabranch.client.settings import ACCESS_MODES, ProducerSettings
from anabranch.errors import InputError, OutcomeUnknown
from anabranch.ids import TopicName
from anabranch.wire import encode, requests
from anabranch.wire.compression import compression_number

if TYPE_CHECKING:
    from anabranch.client.client import Client


class TopicProducer(EntrySender):
    """Publishes messages to one topic that has no partitions. A `Producer`."""

    def __init__(self, client: "Client", topic: TopicName, settings: ProducerSettings) -> None:
        super().__init__(client, topic, settings)
        self.name = settings.name
        """Unique among the producers of the topic; the broker's choice if none was given."""
        self._schema = settings.schema.as_wire() if settings.schema is not None else None
        self._packer = Packer(compression_number(settings.compression))
        self._may_be_larger = settings.compression != "none" or settings.chunking
        self._topic_epoch: int | None = None
        """Which owner of the topic this one is, if it has it for itself."""
        self._epoch = -1
        self.next_sequence_id = 0
        """Of the next message; after opening, above all that the broker knows of this name."""
        self._batch: list[Outgoing] = []
        self._batch_waiters: list[Answer] = []
        self._batch_bytes = 0
        self._batch_timer: asyncio.Handle | None = None
        self._closing = False

    @property
    def open_timeout_s(self) -> float | None:
        """See `Attachment.open_timeout_s`; who waits for a topic waits for its owner."""
        waits = self._settings.access_mode == "wait_for_exclusive"
        return None if waits else super().open_timeout_s

    # --- sending -----------------------------------------------------------------------------

    async def send(self, value: bytes | None, **about: Unpack[SendOptions]) -> MessageId:
        """See `Producer.send`."""
        return await (await self.send_soon(value, **about))

    async def send_soon(
        self, value: bytes | None, **about: Unpack[SendOptions]
    ) -> asyncio.Future[MessageId]:
        """See `Producer.send_soon`."""
        self._check_sending()
        message = outgoing(value, about, self.client.runtime.clock)
        size = message.size
        if size > self.client.brokers.message_bytes_max and not self._may_be_larger:
            self._refuse_size(size)
        if not self._room.try_take(size):
            await self._room.take(size)
        try:
            self._check_sending()
            return self._accept(message, size, about.get("sequence_id"))
        except BaseException:
            self._room.give_back(1, size)
            raise

    async def send_together(self, messages: Sequence[Outgoing]) -> asyncio.Future[MessageId]:
        """Publish messages as one batch, numbered by the caller; the future has where its entry is.

        Waits only while there is no room. What `batching` says does not count here.

        Raises:
            InputError: if one of them cannot be sent, or not with the others; none is sent.
            AlreadyClosed: if the producer is.
        """
        self._check_sending()
        size = sum(message.size for message in messages)
        if not messages or size > self.batch_bytes_max:
            raise InputError(f"no batch: {len(messages)} messages of {size} bytes")
        for message in messages:
            check_outgoing(message)
            if message.deliver_at_ms is not None:
                raise InputError("a message in a batch cannot be delivered later than the others")
        await self._room.take(size, len(messages))
        try:
            self._check_sending()
            last = self.next_sequence_id - 1
            for message in messages:
                _check_number(message.sequence_id, last)
                last = message.sequence_id
        except BaseException:
            self._room.give_back(len(messages), size)
            raise
        self._close_batch()
        self.next_sequence_id = last + 1
        answer = self._loop.create_future()
        self._send_batch(messages, [answer], size)
        return answer

    async def send_packed(self, batch: PackedBatch) -> asyncio.Future[MessageId]:
        """Publish messages that the caller has numbered and packed as one batch.

        Waits only while there is no room. What `batching` says does not count here.

        Raises:
            InputError: if it is too large, or its numbers are not above the last; none is sent.
            AlreadyClosed: if the producer is.
        """
        self._check_sending()
        if batch.messages < 1 or batch.size > self.batch_bytes_max:
            raise InputError(f"no batch: {batch.messages} messages of {batch.size} bytes")
        await self._room.take(batch.size, batch.messages)
        try:
            self._check_sending()
            _check_number(batch.first_sequence_id, self.next_sequence_id - 1)
        except BaseException:
            self._room.give_back(batch.messages, batch.size)
            raise
        self._close_batch()
        first, last = batch.first_sequence_id, batch.last_sequence_id
        self.next_sequence_id = last + 1
        answer = self._loop.create_future()
        entry = self._packer.packed(batch, self.client.runtime.clock.wall_ms())
        self._send_entry(entry, first, last, [answer], batch.size, batch.messages)
        return answer

    @property
    def batch_bytes_max(self) -> int:
        """What the messages of a batch may take, each as its `size` says."""
        return self.client.brokers.message_bytes_max - ENTRY_METADATA_BYTES

    @property
    def is_gathering(self) -> bool:
        """Whether a batch is open that the next message joins."""
        return bool(self._batch)

    def _check_sending(self) -> None:
        self.check_open()
        if self._closing:
            raise InputError(f"{self.topic} is being closed")

    def _refuse_size(self, size: int) -> None:
        # Sent all the same it would end the connection, be sent again, and so on.
        raise InputError(
            f"a message of {size} bytes is too large; "
            f"the broker takes at most {self.client.brokers.message_bytes_max}"
        )

    def _accept(self, message: Outgoing, size: int, sequence_id: int | None) -> Answer:
        if sequence_id is None:
            message = message._replace(sequence_id=self.next_sequence_id)
        else:
            _check_number(sequence_id, self.next_sequence_id - 1)
        batching = self._settings.batching
        if self._settings.chunking:
            return self._send_chunks(message, size)
        room = self.batch_bytes_max
        is_delayed = message.deliver_at_ms is not None  # of a batch, only the whole can be
        if batching is None or is_delayed or size > min(batching.bytes_max, room):
            return self._send_alone(message, size)
        if self._batch_bytes + size > min(batching.bytes_max, room):
            self._close_batch()
        answer = self._loop.create_future()
        self._batch.append(message)
        self._batch_waiters.append(answer)
        self._batch_bytes += size
        self.next_sequence_id = message.sequence_id + 1
        if len(self._batch) >= batching.messages_max:
            self._close_batch()
        elif self._batch_timer is None:
            self._batch_timer = (
                self._loop.call_later(batching.delay_s, self._close_batch)
                if batching.delay_s
                else self._loop.call_soon(self._close_batch)
            )
        return answer

    def _send_alone(self, message: Outgoing, size: int) -> Answer:
        entry = self._packer.single(message, self.client.runtime.clock.wall_ms())
        if len(entry) > self.client.brokers.message_bytes_max:
            self._refuse_size(len(entry))
        self._close_batch()
        self.next_sequence_id = message.sequence_id + 1
        answer = self._loop.create_future()
        self._send_entry(entry, message.sequence_id, message.sequence_id, [answer], size)
        return answer

    def _send_chunks(self, message: Outgoing, size: int) -> Answer:
        now_ms = self.client.runtime.clock.wall_ms()
        entries = self._packer.chunks(message, now_ms, self.client.brokers.message_bytes_max)
        number = message.sequence_id
        self.next_sequence_id = number + 1
        answer = self._loop.create_future()
        chunks = SentChunks(len(entries)) if len(entries) > 1 else None
        for entry in entries[:-1]:
            self._send_entry(entry, number, number, [answer], 0, chunks=chunks)
        self._send_entry(entries[-1], number, number, [answer], size, chunks=chunks)
        return answer

    def _close_batch(self) -> None:
        """Make the gathered messages an entry and send it."""
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        if not self._batch:
            return
        messages, waiters, size = self._batch, self._batch_waiters, self._batch_bytes
        self._batch, self._batch_waiters, self._batch_bytes = [], [], 0
        self._send_batch(messages, waiters, size)

    def _send_batch(self, messages: Sequence[Outgoing], waiters: list[Answer], size: int) -> None:
        entry = self._packer.batch(messages, self.client.runtime.clock.wall_ms())
        first, last = messages[0].sequence_id, messages[-1].sequence_id
        self._send_entry(entry, first, last, waiters, size, len(messages))

    # --- flushing and closing ----------------------------------------------------------------

    async def flush(self) -> None:
        """See `Producer.flush`."""
        self._close_batch()
        if len(self._in_flight) == 0:
            return
        await self._flushes.until(self.next_sequence_id)

    def gave_up(self, error: Exception) -> None:
        """See `Attachment.gave_up`."""
        self._close_batch()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for op in self._in_flight.give_up():
            unknown = OutcomeUnknown(f"no receipt came: {error}")
            self._fail(op, unknown if op.tries else error)
        self._room.open_up()  # whoever waits finds it closed

    async def close(self) -> None:
        """See `Producer.close`."""
        if self.closed or self._closing:
            return
        self._closing = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.send_timeout_s):
                    await self.flush()
            connection, self.connection = self.connection, None
            if connection is not None:
                request_id = connection.new_request_id()
                goodbye = requests.close_producer(self._id, request_id)
                connection.producers.pop(self._id, None)
                with suppress(OutcomeUnknown, BrokerRefused):  # it is gone either way
                    await connection.request(request_id, [encode(goodbye)])
        finally:
            self.abandon()

    # --- attaching ---------------------------------------------------------------------------

    def on_connection_lost(self) -> None:
        """See `Attached.on_connection_lost`."""
        super().on_connection_lost()
        self._in_flight.connection_lost()

    def detach(self, connection: BrokerConnection) -> None:
        """See `Attachment.detach`."""
        connection.producers.pop(self._id, None)
        request_id = connection.new_request_id()
        connection.write([encode(requests.close_producer(self._id, request_id))])

    async def attach(self, connection: BrokerConnection) -> None:
        """See `Attachment.attach`."""
        self._epoch += 1
        request_id = connection.new_request_id()
        connection.producers[self._id] = self
        wanted = requests.producer(
            str(self.topic),
            self._id,
            request_id,
            name=self.name or None,
            name_is_users=bool(self._settings.name),
            epoch=self._epoch,
            properties=self._settings.properties,
            schema=self._schema,
            access_mode=ACCESS_MODES[self._settings.access_mode],
            topic_epoch=self._topic_epoch,
            initial_subscription=self._settings.initial_subscription or None,
        )
        try:
            waits = self._settings.access_mode == "wait_for_exclusive"
            answer = await connection.request(request_id, [encode(wanted)], may_take_long=waits)
        except BaseException:
            # It may be open at the broker, and would keep its name from the next one.
            self.detach(connection)
            raise
        if connection.closed or self._id not in connection.producers:
            raise OutcomeUnknown("closed right after it was opened")
        if self.closed:
            self.detach(connection)
            return
        if self.attachments == 0:
            self.next_sequence_id = max(self.next_sequence_id, answer.last_sequence_id + 1)
        self.name = self._packer.producer_name = answer.producer_name
        self._packer.schema_version = answer.schema_version
        if answer.HasField("topic_epoch"):
            self._topic_epoch = answer.topic_epoch
        self.connection = connection
        self._pump()


def _check_number(sequence_id: int, last: int) -> None:
    if sequence_id <= last:
        raise InputError(f"sequence_id {sequence_id} is not above the last one, {last}")
