"""A whole server in this process and a client of it, for the tests of the SDK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch.client import Client
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings

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
