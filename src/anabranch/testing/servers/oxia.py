"""Oxia in one process, with one or several shards; built from its sources by `make servers`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.member import Member, group, port_answers
from anabranch.testing.servers.process import free_port

AUDIENCE: Final = "oxia"


@dataclass(frozen=True, slots=True)
class Oxia:
    """A running server."""

    server: Member
    port: int

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The server as Pulsar writes it."""
        return f"oxia://{self.address}/default"


@dataclass(frozen=True, slots=True)
class Identity:
    """Files by which a server proves who it is."""

    certificate: Path
    key: Path


@contextmanager
def oxia(
    shards: int = 1,
    *,
    folder: Path | None = None,
    identity: Identity | None = None,
    issuer: str | None = None,
) -> Iterator[Oxia]:
    """Run Oxia for as long as the body runs; it syncs to disk before it answers a write.

    With an identity it speaks TLS alone. With the URL of an issuer of tokens (OIDC) it lets in only
    who has one of its tokens for the audience "oxia".

    Raises:
        MissingTool: if it was not built yet.
        ServerFailed: if it does not become ready.
    """
    program = locate("oxia") / "oxia-server"
    port = free_port()
    metrics = free_port()
    members: list[Member] = []

    def build(root: Path) -> list[Member]:
        home = root / "oxia"
        command = [
            str(program),
            *("-address", f"127.0.0.1:{port}"),
            *("-metrics", f"127.0.0.1:{metrics}"),
            *("-folder", str(home / "data")),
            *("-shards", str(shards)),
        ]
        if identity is not None:
            command += ["-certificate", str(identity.certificate), "-key", str(identity.key)]
        if issuer is not None:
            accepted = {"issuers": {issuer: {"allowedAudiences": AUDIENCE}}}
            command += ["-tokens", json.dumps(accepted)]
        members.append(Member("oxia", command, folder=home, ready=lambda: port_answers(port)))
        return members

    with group("oxia", folder, build):
        yield Oxia(members[0], port)
