"""A metadata server on a memory store, and a client of it, for the tests that want them."""

from collections.abc import AsyncIterator

import pytest
from lock_bench import Bench

from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.runtime.real import real_runtime


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}")


@pytest.fixture
async def base() -> AsyncIterator[MemoryStore]:
    base = MemoryStore(real_runtime().clock)
    yield base
    await base.close()


@pytest.fixture
async def server(base: MemoryStore) -> AsyncIterator[MetadataServer]:
    server = MetadataServer(real_runtime(), base, on_failure=failed)
    await server.start("127.0.0.1", 0)
    yield server
    await server.close()


@pytest.fixture
async def store(server: MetadataServer) -> AsyncIterator[ServedStore]:
    url = f"anabranch://127.0.0.1:{server.port}"
    store = await ServedStore.open(real_runtime(), url, session_timeout_s=5.0)
    yield store
    await store.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    base = MemoryStore(real_runtime().clock)
    bench = Bench(base)
    yield bench
    await bench.tasks.close()
    await base.close()
    assert bench.failures == []
