"""Empty metadata stores of every kind that needs no server of others, for copies between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from anabranch.metadata.factory import open_store
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime

PLACES: Final = ("memory", "embedded", "served")


@asynccontextmanager
async def empty_store(place: str, folder: str) -> AsyncIterator[MetadataStore]:
    """An empty store of a kind; `folder` is for those that need one."""
    runtime = real_runtime()
    if place != "served":
        url = "memory:" if place == "memory" else f"embedded:{folder}"
        store = await open_store(url, runtime)
        try:
            yield store
        finally:
            await store.close()
        return
    base = MemoryStore(runtime.clock)
    server = MetadataServer(runtime, base, on_failure=_failed)
    await server.start("127.0.0.1", 0)
    try:
        store = await open_store(f"anabranch://127.0.0.1:{server.port}", runtime)
        try:
            yield store
        finally:
            await store.close()
    finally:
        await server.close()
        await base.close()


def _failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}")
