"""A whole server in this process and a client of it, for the tests of the SDK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch.client import Client
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.server.web_server import web_servers, web_sockets

TOPIC = "persistent://public/default/t"


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[Standalone, Client]]:
    """A server in memory and a client of it; a failed task of either fails the test."""
    failures: list[BaseException] = []
    server = Standalone(
        real_runtime(),
        Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:", **settings),
    )
    await server.start()
    try:
        async with (
            asyncio.timeout(30),
            Client(server.service_url, on_failure=lambda _, e: failures.append(e)) as client,
        ):
            yield server, client
    finally:
        await server.close()
    assert not failures, failures


@asynccontextmanager
async def served_with_web(**settings: Any) -> AsyncIterator[Standalone]:
    """A server in memory on all its ports, the web interface too."""
    chosen = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:", **settings)
    runtime = real_runtime()
    with web_sockets(chosen) as web:
        server = Standalone(runtime, chosen, web_port=web.port, web_tls_port=web.tls_port)
        await server.start()
        try:
            async with asyncio.timeout(60), web_servers(server, web, runtime.network):
                yield server
        finally:
            await server.close()


async def backlog_of(server: Any, topic: str) -> int:
    """How many messages the subscription `s` of a topic has not acknowledged."""
    (found,) = [each for each in server._broker.topics.all() if str(each.name) == topic]
    return int(found.subscriptions["s"].cursor.backlog())
