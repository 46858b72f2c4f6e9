"""One connection to a broker: handshake, requests and their answers, and who else is told what.

Several producers and consumers share a connection. A lost connection fails every open request
with `OutcomeUnknown`: the broker may have carried it out.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from anabranch import __version__, limits
from anabranch.client.credentials import Credentials
from anabranch.client.limits import REQUEST_TIMEOUT_S
from anabranch.errors import AnabranchError, OutcomeUnknown, ProtocolError
from anabranch.generated.pulsar_api_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandProducerSuccess,
    CommandTopicMigrated,
    FeatureFlags,
    ServerError,
)
from anabranch.runtime import Network
from anabranch.runtime.network import Buffer, Connection, Tls
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

    def on_migrated(self, url: str, url_tls: str) -> None:
        """The topic is in another cluster now, reached at one of these; a close follows."""
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
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    BaseCommand.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE: "getOrCreateSchemaResponse",
}
_ERROR_FIELDS = {
    "CommandGetSchemaResponse": "error_code",
    "CommandGetOrCreateSchemaResponse": "error_code",
}
_CLIENT_VERSION = f"Anabranch-Client-{__version__}"


def is_waiting(answer: Any) -> bool:
    """Whether a producer has to wait until the topic is its own; another answer follows."""
    return isinstance(answer, CommandProducerSuccess) and not answer.producer_ready


class BrokerConnection:
    """Our end of a connection to a broker. A `ConnectionHandler`."""

    def __init__(self, credentials: Credentials | None = None, *, secure: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._credentials = credentials
        self._secure = secure
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
    async def open(
        cls,
        network: Network,
        host: str,
        port: int,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        proxied: str = "",
    ) -> "BrokerConnection":
        """Connect and shake hands; `proxied` is the broker that a proxy there shall connect to.

        Raises:
            OSError: if nothing answers there in time.
            BrokerRefused: if the broker does not want this client.
            ConfigError: if TLS cannot be spoken, or not with this server.
        """
        async with asyncio.timeout(limits.CONNECT_TIMEOUT_S):
            secure = tls is not None
            connection = await network.connect(
                host, port, lambda: cls(credentials, secure=secure), tls=tls
            )
            assert isinstance(connection, BrokerConnection)
            try:
                hello = requests.connect(
                    _CLIENT_VERSION,
                    auth_method="none" if credentials is None else credentials.method,
                    auth_data=None if credentials is None else credentials.data(),
                    features=FeatureFlags(supports_auth_refresh=True),
                    proxy_to_broker_url=proxied or None,
                )
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

    async def request(
        self, request_id: int, parts: list[Buffer], *, may_take_long: bool = False
    ) -> Any:
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
            async with asyncio.timeout(None if may_take_long else REQUEST_TIMEOUT_S):
                return await waiting
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {REQUEST_TIMEOUT_S} s from the broker"
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
        elif kind == BaseCommand.TOPIC_MIGRATED:
            self._on_migrated(command.topicMigrated)
        elif kind == BaseCommand.AUTH_CHALLENGE:
            self._on_challenge()

    def _on_closed(self, command: BaseCommand) -> None:
        closed: Attached | None
        told: CommandCloseProducer | CommandCloseConsumer
        if command.type == BaseCommand.CLOSE_PRODUCER:
            told = command.close_producer
            closed = self.producers.pop(told.producer_id, None)
        else:
            told = command.close_consumer
            closed = self.consumers.pop(told.consumer_id, None)
        if closed is not None:
            closed.on_closed_by_broker(
                told.assignedBrokerServiceUrlTls if self._secure else told.assignedBrokerServiceUrl
            )

    def _on_migrated(self, told: CommandTopicMigrated) -> None:
        users: Mapping[int, Attached] = (
            self.producers
            if told.resource_type == CommandTopicMigrated.Producer
            else self.consumers
        )
        if (moved := users.get(told.resource_id)) is not None:
            moved.on_migrated(told.brokerServiceUrl, told.brokerServiceUrlTls)

    def _on_challenge(self) -> None:
        """The broker wants to know again who this is, since what it knew has run out."""
        credentials = self._credentials
        if credentials is None:
            self.abort()  # there is nothing to show
            return
        answer = requests.auth_response(
            _CLIENT_VERSION, method=credentials.method, data=credentials.data()
        )
        self.write([encode(answer)])

    def _on_answer(self, answer: Any) -> None:
        waiting = self._requests.get(answer.request_id)
        if waiting is None or waiting.done():
            return
        if is_waiting(answer):
            return
        # A plain ERROR and the error fields of particular answers mean the same.
        field = _ERROR_FIELDS.get(answer.DESCRIPTOR.name, "error")
        if answer.DESCRIPTOR.fields_by_name.get(field) and answer.HasField(field):
            text = answer.error_message if field == "error_code" else answer.message
            waiting.set_exception(BrokerRefused(getattr(answer, field), text))
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
