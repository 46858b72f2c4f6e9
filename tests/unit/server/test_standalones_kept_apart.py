"""Standalone servers that are started on what another one uses: metadata, or bookies."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import ConfigError, ConflictError
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.ownership import ClusterOwnership
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.assembly import Standalone
from anabranch.server.cluster_broker import ClusterBroker
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.server.sole_server import PATH, SoleServer
from anabranch.testing.bookies.loopback import LoopbackBookie


@dataclass
class Bench:
    """Metadata stores that several processes reach."""

    runtime: Runtime
    folder: Path
    held: AsyncExitStack

    async def service(self, name: str) -> MetadataService:
        settings = Settings(data=str(self.folder / name), metadata_port=0)
        service = MetadataService(self.runtime, settings)
        await service.start()
        self.held.push_async_callback(service.close)
        return service

    async def store(self, service: MetadataService) -> MetadataStore:
        store = await ServedStore.open(self.runtime, service.url)
        self.held.push_async_callback(store.close)
        return store

    async def bookie(self, service: MetadataService) -> LoopbackBookie:
        bookie = LoopbackBookie(self.runtime, await self.store(service))
        await bookie.start()
        self.held.push_async_callback(bookie.stop)
        return bookie

    def settings(self, metadata: MetadataService, ledgers_url: str, **more: Any) -> Settings:
        return Settings(
            **{"port": 0, **more},
            web_port=0,
            data=str(self.folder / "unused"),
            metadata_url=metadata.url,
            ledgers_url=ledgers_url,
        )

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.held.push_async_callback(lambda: task)

    async def start(self, metadata: MetadataService, ledgers_url: str, **more: Any) -> Standalone:
        server = Standalone(self.runtime, self.settings(metadata, ledgers_url, **more))
        await server.start()
        self.held.push_async_callback(server.close)
        return server


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as held:
        yield Bench(real_runtime(), tmp_path, held)


async def test_the_second_server_on_the_same_metadata_is_refused(bench: Bench) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    first = await bench.start(metadata, "bookkeeper:?ensemble=1")
    with pytest.raises(
        ConflictError, match=rf"used by the standalone server at {first.service_url}, .*Stop"
    ):
        await bench.start(metadata, "bookkeeper:?ensemble=1")
    broker = ClusterBroker(bench.runtime, bench.settings(metadata, "bookkeeper:?ensemble=1"))
    with pytest.raises(ConflictError, match="which shares it with none"):
        await broker.start()
    assert await first.why_unhealthy() is None, "it goes on"
    await first.close()
    await bench.start(metadata, "bookkeeper:?ensemble=1")


async def test_a_server_comes_back_at_the_address_of_its_crash(bench: Bench) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    first = await bench.start(metadata, "bookkeeper:?ensemble=1")
    store = await bench.store(metadata)
    left = await store.get(PATH)
    assert left is not None
    port = int(first.service_url.rpartition(":")[2])
    await first.close()
    # As it is while the session of a server that was killed still lasts.
    await store.put(PATH, left.value, ephemeral=True)
    with pytest.raises(ConflictError, match="if it has crashed, its mark is gone after"):
        await bench.start(metadata, "bookkeeper:?ensemble=1")
    asyncio.get_running_loop().call_later(0.3, bench.later, store.delete(PATH))
    await bench.start(metadata, "bookkeeper:?ensemble=1", port=port)
    present = await store.get(PATH)
    assert present is not None
    assert present.value != left.value, "each start has a name of its own"


async def test_two_servers_that_say_the_same_address_do_not_take_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    # As on two machines that both advertise localhost.
    first = await bench.start(metadata, "bookkeeper:?ensemble=1", advertised_address="localhost")
    store = await bench.store(metadata)
    held = await store.get(PATH)
    port = int(first.service_url.rpartition(":")[2])
    tasks = Tasks(lambda name, error: None)
    bench.held.push_async_callback(tasks.close)
    second = SoleServer(store, bench.runtime, tasks, f"pulsar://localhost:{port}")
    monkeypatch.setattr(ServedStore, "session_timeout_s", 0.5)
    with pytest.raises(ConflictError, match="used by the standalone server at pulsar://localhost"):
        await second.claim()
    assert await store.get(PATH) == held, "it was left alone"
    assert await first.why_unhealthy() is None


async def test_a_standalone_is_refused_beside_brokers_of_a_cluster(bench: Bench) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    store = await bench.store(metadata)
    # A broker of ours or of Pulsar: both register here.
    await store.put("/loadbalance/brokers/host-1:8080", b"{}", ephemeral=True)
    with pytest.raises(ConflictError, match=r"brokers of a cluster, .*: host-1:8080"):
        await bench.start(metadata, "bookkeeper:?ensemble=1")
    assert not await store.exists(PATH), "the mark is gone again"
    await store.delete("/loadbalance/brokers/host-1:8080")
    await bench.start(metadata, "bookkeeper:?ensemble=1")


async def test_a_broker_that_registers_beside_a_standalone_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    store = await bench.store(metadata)
    settings = bench.settings(metadata, "bookkeeper:?ensemble=1")
    await store.put(f"/admin/clusters/{settings.cluster}", b"{}")
    start = ClusterOwnership.start

    async def start_late(self: ClusterOwnership) -> None:
        # The standalone server has seen no broker just before.
        await store.put(PATH, b"{}", ephemeral=True)
        await start(self)

    monkeypatch.setattr(ClusterOwnership, "start", start_late)
    with pytest.raises(ConflictError, match="which shares it with none"):
        await ClusterBroker(bench.runtime, settings).start()
    assert not await store.children("/loadbalance/brokers")


async def test_a_server_whose_place_was_taken_ends(bench: Bench) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    server = await bench.start(metadata, "bookkeeper:?ensemble=1")
    store = await bench.store(metadata)
    await store.delete(PATH)
    taken = json.dumps({"service_url": "pulsar://other:6650"}).encode()
    await store.put(PATH, taken, ephemeral=True)
    async with asyncio.timeout(10):
        failure = await server.serve_until(asyncio.Event())
    assert isinstance(failure, ConflictError)
    assert "taken over by the standalone server at pulsar://other:6650" in str(failure)


async def test_a_server_that_lost_its_place_looks_for_brokers_again(bench: Bench) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    server = await bench.start(metadata, "bookkeeper:?ensemble=1")
    store = await bench.store(metadata)
    # As a broker that registered while the server had no session.
    await store.put("/loadbalance/brokers/host-1:8080", b"{}", ephemeral=True)
    await store.delete(PATH)
    async with asyncio.timeout(10):
        failure = await server.serve_until(asyncio.Event())
    assert isinstance(failure, ConflictError)
    assert "brokers of a cluster" in str(failure)
    assert "host-1:8080" in str(failure)
    assert not await store.exists(PATH), "the mark is gone again"


async def test_bookies_with_metadata_of_their_own_serve_one_cluster(bench: Bench) -> None:
    first, second, registry = [await bench.service(name) for name in ("m1", "m2", "registry")]
    await bench.bookie(registry)
    url = f"bookkeeper:{registry.url}?ensemble=1"
    server = await bench.start(first, url)
    with pytest.raises(ConfigError, match=r"below /ledgers belong to cluster .* use the metadata"):
        await bench.start(second, url)
    store = await bench.store(second)
    assert await store.children("/anabranch") == ["features"], "nothing was written"
    await server.close()
    with pytest.raises(ConfigError, match="use the metadata that they were written with"):
        await bench.start(second, url)
    await bench.start(first, f"{url}&root=/ledgers")


async def test_messages_that_bookies_do_not_take_are_refused_at_the_start(bench: Bench) -> None:
    metadata = await bench.service("metadata")
    await bench.bookie(metadata)
    with pytest.raises(ConfigError, match=r"entries of up to 6009216 bytes, .* bookies take"):
        await bench.start(metadata, "bookkeeper:?ensemble=1", max_message_bytes=6_000_000)
    url = "bookkeeper:?ensemble=1&frame_bytes=6100000"
    await bench.start(metadata, url, max_message_bytes=6_000_000)
