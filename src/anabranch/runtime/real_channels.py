"""gRPC behind the door of `channels`. The library is loaded when the first channel is opened."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.runtime.channels import CallFailed, Headers, Security

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", limits.GRPC_KEEP_ALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", limits.GRPC_KEEP_ALIVE_S * 1000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    # Two handles of one process must not share a connection: one that is closed would end both.
    ("grpc.use_local_subchannel_pool", 1),
)


def _failed(error: Any) -> CallFailed:
    return CallFailed(error.code().name, error.details() or "")


def _forget(reading: "asyncio.Task[Any]") -> None:
    """Whoever did not wait for a message does not miss it, nor the end of the call."""
    if not reading.cancelled():
        reading.exception()


def headers_of(security: Security) -> Headers:
    """What every call says of who we are."""
    if security.token is None:
        return ()
    return (("authorization", f"Bearer {security.token}"),)


def _check_certificates(trusted: bytes | None) -> None:
    """The library itself takes any bytes, and then reaches nobody."""
    if trusted is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=trusted.decode("ascii")
        )
    except (UnicodeDecodeError, ValueError, ssl.SSLError):
        raise ConfigError("the trusted certificates for TLS are no certificates in PEM") from None


class GrpcReplies:
    """A call whose messages are read one by one."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """See `Replies`."""
        import grpc

        reading = self._begin_reading()
        try:
            while (message := await reading) is not grpc.aio.EOF:
                # The next one comes while this one is dealt with.
                reading = self._begin_reading()
                await asyncio.sleep(0)
                yield message
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from None
        except asyncio.CancelledError:
            if self._ended_here():
                raise CallFailed("CANCELLED", "the call was ended here") from None
            raise
        finally:
            self._call.cancel()
            reading.cancel()

    def _begin_reading(self) -> "asyncio.Task[Any]":
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(_forget)
        return reading

    async def _read(self) -> Any:
        return await self._call.read()

    async def send(self, message: bytes) -> None:
        """See `Exchange.send`."""
        import grpc

        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from None
        except asyncio.InvalidStateError:
            raise CallFailed("UNAVAILABLE", "the call has ended") from None
        except asyncio.CancelledError:
            if self._ended_here():
                raise CallFailed("CANCELLED", "the call was ended here") from None
            raise

    def _ended_here(self) -> bool:
        """`cancel` makes the library raise what else only the end of the task itself does."""
        task = asyncio.current_task()
        return task is not None and not task.cancelling() and bool(self._call.cancelled())

    def cancel(self) -> None:
        """See `Replies.cancel`."""
        self._call.cancel()


class GrpcChannel:
    """One channel of grpc.aio."""

    def __init__(self, channel: Any, headers: Headers) -> None:
        self._channel = channel
        self._headers = tuple(headers)

    async def ready(self) -> None:
        """See `Channel.ready`."""
        await self._channel.channel_ready()

    async def ask(self, method: str, message: bytes, *, timeout_s: float) -> bytes:
        """See `Channel.ask`."""
        import grpc

        call = self._channel.unary_unary(method)
        try:
            answer: bytes = await call(message, timeout=timeout_s, metadata=self._headers)
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from None
        return answer

    def stream(self, method: str, message: bytes) -> GrpcReplies:
        """See `Channel.stream`."""
        return GrpcReplies(self._channel.unary_stream(method)(message, metadata=self._headers))

    def exchange(self, method: str, headers: Headers) -> GrpcReplies:
        """See `Channel.exchange`."""
        metadata = (*self._headers, *headers)
        return GrpcReplies(self._channel.stream_stream(method)(metadata=metadata))

    async def close(self) -> None:
        """See `Channel.close`."""
        await self._channel.close()


class GrpcChannels:
    """Opens channels of grpc.aio."""

    def open(self, address: str, security: Security) -> GrpcChannel:
        """See `Channels.open`."""
        try:
            # It would write of every failed handshake to standard error; callers are told anyway.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            import grpc
        except ImportError:
            raise ConfigError(
                "this needs gRPC, which is not installed: pip install 'anabranch[oxia]'"
            ) from None
        headers = headers_of(security)
        if security.tls:
            _check_certificates(security.trusted_certificates)
            credentials = grpc.ssl_channel_credentials(security.trusted_certificates)
            return GrpcChannel(
                grpc.aio.secure_channel(address, credentials, options=_OPTIONS), headers
            )
        return GrpcChannel(grpc.aio.insecure_channel(address, options=_OPTIONS), headers)
