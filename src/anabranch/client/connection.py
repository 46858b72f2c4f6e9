"""One connection to a broker: handshake, requests and their answers, and who else is told what.

Several producers and consumers share a connection. A lost connection fails every open request
with `OutcomeUnknown`: the broker may have carried it out.
"""

import asyncio
from typing import Any, Protocol

from anabranch import __version__, limits
from anabranch.errors import AnabranchError, OutcomeUnknown, ProtocolError
from anabranch.generated.pulsar_api_pb2 import BaseCommand, ServerError
from anabranch.runtime import Network
from anabranch.runtime.network import Buffer, Connection
from anabranch.wire import Decoder, Message, SendReceipt, encode, replies, requests


class BrokerRefused(AnabranchError):
    """The broker answered a request with an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{ServerError.Name(code)}: {text}")
        self.code = code


class Attached(Protocol):
    """A producer or consumer that uses the connection."""

    def on_writable(self) -> None:
        """The connection takes more again."""
        ...

    def on_connection_lost(self) -> None:
        """The connection is gone, or the broker closed this producer or consumer."""
        ...

    def on_closed_by_broker(self, next_url: str) -> None:
        """The broker closed this producer or consumer, which `next_url` serves, if it is known."""
        ...


class ReceiptTaker(Attached, Protocol):
    """A producer."""

    def on_receipt(self, receipt: SendReceipt) -> None:
        """An entry was stored."""
        ...

    def on_send_error(self, sequence_id: int, code: int, text: str) -> None:
        """An entry was refused."""
        ...


class MessageTaker(Attached, Protocol):
    """A consumer."""

    def on_message(self, message: Message) -> None:
        """An entry arrived."""
        ...


_ANSWERS = {
    BaseCommand.SUCCESS: "success",
    BaseCommand.PRODUCER_SUCCESS: "producer_success",
    BaseCommand.ERROR: "error",
    BaseCommand.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    BaseCommand.LOOKUP_RESPONSE: "lookupTopicResponse",
    BaseCommand.ACK_RESPONSE: "ackResponse",
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
}


class BrokerConnection:
    """Our end of a connection to a broker. A `ConnectionHandler`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The most that any broker of ours can be set to send.
        self._decoder = Decoder(
            frame_bytes_max=limits.MESSAGE_BYTES_SETTING_MAX + limits.FRAME_PADDING_BYTES
        )
        self.message_bytes_max = limits.MESSAGE_BYTES_MAX
        self._connection: Connection | None = None
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._next_request_id = 0
        self._connected: asyncio.Future[BaseCommand] = self._loop.create_future()
        self.producers: dict[int, ReceiptTaker] = {}
        self.consumers: dict[int, MessageTaker] = {}
        self.closed = False
        self.writable = True
        """False while the peer takes less than was written: what can wait should."""
        self._gathered: list[Buffer] = []
        self._heard = True
        self._keep_alive: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, network: Network, host: str, port: int) -> "BrokerConnection":
        """Connect and shake hands.

        Raises:
            OSError: if nothing answers there in time.
            BrokerRefused: if the broker does not want this client.
        """
        async with asyncio.timeout(limits.CONNECT_TIMEOUT_S):
            connection = await network.connect(host, port, cls)
            assert isinstance(connection, BrokerConnection)
            try:
                hello = requests.connect(f"Anabranch-Client-{__version__}")
                connection.write([encode(hello)])
                await connection._connected
            except BaseException:
                connection.abort()
                raise
        connection._tick()
        return connection

    # --- ConnectionHandler -------------------------------------------------------------------

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self._connection = transport

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        self._heard = True
        try:
            for command in self._decoder.feed(data):
                if type(command) is SendReceipt:
                    if (producer := self.producers.get(command.producer_id)) is not None:
                        producer.on_receipt(command)
                elif type(command) is Message:
                    if (consumer := self.consumers.get(command.consumer_id)) is not None:
                        consumer.on_message(command)
                elif isinstance(command, BaseCommand):
                    self._on_command(command)
        except ProtocolError:
            self.abort()

    def eof_received(self) -> bool | None:
        """See `ConnectionHandler.eof_received`."""
        return False

    def connection_lost(self, exc: Exception | None, /) -> None:
        """See `ConnectionHandler.connection_lost`."""
        if self.closed:
            return
        self.closed = True
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        if not self._connected.done():
            self._connected.set_exception(OSError(f"connection lost in the handshake: {exc}"))
        for waiting in self._requests.values():
            if not waiting.done():
                waiting.set_exception(OutcomeUnknown("the connection was lost"))
        self._requests.clear()
        users = [*self.producers.values(), *self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        for user in users:
            user.on_connection_lost()

    def pause_writing(self) -> None:
        """See `ConnectionHandler.pause_writing`."""
        self.writable = False

    def resume_writing(self) -> None:
        """See `ConnectionHandler.resume_writing`."""
        self.writable = True
        for user in [*self.producers.values(), *self.consumers.values()]:
            user.on_writable()

    # --- requests ----------------------------------------------------------------------------

    def new_request_id(self) -> int:
        """A number no open request of this connection has."""
        self._next_request_id += 1
        return self._next_request_id

    def write(self, parts: list[Buffer]) -> None:
        """Send buffers; nothing happens on a connection that is gone."""
        if self._gathered:
            self._gathered += parts
            self._write_gathered()
        elif self._connection is not None and not self.closed:
            self._connection.writelines(parts)

    def write_soon(self, parts: list[Buffer]) -> None:
        """Send buffers with all others of this turn of the loop, in one call."""
        if not self._gathered:
            self._loop.call_soon(self._write_gathered)
        self._gathered += parts

    def _write_gathered(self) -> None:
        parts, self._gathered = self._gathered, []
        if parts and self._connection is not None and not self.closed:
            self._connection.writelines(parts)

    async def request(self, request_id: int, parts: list[Buffer]) -> Any:
        """Send a request and return the sub-message that answers it.

        Raises:
            BrokerRefused: if the broker said no.
            OutcomeUnknown: if no answer came.
        """
        if self.closed:
            raise OutcomeUnknown("the connection was lost")
        waiting: asyncio.Future[Any] = self._loop.create_future()
        self._requests[request_id] = waiting
        self.write(parts)
        try:
            async with asyncio.timeout(limits.REQUEST_TIMEOUT_S):
                return await waiting
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {limits.REQUEST_TIMEOUT_S} s from the broker"
            ) from None
        finally:
            self._requests.pop(request_id, None)

    def _on_command(self, command: BaseCommand) -> None:
        kind = command.type
        if kind == BaseCommand.CONNECTED:
            if command.connected.max_message_size:
                self.message_bytes_max = command.connected.max_message_size
            if not self._connected.done():
                self._connected.set_result(command)
        elif kind == BaseCommand.PING:
            self.write([encode(replies.pong())])
        elif kind == BaseCommand.ERROR and not self._connected.done():
            self._connected.set_exception(BrokerRefused(command.error.error, command.error.message))
        elif kind in _ANSWERS:
            self._on_answer(getattr(command, _ANSWERS[kind]))
        elif kind == BaseCommand.SEND_ERROR:
            error = command.send_error
            if (producer := self.producers.get(error.producer_id)) is not None:
                producer.on_send_error(error.sequence_id, error.error, error.message)
        elif kind in (BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER):
            self._on_closed(command)

    def _on_closed(self, command: BaseCommand) -> None:
        closed: Attached | None
        if command.type == BaseCommand.CLOSE_PRODUCER:
            closed = self.producers.pop(command.close_producer.producer_id, None)
            next_url = command.close_producer.assignedBrokerServiceUrl
        else:
            closed = self.consumers.pop(command.close_consumer.consumer_id, None)
            next_url = command.close_consumer.assignedBrokerServiceUrl
        if closed is not None:
            closed.on_closed_by_broker(next_url)

    def _on_answer(self, answer: Any) -> None:
        waiting = self._requests.get(answer.request_id)
        if waiting is None or waiting.done():
            return
        # A plain ERROR and the error fields of particular answers mean the same.
        if answer.DESCRIPTOR.fields_by_name.get("error") and answer.HasField("error"):
            waiting.set_exception(BrokerRefused(answer.error, answer.message))
        else:
            waiting.set_result(answer)

    # --- keep-alive and closing --------------------------------------------------------------

    def _tick(self) -> None:
        if self.closed:
            return
        if not self._heard:
            self.abort()
            return
        self._heard = False
        self.write([encode(replies.ping())])
        self._keep_alive = self._loop.call_later(limits.KEEP_ALIVE_INTERVAL_S, self._tick)

    def abort(self) -> None:
        """Cut the connection."""
        if self._connection is not None:
            self._connection.abort()
        self.connection_lost(None)

    def close(self) -> None:
        """Send what is queued and close."""
        self._write_gathered()
        if self._connection is not None:
            self._connection.close()
        self.connection_lost(None)
