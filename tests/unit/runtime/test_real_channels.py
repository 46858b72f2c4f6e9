"""Channels of grpc.aio: messages, errors, tokens, TLS; the server is made of the same library."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from anabranch.errors import ConfigError
from anabranch.runtime.channels import CallFailed, Security
from anabranch.runtime.real_channels import GrpcChannels

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "a-secret-of-the-test"


class Echo(grpc.GenericRpcHandler):
    """Answers with what it was sent; tells the secret only to those with the token."""

    def service(self, details: Any) -> Any:
        said = [tuple(item) for item in details.invocation_metadata]
        name = details.method.rpartition("/")[2]
        if name == "Secret" and ("authorization", f"Bearer {TOKEN}") not in said:
            return grpc.unary_unary_rpc_method_handler(self.refuse)
        if name in ("Ask", "Secret"):
            return grpc.unary_unary_rpc_method_handler(self.ask)
        if name == "Stream":
            return grpc.unary_stream_rpc_method_handler(self.stream)
        return grpc.stream_stream_rpc_method_handler(self.exchange)

    async def refuse(self, request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
        return b""

    async def ask(self, request: bytes, context: Any) -> bytes:
        if request == b"wait":
            await asyncio.sleep(60)
        return request

    async def stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for _ in range(3):
            yield request
        if request == b"break":
            await context.abort(grpc.StatusCode.NOT_FOUND, "broken off")

    async def exchange(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request + dict(context.invocation_metadata())["shard-id"].encode()


Serve = Callable[..., Any]


@pytest_asyncio.fixture(loop_scope="module")
async def serve() -> AsyncIterator[Serve]:
    servers: list[Any] = []

    async def start(credentials: Any = None) -> str:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([Echo()])
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        servers.append(server)
        return f"localhost:{port}" if credentials else f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.stop(0)


async def test_messages_go_both_ways(serve: Serve) -> None:
    channel = GrpcChannels().open(await serve(), Security())
    assert await channel.ask("/s/Ask", b"hello", timeout_s=5) == b"hello"
    assert [message async for message in channel.stream("/s/Stream", b"x")] == [b"x"] * 3
    exchange = channel.exchange("/s/Exchange", [("shard-id", "7")])
    await exchange.send(b"a")
    await exchange.send(b"b")
    answers = aiter(exchange)
    assert [await anext(answers), await anext(answers)] == [b"a7", b"b7"]
    exchange.cancel()
    with pytest.raises(CallFailed):
        await exchange.send(b"c")
    await channel.close()


async def test_call_that_somebody_else_ends_is_an_error_and_no_cancellation(serve: Serve) -> None:
    channel = GrpcChannels().open(await serve(), Security())
    exchange = channel.exchange("/s/Exchange", [("shard-id", "7")])
    await exchange.send(b"a")
    answers = aiter(exchange)
    assert await anext(answers) == b"a7"
    reading = asyncio.ensure_future(anext(answers))
    await asyncio.sleep(0.05)
    exchange.cancel()
    with pytest.raises(CallFailed, match="ended here"):
        await reading
    stream = channel.stream("/s/Stream", b"x")
    given_up = asyncio.ensure_future(anext(aiter(stream)))
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await channel.close()


async def test_certificates_that_are_none_are_refused_at_once() -> None:
    for wrong in (b"", b"no certificate", b"\xff\xfe"):
        with pytest.raises(ConfigError, match="no certificates in PEM"):
            GrpcChannels().open("127.0.0.1:1", Security(tls=True, trusted_certificates=wrong))


async def test_errors_have_a_code_and_a_reason(serve: Serve) -> None:
    channel = GrpcChannels().open(await serve(), Security())
    with pytest.raises(CallFailed, match="broken off") as refused:
        async for _ in channel.stream("/s/Stream", b"break"):
            pass
    assert refused.value.code == "NOT_FOUND"
    with pytest.raises(CallFailed) as late:
        await channel.ask("/s/Ask", b"wait", timeout_s=0.05)
    assert late.value.code == "DEADLINE_EXCEEDED"
    await channel.close()


async def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigError, match=r"anabranch\[oxia\]"):
        GrpcChannels().open("127.0.0.1:1", Security())


@pytest.mark.goal("core.M11", part="oxia", broken_by="token_is_not_sent")
async def test_token_is_sent_and_told_nobody(serve: Serve) -> None:
    address = await serve()
    channel = GrpcChannels().open(address, Security(token=TOKEN))
    assert await channel.ask("/s/Secret", b"x", timeout_s=5) == b"x"
    await channel.close()
    wrong = GrpcChannels().open(address, Security(token="wrong-secret"))
    with pytest.raises(CallFailed) as refused:
        await wrong.ask("/s/Secret", b"x", timeout_s=5)
    assert refused.value.code == "UNAUTHENTICATED"
    assert "wrong-secret" not in str(refused.value)
    assert TOKEN not in repr(Security(token=TOKEN))
    await wrong.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The key and certificate of a server called localhost."""
    folder: Path = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return (folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()


async def test_server_is_known_by_its_certificate(
    serve: Serve, certificate: tuple[bytes, bytes]
) -> None:
    address = await serve(grpc.ssl_server_credentials([certificate]))
    trusting = Security(tls=True, trusted_certificates=certificate[1], token=TOKEN)
    channel = GrpcChannels().open(address, trusting)
    assert await channel.ask("/s/Ask", b"x", timeout_s=5) == b"x"
    await channel.close()
    for wrong in (Security(tls=True, token=TOKEN), Security(token=TOKEN)):
        stranger = GrpcChannels().open(address, wrong)
        with pytest.raises(CallFailed) as refused:
            await stranger.ask("/s/Ask", b"x", timeout_s=5)
        assert refused.value.code == "UNAVAILABLE"
        assert TOKEN not in str(refused.value)
        await stranger.close()
