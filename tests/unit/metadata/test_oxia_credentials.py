"""Token and TLS on the way to Oxia, from the file of credentials to the server."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from anabranch.errors import ConfigError, NotFound
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.server.credentials_file import load_credentials

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "hush-hush"
HEAD = 'format = "anabranch.metadata-credentials"\nversion = 1\n[oxia]\n'


class Guarded(grpc.GenericRpcHandler):
    """Has nothing, and tells those with the token; shows others theirs, as no server should."""

    def service(self, details: Any) -> Any:
        said = dict(tuple(item) for item in details.invocation_metadata)
        self.heard = said.get("authorization", "nothing")
        return grpc.unary_stream_rpc_method_handler(self.answer)

    async def answer(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        del request
        if self.heard == f"Bearer {TOKEN}":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such namespace")
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not you: {self.heard}")
        yield b""


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[bytes, bytes]:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.pem")]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command.split(), *name, *files], check=True, capture_output=True)
    return (tmp_path / "key.pem").read_bytes(), (tmp_path / "ca.pem").read_bytes()


@pytest_asyncio.fixture(loop_scope="module")
async def address(certificate: tuple[bytes, bytes]) -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Guarded()])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([certificate]))
    await server.start()
    yield f"oxia://localhost:{port}/here"
    await server.stop(0)


async def refusal(address: str, folder: Path, text: str) -> str:
    file = folder / "secrets.toml"
    file.write_text(HEAD + text)
    credentials = load_credentials(str(file), lambda sentence: None)
    with pytest.raises((ConfigError, NotFound)) as refused:
        await open_store(address, real_runtime(), credentials=credentials)
    return str(refused.value)


@pytest.mark.goal("core.M11", part="oxia", broken_by="token_is_not_sent")
async def test_token_arrives_over_tls(address: str, tmp_path: Path) -> None:
    text = f'token = "{TOKEN}"\n[oxia.tls]\nca = "ca.pem"\n'
    assert "namespace 'here'" in await refusal(address, tmp_path, text)


@pytest.mark.goal("core.M11", part="oxia", broken_by="refusal_tells_the_token")
async def test_wrong_token_is_one_clear_error_without_it(address: str, tmp_path: Path) -> None:
    said = await refusal(address, tmp_path, 'token = "wr0ng"\n[oxia.tls]\nca = "ca.pem"\n')
    assert "does not accept the credentials" in said
    assert "wr0ng" not in said


async def refused_at_once(folder: Path, text: str) -> str:
    """What is said of a server that nobody had to ask; and no task may have broken over it."""
    broken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    try:
        async with asyncio.timeout(5):
            return await refusal("oxia://127.0.0.1:1/here", folder, text)
    finally:
        asyncio.get_running_loop().set_exception_handler(None)
        assert not broken


async def test_missing_extra_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert "pip install 'anabranch[oxia]'" in await refused_at_once(tmp_path, "")


async def test_trust_in_no_certificate_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    said = await refused_at_once(tmp_path, '[oxia.tls]\nca = "ca.pem"\n')
    assert "no certificates in PEM" in said
