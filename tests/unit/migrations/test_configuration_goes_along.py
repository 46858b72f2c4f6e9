"""Clusters, tenants and policies that are in the metadata store itself go where it goes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.client.admin import AdminClient
from anabranch.client.admin.namespace_policies import RETENTION
from anabranch.errors import ConfigError
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.table import Verb
from anabranch.policies import RetentionRule
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import SETTINGS, Settings
from anabranch.server.settings_sources import check_together
from anabranch.server.web_server import web_servers, web_sockets
from anabranch.testing.staged_replacement import LONG_S, SOURCE_URL, TARGET_URL, staged

CLUSTER, TENANT, NAMESPACE = "standalone", "garden", "garden/roses"
BEFORE, ON_THE_WAY, SINCE = (
    RetentionRule(time_minutes=minutes, size_mb=1) for minutes in (10, 20, 30)
)
DOCUMENTS = tuple(
    f"/admin/{name}"
    for name in (f"clusters/{CLUSTER}", f"policies/{TENANT}", f"policies/{NAMESPACE}")
)


class Bench:
    """Two served stores, and a server that goes from one to the other."""

    def __init__(self, folder: Path, held: AsyncExitStack) -> None:
        self.runtime = real_runtime()
        self.source = self.target = ""
        self._folder = folder
        self._held = held

    async def serve(self) -> None:
        self.source, self.target = [await self._service(name) for name in ("source", "target")]

    async def _service(self, name: str) -> str:
        settings = Settings(data=str(self._folder / name), metadata_port=0)
        service = MetadataService(self.runtime, settings)
        await service.start()
        self._held.push_async_callback(service.close)
        return service.url

    async def server(self, metadata_url: str, targets: str = "") -> Standalone:
        settings = Settings(
            port=0,
            web_port=0,
            data=str(self._folder / "unused"),
            metadata_url=metadata_url,
            metadata_migration_targets=targets,
            ledgers_url="memory:",
        )
        web = self._held.enter_context(web_sockets(settings))
        server = Standalone(self.runtime, settings, web_port=web.port, web_tls_port=web.tls_port)
        await server.start()
        self._held.push_async_callback(server.close)
        await self._held.enter_async_context(web_servers(server, web, self.runtime.network))
        return server

    async def store(self, url: str) -> MetadataStore:
        store = await ServedStore.open(self.runtime, url)
        self._held.push_async_callback(store.close)
        return store


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as held:
        bench = Bench(tmp_path, held)
        await bench.serve()
        yield bench


async def until(operation: Operation, phase: str) -> None:
    async with asyncio.timeout(LONG_S):
        while True:
            state = (await operation.status()).state
            assert state is not None
            assert not state.error, state.error
            if state.phase == phase:
                return
            await asyncio.sleep(0.02)


async def documents(store: MetadataStore) -> list[bytes]:
    found = [await store.get(path) for path in DOCUMENTS]
    return [b"" if node is None else node.value for node in found]


@pytest.mark.timeout(180)
@pytest.mark.goal("454.A37", part="together", broken_by="tenants_stay_behind")
async def test_tenants_and_policies_go_there_and_back_with_the_store(bench: Bench) -> None:
    server = await bench.server(bench.source, bench.target)
    operation = server.metadata_migration
    assert operation is not None
    async with AdminClient(server.web_url) as admin:
        await admin.tenants.create(TENANT, clusters=[CLUSTER], admin_roles=["gardener"])
        await admin.namespaces.create(NAMESPACE)
        await admin.namespaces.set_policy(NAMESPACE, RETENTION, BEFORE)
        await operation.start({"target": bench.target}, "somebody")
        await admin.namespaces.set_policy(NAMESPACE, RETENTION, ON_THE_WAY)
        await admin.tenants.update(TENANT, clusters=[CLUSTER], admin_roles=["gardener", "cook"])
        await until(operation, "switched")
        source, target = await bench.store(bench.source), await bench.store(bench.target)
        assert all(await documents(target)), "every kind of them came along"
        assert await documents(target) == await documents(source)
        assert await admin.clusters.names() == [CLUSTER]
        assert await admin.namespaces.policy(NAMESPACE, RETENTION) == ON_THE_WAY
        assert set((await admin.tenants.info(TENANT)).admin_roles) == {"gardener", "cook"}
        await admin.namespaces.set_policy(NAMESPACE, RETENTION, SINCE)
        await operation.ask(Verb.ROLLBACK, "somebody")
        await until(operation, "rolled back")
        assert await admin.namespaces.policy(NAMESPACE, RETENTION) == SINCE
        assert await documents(source) == await documents(target)


async def test_a_plan_says_that_they_go_along() -> None:
    async with staged("ash") as stage:
        for path in ("/admin/clusters/c", "/admin/policies/t/n", "/managed-ledgers/t/n/p/x"):
            await stage.anybody.store.put(path, b"{}")
        plan = await stage.operation.plan({"target": TARGET_URL})
        assert plan.figures["configuration"] == 5, "nodes of clusters, tenants and policies"
        assert [note for note in plan.notes if "go along" in note] == [
            "clusters, tenants and policies are in this store, and go along"
        ]
        assert not plan.blockers


@pytest.mark.broken_by("missing_policies_are_overlooked")
async def test_topics_whose_tenants_are_elsewhere_block_the_start() -> None:
    """As where Pulsar's configurationMetadataStoreUrl names another store."""
    async with staged("ash") as stage:
        await stage.anybody.store.put("/managed-ledgers/t/n/persistent/x", b"{}")
        plan = await stage.operation.plan({"target": TARGET_URL})
        assert [blocker.who for blocker in plan.blockers] == ["/admin"]
        blocker = plan.blockers[0]
        assert "configuration store of its own" in blocker.why
        assert "Name that in the setting configuration_metadata_url" in blocker.why
        assert await stage.anybody.replaceable.journal.read() is None
        assert SOURCE_URL not in blocker.why


@pytest.mark.broken_by("configuration_store_is_ignored")
def test_a_configuration_store_is_one_that_others_reach() -> None:
    setting = SETTINGS["configuration_metadata_url"]
    for good in ("", "zk:127.0.0.1:2184/shared", "oxia://127.0.0.1:6648/shared"):
        assert setting.accept(good) == good
    for alone in ("memory:", "embedded:", "embedded:elsewhere"):
        with pytest.raises(ValueError, match="for one process alone"):
            setting.accept(alone)
    with pytest.raises(ValueError, match="is wrong"):
        setting.accept("zk:")
    with pytest.raises(ConfigError, match="keeps its tenants there"):
        check_together(Settings(configuration_metadata_url="zk:127.0.0.1:2184"))
