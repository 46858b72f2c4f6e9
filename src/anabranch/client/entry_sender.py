"""The entries of a producer: sent in order, in order once more after a loss, until answered."""

import asyncio
from typing import TYPE_CHECKING

from anabranch.client.answers import Answer, fail_all
from anabranch.client.attachment import Attachment
from anabranch.client.chunks import SentChunks
from anabranch.client.connection import BrokerRefused
from anabranch.client.flushes import Flushes
from anabranch.client.in_flight import InFlight, Op
from anabranch.client.message import MessageId
from anabranch.client.room import Room
from anabranch.client.settings import ProducerSettings
from anabranch.errors import OutcomeUnknown, Terminated, Unreachable
from anabranch.generated.pulsar_api_pb2 import ServerError
from anabranch.ids import Position, TopicName
from anabranch.runtime.network import Buffer
from anabranch.wire import SendReceipt, send_frame

if TYPE_CHECKING:
    from anabranch.client.client import Client

_REFUSED = frozenset(
    {ServerError.ChecksumError, ServerError.MetadataError, ServerError.NotAllowedError}
)
"""Of a send: the message was looked at and not stored. After others it is sent again."""


class EntrySender(Attachment):
    """The part of a producer that knows entries and no messages."""

    def __init__(self, client: "Client", topic: TopicName, settings: ProducerSettings) -> None:
        super().__init__(client, topic)
        self._settings = settings
        self._room = Room(settings.pending_messages_max, settings.pending_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._id = client.new_id()
        self._in_flight: InFlight[Answer] = InFlight()
        self._expiry: asyncio.TimerHandle | None = None
        self._flushes = Flushes()

    def _send_entry(
        self,
        entry: bytes,
        first: int,
        last: int,
        waiters: list[Answer],
        size: int,
        batched: int = 0,
        chunks: SentChunks | None = None,
    ) -> None:
        """Send an entry of one message, or of a batch of so many."""
        timeout_s = self._settings.send_timeout_s
        self._in_flight.add(
            Op(
                entry,
                first,
                last,
                waiters,
                is_batch=batched > 0,
                count=batched or 1,
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
        oldest = self._in_flight.oldest
        self._flushes.answered(None if oldest is None else oldest.sequence_id)

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
