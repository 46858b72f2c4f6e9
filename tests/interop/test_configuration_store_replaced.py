"""The stores of real brokers with a configuration store are replaced under load, each by itself.

Tenants and policies go from ZooKeeper to Oxia for good, and meanwhile the metadata from one chroot
to another and back. Then every broker is restarted with the configuration it had.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.client.admin import AdminClient
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.admin_load import AdminLoad
from anabranch.testing.made_histories import broken_rules
from anabranch.testing.parted_cluster import until
from anabranch.testing.servers import zookeeper
from anabranch.testing.servers.bookkeeper import bookkeeper
from anabranch.testing.servers.our_brokers import OurBrokers, init_cluster, our_brokers
from anabranch.testing.servers.oxia import oxia
from anabranch.verify.check import check_folder
from anabranch.verify.records import SubscriptionType
from anabranch.verify.workload import Workload, WorkloadSettings

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
SLOWNESS = {"C14"}
"""How long a client waits depends on what else the machine does."""
REST_S = 3.0
WAIT_S = 180.0


@dataclass(frozen=True)
class Servers:
    """Running brokers, and where their stores are and go."""

    brokers: OurBrokers
    metadata: str
    configuration: str
    next_metadata: str
    next_configuration: str

    @property
    def web_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.brokers.web_ports]


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    with ExitStack() as held:
        keeper = held.enter_context(zookeeper(memory=("-Xmx256m",), folder=folder / "zookeeper"))
        target = held.enter_context(oxia(folder=folder / "oxia"))
        local, shared, registry = [f"{keeper.url}/{name}" for name in ("a", "shared", "bookies")]
        init_cluster(registry)
        init_cluster(local, configuration_url=shared)
        held.enter_context(bookkeeper(registry, 1, folder=folder / "bookies"))
        targets = (f"{keeper.url}/b", target.url)
        brokers = held.enter_context(
            our_brokers(
                local,
                2,
                ledgers_url=f"bookkeeper:{registry}?ensemble=1&write=1&ack=1",
                options=(
                    *("--configuration-metadata-url", shared),
                    *("--metadata-migration-targets", " ".join(targets)),
                    *("--metadata-session-timeout-s", "6"),
                ),
                folder=folder / "brokers",
            )
        )
        yield Servers(brokers, local, shared, *targets)


async def policies_in(url: str) -> set[str]:
    store = await open_store(url, real_runtime())
    try:
        return {node.stat.path async for node in store.scan("/admin/policies")}
    finally:
        await store.close()


async def replace_both(running: Servers, load: AdminLoad) -> None:
    """At once; the one goes back, the other stays."""
    async with AdminClient(running.web_urls[1]) as admin:
        migration = admin.metadata_migration
        await migration.start({"target": running.next_configuration}, "configuration")
        await migration.start({"target": running.next_metadata}, "metadata")
        for store in ("metadata", "configuration"):
            found = await until(admin, store, "switched", WAIT_S)
            assert len(found["participants"]) == 2
            print("\n".join(found["lines"]))
        await written(load)
        await migration.ask("finalize", store="configuration")
        await migration.ask("rollback", store="metadata")
        await until(admin, "configuration", "finalized", WAIT_S)
        await until(admin, "metadata", "rolled back", WAIT_S)
        await written(load)


async def written(load: AdminLoad) -> None:
    before = load.acknowledged
    await asyncio.sleep(REST_S)
    assert load.acknowledged > before, "nobody can write"


async def play(running: Servers, load: AdminLoad, workload: Workload) -> None:
    try:
        await workload.start()
        load.begin()
        await written(load)
        await replace_both(running, load)
        assert load.retried == [], "no request has to be sent again"
        for member in running.brokers.members:
            member.stop()
            member.start()
        await asyncio.sleep(REST_S)
        await written(load)
        await load.stop()
        await workload.stop_sending()
        await workload.drain()
    finally:
        await load.stop()
        await workload.close()
    workload.raise_failure()
    for web_url in running.web_urls:
        assert await load.check(web_url) == []
    left, in_use = [
        await policies_in(url) for url in (running.configuration, running.next_configuration)
    ]
    assert left < in_use, "what was made after the end is in the new store alone"
    for url in (running.metadata, running.next_metadata):
        assert await policies_in(url) == set(), "no metadata store has ever had policies"


@pytest.mark.goal("454.A37", part="separately")
def test_each_store_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with servers(tmp_path / "servers") as running:
        load = AdminLoad(running.web_urls)
        workload = Workload(
            WorkloadSettings(
                url=running.brokers.service_url,
                topic="persistent://public/default/parted",
                run="68ab" * 4,
                seed=68,
                producers=2,
                subscriptions=tuple(SubscriptionType),
                rate=50.0,
                send_timeout_s=90.0,
                idle_s=30.0,
            ),
            tmp_path / "history",
        )
        asyncio.run(play(running, load, workload))
    verdict = check_folder(tmp_path / "history")
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert load.acknowledged > 50
