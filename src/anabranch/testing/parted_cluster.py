"""Brokers of one process whose clusters, tenants and policies are in a configuration store."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from anabranch.client.admin import AdminClient
from anabranch.client.admin.namespace_policies import RETENTION
from anabranch.errors import AnabranchError
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.policies import RetentionRule
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.cluster_broker import ClusterBroker
from anabranch.server.cluster_setup import ClusterSetup, set_up
from anabranch.server.configuration_store import beside
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.server.web_server import web_servers, web_sockets

CLUSTER: Final = "river"
TENANT: Final = "garden"
SINGLE: Final = ("metadata", "configuration")
PARTITIONS: Final = 2
_ENDS: Final = ("finalized", "rolled back", "aborted", "failed")
_WRITE_GAP_S: Final = 0.02
_SOME: Final = 3
_SOME_S_MAX: Final = 30.0


class PartedCluster:
    """Two stores in use, two to come, and brokers."""

    def __init__(self, folder: Path, held: AsyncExitStack) -> None:
        self.runtime = real_runtime()
        self.urls: dict[str, str] = {}
        """By the name of each store: `metadata`, `configuration`, and `new …` of either."""
        self.services: dict[str, MetadataService] = {}
        self.brokers: list[Standalone] = []
        self._folder = folder
        self._held = held

    async def prepare(self) -> None:
        """Serve the stores, and do what `anabranch cluster init` does."""
        for name in (*SINGLE, *(f"new {name}" for name in SINGLE)):
            settings = Settings(data=str(self._folder / name.replace(" ", "-")), metadata_port=0)
            service = MetadataService(self.runtime, settings)
            await service.start()
            self._held.push_async_callback(service.close)
            self.services[name], self.urls[name] = service, service.url
        stores = [await self.store(name) for name in SINGLE]
        urls = [self.urls[name] for name in SINGLE]
        whole = await beside(urls, stores, self.runtime, dry_run=False)
        await set_up(whole, self.runtime, ClusterSetup(CLUSTER), dry_run=False)

    def settings(self, **changed: Any) -> Settings:
        """Of a broker."""
        usual = {
            "port": 0,
            "web_port": 0,
            "cluster": CLUSTER,
            "data": str(self._folder / "unused"),
            "metadata_url": self.urls["metadata"],
            "configuration_metadata_url": self.urls["configuration"],
            "metadata_migration_targets": " ".join(self.urls[f"new {name}"] for name in SINGLE),
            "metadata_session_timeout_s": 3.0,
            "ledgers_url": "memory:",
        }
        return Settings(**{**usual, **changed})

    async def start_broker(
        self, kind: type[Standalone] = ClusterBroker, **changed: Any
    ) -> Standalone:
        """Start one more."""
        settings = self.settings(**changed)
        web = self._held.enter_context(web_sockets(settings))
        broker = kind(self.runtime, settings, web_port=web.port)
        await broker.start()
        self._held.push_async_callback(broker.close)
        await self._held.enter_async_context(web_servers(broker, web, self.runtime.network))
        self.brokers.append(broker)
        return broker

    async def admin(self, number: int = 0) -> AdminClient:
        """A client of one of the brokers."""
        return await self._held.enter_async_context(AdminClient(self.brokers[number].web_url))

    async def store(self, name: str) -> MetadataStore:
        """One of the stores, past every broker."""
        store = await ServedStore.open(self.runtime, self.urls[name])
        self._held.push_async_callback(store.close)
        return store


class PolicyLoad:
    """Somebody who changes policies, and makes topics, all the time."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._task: asyncio.Task[None] | None = None
        self.namespaces: dict[str, int] = {}
        """Each that was acknowledged, with the minutes that were."""
        self.topics: list[str] = []
        self.refused: list[str] = []
        self._written = asyncio.Condition()

    async def begin(self) -> None:
        """Make the tenant, and go on until `stop`."""
        await self._admin.tenants.create(TENANT, clusters=[CLUSTER])
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def _go_on(self) -> None:
        number = 0
        while True:
            number += 1
            namespace = f"{TENANT}/n{number}"
            rule = RetentionRule(time_minutes=number, size_mb=1)
            topic = f"persistent://{namespace}/t"
            try:
                await self._admin.namespaces.create(namespace)
                await self._admin.namespaces.set_policy(namespace, RETENTION, rule)
                self.namespaces[namespace] = number
                await self._admin.topics.create_partitioned(topic, PARTITIONS)
                await self._admin.topics.create(f"{topic}-plain")
                self.topics.append(topic)
                async with self._written:
                    self._written.notify_all()
            except AnabranchError as error:
                self.refused.append(str(error))
            await asyncio.sleep(_WRITE_GAP_S)

    async def some_more(self) -> None:
        """Wait until something more was acknowledged; that takes long where many try to run."""
        enough = len(self.topics) + _SOME
        async with asyncio.timeout(_SOME_S_MAX), self._written:
            await self._written.wait_for(lambda: len(self.topics) >= enough)

    async def stop(self) -> None:
        """Stop writing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def missing(self, admin: AdminClient) -> list[str]:
        """What was acknowledged and is not there, as a broker sees it."""
        lost = []
        for namespace, minutes in self.namespaces.items():
            rule = await admin.namespaces.policy(namespace, RETENTION)
            if rule is None or rule.time_minutes != minutes:
                lost.append(namespace)
        for topic in self.topics:
            namespace = topic.split("://")[1].rpartition("/")[0]
            names = await admin.topics.names(namespace)
            if await admin.topics.partitions(topic) != PARTITIONS or f"{topic}-plain" not in names:
                lost += [topic]
        return lost


async def until(admin: AdminClient, store: str, phase: str, wait_s: float = 60.0) -> dict[str, Any]:
    """Wait until an operation is in a phase; one that fails is not waited for."""
    async with asyncio.timeout(wait_s):
        while True:
            found = await admin.metadata_migration.status(store)
            assert not found.get("error"), found["error"]
            if found["phase"] == phase:
                return found
            assert found["phase"] not in _ENDS, found["phase"]
            await asyncio.sleep(0.05)
