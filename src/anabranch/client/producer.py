"""A producer: entries in flight in order, sent again in order after a lost connection."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from anabranch.client.attachment import Attachment
from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.errors import AlreadyClosed, InputError, OutcomeUnknown, ProtocolError
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.ids import Position, TopicName
from anabranch.wire import SendReceipt, build_entry, encode, requests, send_frame

if TYPE_CHECKING:
    from anabranch.client.client import Client


class _InFlight(NamedTuple):
    sequence_id: int
    entry: bytes
    receipt: asyncio.Future[Position]


class Producer(Attachment):
    """Publishes messages to one topic."""

    def __init__(
        self, client: "Client", topic: TopicName, *, name: str, in_flight_max: int
    ) -> None:
        super().__init__(client, topic)
        self.name = name
        self._named_by_user = bool(name)
        self._id = client.new_id()
        self._epoch = -1
        self._next_sequence_id = 0
        self._in_flight: deque[_InFlight] = deque()
        self._room = asyncio.Semaphore(in_flight_max)

    async def send(self, payload: bytes, *, key: str | None = None) -> Position:
        """Publish one message and return where it is stored.

        Raises:
            OutcomeUnknown: if the producer was closed before the answer came.
            BrokerRefused: if the broker refused this message.
        """
        return await (await self.send_soon(payload, key=key))

    async def send_soon(
        self, payload: bytes, *, key: str | None = None
    ) -> asyncio.Future[Position]:
        """Publish one message; the future has the answer. Waits only while too many are open.

        Raises:
            InputError: if the broker takes no message of this size.
        """
        self.check_open()
        await self._room.acquire()
        if self.closed:
            self._room.release()
            raise AlreadyClosed(f"closed: {self.topic}")
        sequence_id = self._next_sequence_id
        metadata = MessageMetadata(
            producer_name=self.name,
            sequence_id=sequence_id,
            publish_time=self.client.runtime.clock.wall_ms(),
        )
        if key is not None:
            metadata.partition_key = key
        size = metadata.ByteSize() + len(payload)
        if size > self.client.message_bytes_max:
            # Sent all the same it would end the connection, be sent again, and so on.
            self._room.release()
            raise InputError(
                f"a message of {size} bytes is too large; "
                f"the broker takes at most {self.client.message_bytes_max}"
            )
        self._next_sequence_id += 1
        receipt: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        receipt.add_done_callback(self._answered)
        op = _InFlight(sequence_id, build_entry(metadata, payload), receipt)
        self._in_flight.append(op)
        if self.connection is not None:
            self.connection.write(send_frame(self._id, sequence_id, 1, op.entry))
        return receipt

    def _answered(self, receipt: asyncio.Future[Position]) -> None:
        self._room.release()
        if not receipt.cancelled():
            receipt.exception()  # a caller who does not look is not an error of the loop

    async def attach(self, connection: BrokerConnection) -> None:
        """See `Attachment.attach`."""
        self._epoch += 1
        request_id = connection.new_request_id()
        connection.producers[self._id] = self
        try:
            answer = await connection.request(
                request_id,
                [
                    encode(
                        requests.producer(
                            str(self.topic),
                            self._id,
                            request_id,
                            name=self.name or None,
                            name_is_users=self._named_by_user,
                            epoch=self._epoch,
                        )
                    )
                ],
            )
        except BaseException:
            connection.producers.pop(self._id, None)
            raise
        if connection.closed or self._id not in connection.producers:
            raise OutcomeUnknown("closed right after it was opened")
        if self.closed:
            del connection.producers[self._id]
            request_id = connection.new_request_id()
            connection.write([encode(requests.close_producer(self._id, request_id))])
            return
        self.name = answer.producer_name
        self.connection = connection
        for op in self._in_flight:
            connection.write(send_frame(self._id, op.sequence_id, 1, op.entry))

    def on_receipt(self, receipt: SendReceipt) -> None:
        """See `ReceiptTaker.on_receipt`."""
        if self.connection is None:
            return  # of what was sent before the broker closed us; it is sent again
        if not self._in_flight or receipt.sequence_id < self._in_flight[0].sequence_id:
            return  # of an entry that was sent twice and answered before
        op = self._in_flight[0]
        if op.sequence_id != receipt.sequence_id:
            raise ProtocolError(
                f"receipt of {receipt.sequence_id} came before the one of {op.sequence_id}"
            )
        self._in_flight.popleft()
        if not op.receipt.done():
            op.receipt.set_result(Position(receipt.ledger_id, receipt.entry_id))

    def on_send_error(self, sequence_id: int, code: int, text: str) -> None:
        """See `ReceiptTaker.on_send_error`."""
        # A refusal is immediate and overtakes the receipts of what was sent before.
        for op in self._in_flight:
            if op.sequence_id == sequence_id:
                self._in_flight.remove(op)
                if not op.receipt.done():
                    op.receipt.set_exception(BrokerRefused(code, text))
                return

    def gave_up(self, error: Exception) -> None:
        """See `Attachment.gave_up`."""
        while self._in_flight:
            op = self._in_flight.popleft()
            if not op.receipt.done():
                op.receipt.set_exception(OutcomeUnknown(str(error)))

    async def close(self) -> None:
        """Close on the broker; what is unanswered then has an unknown outcome."""
        if self.closed:
            return
        self.closed = True
        connection, self.connection = self.connection, None
        if connection is not None:
            request_id = connection.new_request_id()
            with suppress(OutcomeUnknown, BrokerRefused):  # it is gone either way
                await connection.request(
                    request_id, [encode(requests.close_producer(self._id, request_id))]
                )
            connection.producers.pop(self._id, None)
        self.let_go()
        self.gave_up(OutcomeUnknown("the producer was closed"))
