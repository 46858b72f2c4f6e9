"""Several brokers, each with its web interface in process.

The way between them is a network that calls them.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from several_brokers import Member, SeveralBrokers, several_brokers

from anabranch.admin import WebInterface
from anabranch.admin.served import TopicAddress
from anabranch.ids import TopicName
from anabranch.policies import ClusterData, encode
from anabranch.runtime.network import Network
from anabranch.testing.web_call import WebAnswer, call

TOPICS = "/admin/v2/persistent/public/default"


class Wires:
    """Brings requests to the web interface whose port they name. A `Network`, as far as needed."""

    def __init__(self) -> None:
        self.apps: dict[int, WebInterface] = {}
        self.asked: list[str] = []
        self.shown: list[tuple[str | None, str | None]] = []
        """Credentials, and for whom they speak."""
        self.answering: set[asyncio.Task[None]] = set()

    async def connect(self, host: str, port: int, make: Any, *, tls: Any = None) -> Any:
        if port not in self.apps:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        handler = make()

        def write(request: bytes) -> None:
            task = asyncio.ensure_future(self._answer(handler, self.apps[port], request))
            self.answering.add(task)

        handler.connection_made(SimpleNamespace(write=write, abort=lambda: None))
        return handler

    async def _answer(self, handler: Any, app: WebInterface, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        method, path, _ = first.split(" ")
        self.asked.append(f"{method} {path}")
        headers = dict(line.split(": ", 1) for line in lines)
        assert int(headers["Content-Length"]) == len(body)
        self.shown.append((headers.get("authorization"), headers.get("x-original-principal")))
        answer = await call(app, path, method=method, body=body, headers=headers)
        shown = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        handler.data_received(f"HTTP/1.1 {answer.status} ok\r\n{shown}\r\n".encode())
        handler.data_received(answer.body)
        handler.connection_lost(None)


class Webs:
    """The brokers, and a web interface for each."""

    def __init__(self, brokers: SeveralBrokers) -> None:
        self.brokers = brokers
        self.wires = Wires()
        for member in brokers.members:
            port = int(member.url.rpartition(":")[2])
            self.wires.apps[port] = WebInterface(served(member, self.wires))  # type: ignore[arg-type]

    async def ask(self, member: Member, method: str, path: str, body: object = None) -> WebAnswer:
        app = self.wires.apps[int(member.url.rpartition(":")[2])]
        data = b"" if body is None else json.dumps(body).encode()
        return await call(app, path, method=method, body=data)

    async def ask_in_tls(self, member: Member, path: str) -> WebAnswer:
        app = self.wires.apps[int(member.url.rpartition(":")[2])]
        return await call(app, path, scheme="https", headers={"Authorization": "Bearer secret"})

    async def owners(self) -> dict[str, set[int]]:
        """Partitions of the topic `p` by the id of who owns them."""
        found: dict[str, set[int]] = {}
        for index in range(8):
            name = TopicName.parse(f"persistent://public/default/p-partition-{index}")
            for member in self.brokers.members:
                if member.ownership.owns(name):
                    found.setdefault(member.id, set()).add(index)
        return found


def served(member: Member, network: Wires) -> SimpleNamespace:
    way: Network = network  # type: ignore[assignment]
    return SimpleNamespace(
        cluster="standalone",
        web_url=member.ownership.me.web_url,
        web_url_tls="",
        broker=member.broker,
        metadata=member.store,
        authentication=None,
        authorization=None,
        network=way,
        peer_tls=None,
        why_not_ready=lambda: None,
        locate=partial(locate, member),
    )


async def locate(member: Member, topic: TopicName, *, authoritative: bool) -> TopicAddress:
    """As a server does it."""
    found = await member.ownership.locate(topic, authoritative=authoritative)
    at = found.broker
    return TopicAddress(
        at.service_url, at.service_url_tls, at.web_url, at.web_url_tls, is_owner=found.is_owner
    )


@asynccontextmanager
async def several_webs() -> AsyncIterator[Webs]:
    """Yield brokers with their web interfaces."""
    async with several_brokers() as brokers:
        await brokers.base.put("/admin/clusters/standalone", encode(ClusterData()))
        yield Webs(brokers)
