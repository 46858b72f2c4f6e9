"""A producer: messages gathered into entries, sent in order, sent again in order after a loss.

The data path is plain calls: a message joins the open batch, a full batch becomes an entry, the
entry is handed to the connection, a receipt settles it. Only where there is no room is a wait.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Unpack

from anabranch.client.answers import Answer, fail_all
from anabranch.client.attachment import Attachment
from anabranch.client.chunks import SentChunks
from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.client.in_flight import InFlight, Op
from anabranch.client.limits import ENTRY_METADATA_BYTES
from anabranch.client.message import MessageId
from anabranch.client.packing import Outgoing, Packer
from anabranch.client.room import Room
from anabranch.client.send_options import SendOptions, outgoing
from anabranch.client.settings import ACCESS_MODES, ProducerSettings
from anabranch.errors import InputError, OutcomeUnknown, Terminated, Unreachable
from anabranch.generated.pulsar_api_pb2 import ServerError
from anabranch.ids import Position, TopicName
from anabranch.runtime.network import Buffer
from anabranch.wire import SendReceipt, encode, requests, send_frame
from anabranch.wire.compression import compression_number

if TYPE_CHECKING:
    from anabranch.client.client import Client

_REFUSED = frozenset(
    {ServerError.ChecksumError, ServerError.MetadataError, ServerError.NotAllowedError}
)
"""Of a send: the message was looked at and not stored. After others it is sent again."""


class TopicProducer(Attachment):
    """Publishes messages to one topic that has no partitions. A `Producer`."""

    def __init__(self, client: "Client", topic: TopicName, settings: ProducerSettings) -> None:
        super().__init__(client, topic)
        self.name = settings.name
        """Unique among the producers of the topic; the broker's choice if none was given."""
        self._settings = settings
        self._schema = settings.schema.as_wire() if settings.schema is not None else None
        self._packer = Packer(compression_number(settings.compression))
        self._may_be_larger = settings.compression != "none" or settings.chunking
        self._topic_epoch: int | None = None
        """Which owner of the topic this one is, if it has it for itself."""
        self._room = Room(settings.pending_messages_max, settings.pending_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._id = client.new_id()
        self._epoch = -1
        self.next_sequence_id = 0
        """Of the next message; after opening, above all that the broker knows of this name."""
        self._batch: list[Outgoing] = []
        self._batch_waiters: list[Answer] = []
        self._batch_bytes = 0
        self._batch_timer: asyncio.Handle | None = None
        self._in_flight: InFlight[Answer] = InFlight()
        self._expiry: asyncio.TimerHandle | None = None
        self._flushing: list[tuple[int, asyncio.Future[None]]] = []
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
        elif sequence_id < self.next_sequence_id:
            raise InputError(
                f"sequence_id {sequence_id} is not above the last one, {self.next_sequence_id - 1}"
            )
        batching = self._settings.batching
        if self._settings.chunking:
            return self._send_chunks(message, size)
        room = self.client.brokers.message_bytes_max - ENTRY_METADATA_BYTES
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
        self._send_entry(entry, message.sequence_id, message.sequence_id, [answer], size, False)
        return answer

    def _send_chunks(self, message: Outgoing, size: int) -> Answer:
        now_ms = self.client.runtime.clock.wall_ms()
        entries = self._packer.chunks(message, now_ms, self.client.brokers.message_bytes_max)
        number = message.sequence_id
        self.next_sequence_id = number + 1
        answer = self._loop.create_future()
        chunks = SentChunks(len(entries)) if len(entries) > 1 else None
        for entry in entries[:-1]:
            self._send_entry(entry, number, number, [answer], 0, False, chunks)
        self._send_entry(entries[-1], number, number, [answer], size, False, chunks)
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
        entry = self._packer.batch(messages, self.client.runtime.clock.wall_ms())
        first, last = messages[0].sequence_id, messages[-1].sequence_id
        self._send_entry(entry, first, last, waiters, size, True)

    def _send_entry(
        self,
        entry: bytes,
        first: int,
        last: int,
        waiters: list[Answer],
        size: int,
        is_batch: bool,
        chunks: SentChunks | None = None,
    ) -> None:
        timeout_s = self._settings.send_timeout_s
        self._in_flight.add(
            Op(
                entry,
                first,
                last,
                waiters,
                is_batch=is_batch,
                room_bytes=size,
                deadline_s=float("inf") if timeout_s is None else self._loop.time() + timeout_s,
                chunks=chunks,
            )
        )
        self._pump()
        self._watch_time()

    def _pump(self) -> None:
        """Hand entries to the connection while it takes them."""
        connection = self.connection
        while connection is not None and connection.writable:
            op = self._in_flight.next_to_send()
            if op is None:
                return
            connection.write_soon(self._frame(op))

    def _frame(self, op: Op[Answer]) -> list[Buffer]:
        highest = op.highest_sequence_id if op.is_batch else None
        return send_frame(
            self._id,
            op.sequence_id,
            op.count,
            op.entry,
            highest_sequence_id=highest,
            is_chunk=op.chunks is not None,
        )

    def on_writable(self) -> None:
        """See `Attached.on_writable`."""
        self._pump()

    # --- answers -----------------------------------------------------------------------------

    def on_receipt(self, receipt: SendReceipt) -> None:
        """See `ReceiptTaker.on_receipt`."""
        if self.connection is None:
            return  # of what was sent before the broker closed us; it is sent again
        op = self._in_flight.receipt(receipt.sequence_id)
        if op is None:
            return
        ledger_id, entry_id, partition = receipt.ledger_id, receipt.entry_id, self.topic.partition
        if op.chunks is not None:
            self._chunk_stored(op, op.chunks, Position(ledger_id, entry_id))
            return
        for index, answer in enumerate(op.waiters):
            if not answer.done():
                where = (index, op.count) if op.is_batch else ()
                answer.set_result(MessageId(ledger_id, entry_id, partition, *where))
        self._settled(op)

    def _chunk_stored(self, op: Op[Answer], chunks: SentChunks, place: Position) -> None:
        (answer,) = op.waiters
        if chunks.stored(place) and not answer.done():
            first = chunks.first or place
            answer.set_result(MessageId(*place, self.topic.partition, -1, 0, *first))
        self._settled(op)

    def on_send_error(self, sequence_id: int, code: int, text: str) -> None:
        """See `ReceiptTaker.on_send_error`."""
        if code == ServerError.TopicTerminatedError:
            self.end(Terminated(f"{self.topic} was ended: {text}"))
        elif code not in _REFUSED:
            # It may be stored or not; on a new connection it is sent again in its place.
            if self.connection is not None:
                self.connection.abort()
        elif (op := self._in_flight.refused(sequence_id)) is not None:
            if op.tries > 1:  # an earlier copy may be stored
                self._fail(op, OutcomeUnknown(f"sent {op.tries} times, then refused: {text}"))
            else:
                self._fail(op, BrokerRefused(code, text))

    def _settled(self, op: Op[Answer]) -> None:
        # The last chunk gives back what the message has taken.
        is_part = op.chunks is not None and op.room_bytes == 0
        self._room.give_back(0 if is_part else op.count, op.room_bytes)
        if self._flushing:
            self._wake_flushing()

    def _fail(self, op: Op[Answer], error: Exception) -> None:
        fail_all(op.waiters, error)
        self._settled(op)

    def _watch_time(self) -> None:
        """Look again when the oldest entry's time is over."""
        oldest = self._in_flight.oldest
        if self._expiry is None and oldest is not None and self._settings.send_timeout_s:
            self._expiry = self._loop.call_at(oldest.deadline_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        timeout_s = self._settings.send_timeout_s
        for op in self._in_flight.expired(self._loop.time()):
            self._fail(
                op,
                OutcomeUnknown(f"no receipt within {timeout_s:g} s; it may be stored or not")
                if op.tries
                else Unreachable(f"not sent within {timeout_s:g} s: {self._trouble}"),
            )
        self._watch_time()

    # --- flushing and closing ----------------------------------------------------------------

    async def flush(self) -> None:
        """See `Producer.flush`."""
        self._close_batch()
        if len(self._in_flight) == 0:
            return
        settled = self._loop.create_future()
        self._flushing.append((self.next_sequence_id, settled))
        await settled

    def _wake_flushing(self) -> None:
        oldest = self._in_flight.oldest
        waiting = []
        for before, settled in self._flushing:
            if oldest is not None and oldest.sequence_id < before:
                waiting.append((before, settled))
            elif not settled.done():
                settled.set_result(None)
        self._flushing = waiting

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
