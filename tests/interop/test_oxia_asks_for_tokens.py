"""A real Oxia that wants tokens of an issuer: who has a good one gets in, and nobody else."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from anabranch.errors import ConfigError
from anabranch.metadata.credentials import Credentials
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.oxia import AUDIENCE, oxia

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.goal("core.M11", part="oxia"),
]
KEY_ID = "key-1"


@dataclass
class Issuer:
    """Gives out tokens, and tells by HTTP with which key they are signed."""

    url: str
    key: rsa.RSAPrivateKey
    oxia_url: str = ""

    def token(self, **claims: object) -> str:
        """A token that is good, but for the claims that are given."""
        now_s = int(time.time())
        good = {"iss": self.url, "sub": "ann", "aud": AUDIENCE, "iat": now_s, "exp": now_s + 600}
        return jwt.encode(good | claims, self.key, "RS256", headers={"kid": KEY_ID})


def answers(issuer: Issuer) -> dict[str, dict[str, Any]]:
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(issuer.key.public_key()))
    return {
        "/.well-known/openid-configuration": {
            "issuer": issuer.url,
            "jwks_uri": f"{issuer.url}/keys",
            "authorization_endpoint": f"{issuer.url}/authorize",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        },
        "/keys": {"keys": [public | {"kid": KEY_ID, "alg": "RS256", "use": "sig"}]},
    }


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    told: dict[str, dict[str, Any]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(told[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(
        f"http://127.0.0.1:{server.server_port}",
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
    )
    told.update(answers(issuer))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with oxia(2, issuer=issuer.url) as running:
            issuer.oxia_url = running.url
            yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def opened(issuer: Issuer, token: str | None) -> MetadataStore:
    credentials = Credentials(oxia_token=token)
    return await open_store(issuer.oxia_url, real_runtime(), credentials=credentials)


async def test_good_token_does_everything(issuer: Issuer) -> None:
    store = await opened(issuer, issuer.token())
    watch = store.watch()
    held = await store.put("/held", b"x", ephemeral=True)
    node = await store.get("/held")
    assert node is not None
    assert node.stat == held
    assert (await anext(watch)).path == "/held"
    assert [record.path async for record in store.export()] == ["/", "/held"]
    await store.close()


@pytest.mark.parametrize(
    "what", ["none", "no token at all", "expired", "another key", "another audience", "of nobody"]
)
async def test_any_other_is_one_clear_error_without_it(issuer: Issuer, what: str) -> None:
    stranger = Issuer(issuer.url, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    token = {
        "none": None,
        "no token at all": "hush-hush",
        "expired": issuer.token(exp=int(time.time()) - 60),
        "another key": stranger.token(),
        "another audience": issuer.token(aud="kafka"),
        "of nobody": issuer.token(iss="http://127.0.0.1:1"),
    }[what]
    with pytest.raises(ConfigError, match="does not accept the credentials") as refused:
        await opened(issuer, token)
    assert token is None or token not in str(refused.value)
    assert "\n" not in str(refused.value)


def credentials(folder: Path, token: str) -> str:
    file = folder / "credentials"
    file.write_text(
        f'format = "anabranch.metadata-credentials"\nversion = 1\n[oxia]\ntoken = "{token}"\n'
    )
    file.chmod(0o600)
    return str(file)


async def command(folder: Path, token: str, *words: str) -> tuple[int | None, str, str]:
    """What `anabranch metadata` says to somebody with that token."""
    file = credentials(folder, token)
    arguments = ("-m", "anabranch", "metadata", *words, "--credentials", file)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_commands_with_a_wrong_token_change_nothing(issuer: Issuer, tmp_path: Path) -> None:
    good, wrong = issuer.token(), issuer.token(aud="kafka")
    url = ("--url", issuer.oxia_url)
    written = await command(tmp_path, good, "put", "/kept", "--value", "kept", *url)
    assert (written[0], written[2]) == (0, "")
    for words in (
        ("put", "/kept", "--value", "changed", *url),
        ("delete", "/kept", *url),
        ("export", str(tmp_path / "none"), *url),
        ("copy", "memory:", issuer.oxia_url, "--overwrite"),
    ):
        code, out, err = await command(tmp_path, wrong, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "does not accept the credentials" in err
        assert wrong not in err
    assert os.listdir(tmp_path) == ["credentials"]
    assert (await command(tmp_path, good, "get", "/kept", *url))[1] == "kept\n"
