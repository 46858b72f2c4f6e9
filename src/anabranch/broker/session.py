"""One client connection: handshake, keep-alive, and the data path of its producers and consumers.

The data path is plain calls: bytes in, entries appended, receipts gathered and written once per
turn of the loop. Requests that need metadata or storage are served by `requests.py`.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.broker import requests
from anabranch.broker.access import Access
from anabranch.broker.acknowledging import serve_ack
from anabranch.broker.claims import Claim, withdraw_all
from anabranch.broker.consumer import Consumer
from anabranch.broker.limits import HANDSHAKE_FRAME_BYTES_MAX, REQUESTS_PER_CONNECTION_MAX
from anabranch.broker.liveness import KeepAlive
from anabranch.broker.policies.publishing import why_refused
from anabranch.broker.producer import Producer
from anabranch.broker.publish_latency import Done
from anabranch.broker.refusals import sayable
from anabranch.broker.refused_sends import not_stored, refuse_send
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.broker.unloading import hint
from anabranch.errors import InputError, ProtocolError
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import Position
from anabranch.runtime.network import Buffer, Connection
from anabranch.telemetry import get_logger
from anabranch.wire import (
    Ack,
    Command,
    Decoder,
    Flow,
    Send,
    ServerError,
    encode,
    replies,
    send_receipt,
    verify_checksum,
)

if TYPE_CHECKING:
    from anabranch.broker.broker import Broker


class Session:
    """What the broker keeps for one connection. A `ConnectionHandler`."""

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        self.producers: dict[int, tuple[Producer, Topic]] = {}
        self.consumers: dict[int, tuple[Consumer, Subscription, Topic]] = {}
        self.creating: dict[tuple[str, int], Claim] = {}
        """Producers and consumers being opened; whoever finds another token here was overtaken."""
        self.host = self.peer = "?"
        self.client_version = ""
        self.access = Access(self)
        self.closed = False
        self.writable = True
        self.messages_out = 0
        self._connection: Connection | None = None
        self._decoder = Decoder(frame_bytes_max=HANDSHAKE_FRAME_BYTES_MAX)
        self._entry_bytes_max = broker.settings.message_bytes_max + limits.ENTRY_OVERHEAD_BYTES
        self.is_connected = False
        self._out: list[Buffer] = []
        self._flush_scheduled = False
        self._requests = 0
        self.pending_publishes = 0
        self._pending_bytes = 0
        self._pressure = broker.pressure
        self.waits = False
        self.reading_paused = False
        self._closed_by_us: set[int] = set()
        self._life = KeepAlive(self, broker.settings.keep_alive_interval_s)
        self._cut_off: asyncio.TimerHandle | None = None
        self._log = get_logger("session")

    # --- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self._connection = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.host, self.peer = peer[0], f"{peer[0]}:{peer[1]}"
        self.access.certificate = transport.get_extra_info("peercert")
        self._log = self._log.bind(peer=self.peer)
        self.broker.welcome(self)
        self._life.begin()

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        self._life.heard()
        broken: ProtocolError | None = None
        try:
            commands = self._decoder.feed(data)
        except ProtocolError as error:
            commands, broken = list(error.decoded), error
        try:
            for command in commands:
                if self.closed:
                    return
                self._serve(command)
        except ProtocolError as error:
            broken = error
        except Exception as error:  # noqa: BLE001 - shown, counted, and given up on
            self.broker.mishaps.met_by(self, command, error)
        if broken is not None:
            self.refuse_connection(str(broken))

    def eof_received(self) -> bool | None:
        """See `ConnectionHandler.eof_received`."""
        return False

    def connection_lost(self, exc: Exception | None, /) -> None:
        """See `ConnectionHandler.connection_lost`."""
        if self._cut_off is not None:
            self._cut_off.cancel()
        self._detach()
        self.broker.forget(self)

    def _detach(self) -> None:
        """Let go of everything that is kept for the peer; what it held goes to others."""
        self.closed = True
        self.writable = False
        withdraw_all(self)
        self._life.end()
        for producer, topic in self.producers.values():
            topic.remove_producer(producer)
        self.producers.clear()
        consumers = list(self.consumers.values())
        self.consumers.clear()
        for consumer, subscription, _ in consumers:
            subscription.remove_consumer(consumer)

    def pause_writing(self) -> None:
        """See `ConnectionHandler.pause_writing`.

        Whoever does not take answers gets no more of them: their requests wait in their socket.
        """
        self.writable = False
        self.hold_back()

    def resume_writing(self) -> None:
        """See `ConnectionHandler.resume_writing`."""
        if self.closed:
            return
        self.writable = True
        self._life.heard()
        for _, subscription, _ in list(self.consumers.values()):
            subscription.wake()
        if self.reading_paused:
            self.resume_reading()

    def write_out(self, parts: list[Buffer]) -> None:
        """Queue buffers; everything of one turn of the loop goes out with one call."""
        self._out += parts
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush)

    def reply(self, command: BaseCommand) -> None:
        """Queue a command."""
        self.write_out([encode(command)])

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._out and not self.closed and self._connection is not None:
            out, self._out = self._out, []
            self._connection.writelines(out)

    def refuse_connection(self, reason: str, code: ServerError = ServerError.UnknownError) -> None:
        """Close a connection whose peer broke the protocol, and tell it; the process goes on."""
        self._log.warning("connection_refused", reason=reason)
        if not self.closed:
            self.reply(replies.handshake_error(code, sayable(reason)))
        self.close()

    def close(self) -> None:
        """Send what is queued and close; a peer that does not take it is cut off in the end."""
        if self.closed:
            return
        self._flush()
        # At once: a peer that does not read may keep the connection for long.
        self._detach()
        if self._connection is not None:
            self._connection.close()
            self._cut_off = self.loop.call_later(limits.CLOSE_DRAIN_S_MAX, self._connection.abort)

    async def is_alive(self) -> bool:
        """Ask the peer for a sign of life; without one in time the connection is cut."""
        return await self._life.is_alive()

    def unread_bytes(self) -> int:
        """Bytes that were sent and are not taken by the peer."""
        return 0 if self._connection is None else self._connection.get_write_buffer_size()

    def cut(self) -> None:
        """End the connection at once; its peer is gone."""
        if self._connection is not None:
            self._connection.abort()

    # --- commands ----------------------------------------------------------------------------

    def _serve(self, command: Command) -> None:
        kind = type(command)
        if not self.is_connected:
            self._handshake(command)
        elif kind is Send:
            self._on_send(command)  # type: ignore[arg-type]
        elif kind is Ack:
            serve_ack(self, command)  # type: ignore[arg-type]
        elif kind is Flow:
            self._on_flow(command)  # type: ignore[arg-type]
        elif isinstance(command, BaseCommand):
            requests.serve(self, command)
        else:
            raise ProtocolError(f"{kind.__name__} is not for a client to send")

    def _handshake(self, command: Command) -> None:
        requests.shake_hands(self, command)
        self.is_connected = not self.closed
        self._decoder.frame_bytes_max = self.broker.settings.frame_bytes_max
        self._life.begin()
        self._log = self._log.bind(client=self.client_version)

    def _on_send(self, send: Send) -> None:
        producer_id = send.producer_id
        opened = self.producers.get(producer_id)
        if opened is None:
            if producer_id not in self._closed_by_us:
                raise ProtocolError(f"SEND for producer {producer_id}, which is not open here")
            return  # was on its way when we closed the producer; the client sends it again
        producer, topic = opened
        entry = send.entry
        size = len(entry)
        if (
            send.txn is not None
            or topic.judges_messages
            or size > self._entry_bytes_max
            or size > topic.entry_bytes_max
        ):
            refusal = why_refused(topic, send, self._entry_bytes_max)
            if refusal is not None:
                refuse_send(self, producer, send, *refusal)
                return
        if not verify_checksum(entry):
            refuse_send(self, producer, send, ServerError.ChecksumError, "checksum does not match")
            return
        self.pending_publishes += 1
        self._pending_bytes += size
        if (
            self.pending_publishes >= limits.PENDING_PUBLISHES_PER_CONNECTION_MAX
            or self._pending_bytes >= limits.PENDING_PUBLISH_BYTES_PER_CONNECTION_MAX
            or self._pressure.is_high
        ):
            self.hold_back()
        producer.pending += 1
        number, highest = send.sequence_id, send.highest_sequence_id
        done: Done = partial(self._published, topic, producer, number, highest, size)
        latency = self.broker.publish_latency
        if sampled := latency.is_idle:
            done = latency.timed(done)
        try:
            self.broker.messages_in += topic.publish(producer, send, done)
        except InputError as error:
            self.pending_publishes -= 1
            self._pending_bytes -= size
            producer.pending -= 1
            if sampled:
                latency.give_up()
            refuse_send(self, producer, send, ServerError.NotAllowedError, str(error))

    def _published(
        self,
        topic: Topic,
        producer: Producer,
        sequence_id: int,
        highest_sequence_id: int | None,
        size: int,
        position: Position | None,
        error: Exception | None,
    ) -> None:
        self.pending_publishes -= 1
        self._pending_bytes -= size
        if position is None:
            assert error is not None
            not_stored(self, topic, producer, max(sequence_id, highest_sequence_id or 0), error)
        elif not self.closed and not producer.dropped:
            number = producer.producer_id
            self._out.append(send_receipt(number, sequence_id, *position, highest_sequence_id))
            if not self._flush_scheduled:
                self._flush_scheduled = True
                self.loop.call_soon(self._flush)
        producer.settled()
        if self.reading_paused:
            self.resume_reading()

    def hold_back(self) -> None:
        """Read nothing from the peer until `read_on`, or until what it sent is stored."""
        if not self.reading_paused and self._connection is not None:
            self.reading_paused = True
            self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless the peer does not, or too much of it or of all is not stored yet."""
        if (
            self.writable
            and self.pending_publishes <= limits.PENDING_PUBLISHES_PER_CONNECTION_MAX // 2
            and self._pending_bytes <= limits.PENDING_PUBLISH_BYTES_PER_CONNECTION_MAX // 2
            and self._requests <= REQUESTS_PER_CONNECTION_MAX // 2
            and not self.waits
        ):
            if self._pressure.is_high:
                self.waits = True
                self._pressure.when_low(self.read_on)
                return
            self.reading_paused = False
            self._life.heard()  # what it sent meanwhile is only read from now on
            if not self.closed and self._connection is not None:
                self._connection.resume_reading()

    def request_begun(self) -> None:
        """A request is being served; too many at once are not read from the socket."""
        self._requests += 1
        if self._requests >= REQUESTS_PER_CONNECTION_MAX:
            self.hold_back()

    def request_ended(self) -> None:
        """A request was answered, one way or another."""
        self._requests -= 1
        if self.reading_paused:
            self.resume_reading()

    def read_on(self) -> None:
        """What was waited for has come."""
        self.waits = False
        self.resume_reading()

    def _on_flow(self, flow: Flow) -> None:
        if flow.permits <= 0:
            raise ProtocolError(f"FLOW with {flow.permits} permits")
        opened = self.consumers.get(flow.consumer_id)
        if opened is not None:
            consumer, subscription, _ = opened
            subscription.flow(consumer, flow.permits)

    # --- closing single producers and consumers from our side -----------------------------------

    def drop_producer(self, producer_id: int) -> None:
        """Close a producer and tell its client."""
        opened = self.producers.pop(producer_id, None)
        if opened is not None and not self.closed:
            opened[0].dropped = True
            self._closed_by_us.add(producer_id)
            self.reply(replies.close_producer(producer_id, **hint(opened[1])))

    def drop_consumer(self, consumer_id: int) -> None:
        """Close a consumer and tell its client."""
        opened = self.consumers.pop(consumer_id, None)
        if opened is not None and not self.closed:
            self.reply(replies.close_consumer(consumer_id, **hint(opened[2])))

    def producer_opened(self, producer: Producer, topic: Topic) -> None:
        """From now on its SENDs are served."""
        self._closed_by_us.discard(producer.producer_id)
        self.producers[producer.producer_id] = (producer, topic)
