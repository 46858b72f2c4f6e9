"""The configuration store and the metadata store are replaced one without the other, or both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError, ConfigError, Fenced
from anabranch.ids import TopicName
from anabranch.metadata.announced import journal_path
from anabranch.testing.parted_cluster import (
    CLUSTER,
    SINGLE,
    TENANT,
    PartedCluster,
    PolicyLoad,
    until,
)
from anabranch.testing.web_call import call

pytestmark = pytest.mark.timeout(240)
JOURNAL = journal_path("metadata")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[PartedCluster]:
    async with AsyncExitStack() as held:
        cluster = PartedCluster(tmp_path, held)
        await cluster.prepare()
        yield cluster


@pytest.fixture
async def load(cluster: PartedCluster) -> AsyncIterator[PolicyLoad]:
    for _ in range(2):
        await cluster.start_broker()
    load = PolicyLoad(await cluster.admin())
    await load.begin()
    await load.some_more()
    yield load
    await load.stop()


async def namespaces_in(cluster: PartedCluster, name: str) -> set[str]:
    store = await cluster.store(name)
    return {f"{TENANT}/{child}" for child in await store.children(f"/admin/policies/{TENANT}")}


@pytest.mark.goal("454.A37", part="separately", broken_by="wrong_store_is_replaced")
@pytest.mark.parametrize(("moves", "stays"), [SINGLE, SINGLE[::-1]])
async def test_one_is_replaced_and_the_other_stays(
    cluster: PartedCluster, load: PolicyLoad, moves: str, stays: str
) -> None:
    admin = await cluster.admin(1)
    for verb, rests in (("rollback", "rolled back"), ("finalize", "finalized")):
        await admin.metadata_migration.start({"target": cluster.urls[f"new {moves}"]}, moves)
        found = await until(admin, moves, "switched")
        assert len(found["participants"]) == 2
        await load.some_more()
        await admin.metadata_migration.ask(verb, store=moves)
        await until(admin, moves, rests)
        await load.some_more()
    assert (await admin.metadata_migration.status(stays))["phase"] is None
    assert await (await cluster.store(stays)).get(JOURNAL) is None
    assert await (await cluster.store(f"new {stays}")).children("/") == ["anabranch"]
    await load.stop()
    assert not load.refused
    assert await load.missing(admin) == []
    configuration = "new configuration" if moves == "configuration" else "configuration"
    assert await namespaces_in(cluster, configuration) >= set(load.namespaces)
    for name in ("metadata", "new metadata"):
        assert await namespaces_in(cluster, name) == set(), "policies are in no metadata store"


@pytest.mark.goal("454.A37", part="separately", broken_by="everything_is_local")
async def test_both_are_replaced_at_once_and_one_goes_back(
    cluster: PartedCluster, load: PolicyLoad
) -> None:
    """As `together` is where there are two stores: neither waits for the other."""
    admin = await cluster.admin(1)
    for name in SINGLE:
        await admin.metadata_migration.start({"target": cluster.urls[f"new {name}"]}, name)
    for name in SINGLE:
        await until(admin, name, "switched")
    await load.some_more()
    await admin.metadata_migration.ask("rollback", store="metadata")
    await admin.metadata_migration.ask("finalize", store="configuration")
    await until(admin, "metadata", "rolled back")
    await until(admin, "configuration", "finalized")
    await load.some_more()
    await both_are_shown(cluster)
    await load.stop()
    assert not load.refused
    assert await load.missing(admin) == []
    assert await namespaces_in(cluster, "new configuration") >= set(load.namespaces)
    owned = await (await cluster.store("metadata")).children(f"/managed-ledgers/{TENANT}")
    left = await (await cluster.store("new metadata")).children(f"/managed-ledgers/{TENANT}")
    assert {f"{TENANT}/{name}" for name in owned} >= set(load.namespaces)
    assert set(left) < set(owned), "the rollback has brought everything back"


async def all_have_left(cluster: PartedCluster) -> None:
    """Every broker has let go of both old stores."""
    async with asyncio.timeout(30):
        for broker in cluster.brokers:
            for store in (broker._stores.local, broker._stores.configuration):
                assert store is not None
                assert store.replaceable is not None
                while not store.replaceable.journal.ended:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def sealed(cluster: PartedCluster, setting: str, old: dict[str, str]) -> None:
    """A broker that takes no part is told which setting is old; the other one is right."""
    new = {
        "metadata_url": cluster.urls["new metadata"],
        "configuration_metadata_url": cluster.urls["new configuration"],
    }
    with pytest.raises(ConfigError, match=f"set {setting} to that one"):
        await cluster.start_broker(**{**new, **old})


async def both_are_shown(cluster: PartedCluster) -> None:
    """Among a broker's figures, under one heading."""
    wanted = {
        f'anabranch_migration_phase{{operation="metadata",of="{name}",phase="{phase}"}} 1'
        for name, phase in zip(SINGLE, ("rolled back", "finalized"), strict=True)
    }
    async with asyncio.timeout(30):
        while True:
            page = (await call(cluster.brokers[0].web_app, "/metrics")).body.decode()
            lines = page.splitlines()
            if wanted <= set(lines):
                break
            await asyncio.sleep(0.1)
    assert lines.count("# TYPE anabranch_migration_phase gauge") == 1


@pytest.mark.goal("454.A37", part="separately", broken_by="successor_is_not_looked_for")
async def test_a_broker_with_the_old_addresses_finds_both(
    cluster: PartedCluster, load: PolicyLoad
) -> None:
    admin = await cluster.admin(1)
    for name in SINGLE:
        await admin.metadata_migration.start({"target": cluster.urls[f"new {name}"]}, name)
        await until(admin, name, "switched")
        await admin.metadata_migration.ask("finalize", store=name)
        await until(admin, name, "finalized")
    await load.some_more()
    await load.stop()
    await all_have_left(cluster)
    for name, setting in zip(SINGLE, ("metadata_url", "configuration_metadata_url"), strict=True):
        old = {setting: cluster.urls[name], "metadata_migration_targets": ""}
        await sealed(cluster, setting, old)
        await cluster.services[name].close()
    late = await cluster.start_broker()
    asked = await cluster.admin(len(cluster.brokers) - 1)
    assert await load.missing(asked) == []
    await asked.tenants.create("latecomer", clusters=[CLUSTER])
    assert await (await cluster.store("new configuration")).exists("/admin/policies/latecomer")
    assert late.configuration_migration is not None
    fixed = await cluster.start_broker(
        metadata_url=cluster.urls["new metadata"],
        configuration_metadata_url=cluster.urls["new configuration"],
    )
    assert fixed.why_not_ready() is None


@pytest.mark.goal("454.A37", part="separately", broken_by="brokers_apart_are_overlooked")
async def test_what_stands_against_it_is_named(cluster: PartedCluster, load: PolicyLoad) -> None:
    await load.stop()
    admin = await cluster.admin()
    target = {"target": cluster.urls["new configuration"]}
    plan = await admin.metadata_migration.plan(target, "configuration")
    assert not plan["blockers"]
    assert any("this is the configuration store" in note for note in plan["notes"])
    stays = await admin.metadata_migration.plan(
        {"target": cluster.urls["new metadata"]}, "metadata"
    )
    assert not stays["blockers"], "topics without tenants are as they should be"
    assert any("stay there" in note for note in stays["notes"])

    mute = await cluster.start_broker(metadata_migration_targets="")
    for asked in (admin.metadata_migration.plan, admin.metadata_migration.start):
        try:
            found = await asked(target, "configuration")
        except AnabranchError as refused:
            blocked = str(refused)
        else:
            assert len(found["blockers"]) == 1
            blocker = found["blockers"][0]
            blocked = blocker["who"] + blocker["why"]
        assert mute.broker.ownership.me.broker_id in blocked
        assert "takes no part in replacing the configuration store" in blocked
    assert (await admin.metadata_migration.status("configuration"))["phase"] is None


@pytest.mark.broken_by("owners_ask_both_stores")
async def test_owners_need_no_configuration_store(cluster: PartedCluster) -> None:
    for _ in range(2):
        await cluster.start_broker()
    topic = TopicName.parse("persistent://public/default/t")
    ownerships = [broker.broker.ownership for broker in cluster.brokers]
    await ownerships[0].require(topic)
    await ownerships[1].locate(topic)  # what its namespace is like is remembered
    await cluster.services["configuration"].close()
    for ownership in ownerships:
        if ownership.owns(topic):
            await ownership.require(topic)
        else:
            with pytest.raises(Fenced, match="Please redo the lookup"):
                await ownership.require(topic)
