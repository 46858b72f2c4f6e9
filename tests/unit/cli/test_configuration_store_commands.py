"""A configuration store from the terminal: prepared, and replaced without the metadata store."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.client.admin import AdminClient
from anabranch.policies.paths import CLUSTERS
from anabranch.server.assembly import Standalone
from anabranch.testing.parted_cluster import CLUSTER, SINGLE, PartedCluster
from anabranch.testing.planted import child_command
from anabranch.testing.web_call import call

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "replace-the-metadata-store.md"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[PartedCluster]:
    async with AsyncExitStack() as held:
        cluster = PartedCluster(tmp_path, held)
        await cluster.prepare()
        yield cluster


async def run(*words: str, exit_code: int = 0) -> str:
    """What a command prints; it runs in a thread, since it has a loop of its own."""
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert result.exit_code == exit_code, (words, result.output, result.exception)
    return result.output


async def refused(*words: str) -> str:
    """Why a server does not start; it has a process of its own."""
    pipe = asyncio.subprocess.PIPE
    command = child_command("anabranch", *words)
    ran = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, said = await ran.communicate()
    assert ran.returncode == 2, (output, said)
    assert b"Traceback" not in said
    return said.decode()


async def paths_in(cluster: PartedCluster, name: str) -> set[str]:
    return {node.stat.path async for node in (await cluster.store(name)).scan("/")}


@pytest.mark.goal("454.A37", part="separately", broken_by="everything_is_local")
async def test_a_cluster_is_prepared_in_both(cluster: PartedCluster) -> None:
    new, shared = cluster.urls["new metadata"], cluster.urls["configuration"]
    words = ("cluster", "init", "--cluster", "brook", "--metadata-url", new)
    before = await paths_in(cluster, "new metadata")
    done = await run(*words, "--configuration-metadata-url", shared, "--dry-run")
    assert "created   /admin/clusters/brook" in done
    assert await paths_in(cluster, "new metadata") == before, "a dry run writes nothing"
    done = await run(*words, "--configuration-metadata-url", shared)
    assert "extended  /admin/policies/public" in done
    assert await (await cluster.store("configuration")).children(CLUSTERS) == ["brook", CLUSTER]
    local = await paths_in(cluster, "new metadata")
    assert "/ledgers/INSTANCEID" in local
    assert not any(path.startswith("/admin") for path in local)
    why = await run(*words, exit_code=2)
    assert "name it in the setting configuration_metadata_url" in why
    other = ("--configuration-metadata-url", cluster.urls["new configuration"])
    assert "is new or was emptied" in await run(*words, *other, exit_code=2)
    assert await paths_in(cluster, "new metadata") == local


@pytest.mark.goal("454.A37", part="separately", broken_by="any_configuration_will_do")
async def test_configuration_moves_to_a_store_of_its_own_as_the_guide_says(
    cluster: PartedCluster,
) -> None:
    whole, apart = cluster.urls["new metadata"], cluster.urls["new configuration"]
    await run("cluster", "init", "--cluster", "brook", "--metadata-url", whole)
    before = await paths_in(cluster, "new metadata")
    await refused_as_shared(whole, apart)
    for line in GUIDE.read_text().splitlines():
        if line.startswith(("anabranch metadata copy", "anabranch metadata delete")):
            line = line.replace("zk:127.0.0.1:2181/river", whole)
            await run(*shlex.split(line.replace("zk:127.0.0.1:2181/shared", apart))[1:])
    moved = {path for path in before if path.startswith("/admin/")}
    assert moved <= await paths_in(cluster, "new configuration")
    assert not moved & await paths_in(cluster, "new metadata")
    server = await cluster.start_broker(
        cluster="brook", metadata_url=whole, configuration_metadata_url=apart
    )
    await run("tenants", "create", "after", "--web-url", server.web_url)
    assert "/admin/policies/after" in await paths_in(cluster, "new configuration")


async def refused_as_shared(whole: str, apart: str) -> None:
    words = ("--cluster", "brook", "--metadata-url", whole, "--configuration-metadata-url", apart)
    why = await run("cluster", "init", *words, exit_code=2)
    assert "the metadata store has /admin/clusters/brook itself" in why


async def test_a_server_for_itself_keeps_its_tenants_there(cluster: PartedCluster) -> None:
    new = {"metadata_url": "new metadata", "configuration_metadata_url": "new configuration"}
    urls = {setting: cluster.urls[name] for setting, name in new.items()}
    server = await cluster.start_broker(Standalone, **urls)
    page = await call(server.web_app, "/admin/v2/brokers/internal-configuration")
    found = json.loads(page.body)
    places = [found[name] for name in ("metadataStoreUrl", "configurationMetadataStoreUrl")]
    assert places == list(urls.values())
    async with AdminClient(server.web_url) as admin:
        await admin.tenants.create("mine", clusters=[server.cluster])
        await admin.namespaces.create("mine/n", bundles=2)
        await admin.topics.create("persistent://mine/n/plain")
        await admin.topics.create_partitioned("persistent://mine/n/cut", 2)
        assert await admin.topics.names_of_partitioned("mine/n") == ["persistent://mine/n/cut"]
        await admin.topics.delete_partitioned("persistent://mine/n/cut")
        await admin.topics.delete("persistent://mine/n/plain")
        await admin.namespaces.delete("mine/n")
        assert await admin.namespaces.names("mine") == []
    tenants = await (await cluster.store("new configuration")).children("/admin/policies")
    assert {"mine", "public"} <= set(tenants)
    local = await paths_in(cluster, "new metadata")
    assert not any(path.startswith(("/admin/policies", "/admin/clusters")) for path in local)


async def test_a_broker_says_what_its_stores_lack(cluster: PartedCluster) -> None:
    broker = ("broker", "--cluster", "nowhere", "--ledgers-url", "bookkeeper:?ensemble=1")
    broker += ("--metadata-url", cluster.urls["metadata"], "--port", "0", "--web-port", "0")
    shared = ("--configuration-metadata-url", cluster.urls["configuration"])
    why = await refused(*broker, *shared)
    assert f"there is no cluster nowhere in {cluster.urls['configuration']}" in why
    assert "--configuration-metadata-url" in why
    assert "configuration_metadata_url" in await refused(*broker)


@pytest.mark.goal("454.A37", part="separately", broken_by="wrong_store_is_replaced")
async def test_a_configuration_store_is_replaced_from_the_terminal(
    cluster: PartedCluster,
) -> None:
    server = await cluster.start_broker()
    target = cluster.urls["new configuration"]

    async def migrate(*words: str, exit_code: int = 0, store: str = "configuration") -> str:
        place = ("--web-url", server.web_url, "--store", store)
        return await run("migrate", "metadata", *words, *place, exit_code=exit_code)

    assert "metadata (configuration): never started" in await migrate("status")
    assert "this is the configuration store" in await migrate("plan", target)
    assert "'metadata', 'configuration'" in await migrate("status", exit_code=2, store="both")
    for forbidden in (cluster.urls["metadata"], "oxia://elsewhere:1/x"):
        why = await migrate("start", forbidden, exit_code=1)
        assert "metadata_migration_targets" in why
    assert "started attempt" in await migrate("start", target)
    await migrate("watch", "--interval-s", "0.1")
    found = json.loads(await migrate("status", "--output", "json"))
    assert (found["of"], found["phase"]) == ("configuration", "switched"), found["error"]
    assert "never started" in await migrate("status", store="metadata")
    assert "switched takes" in await migrate("pause", "--dry-run", exit_code=1)
    await migrate("rollback", "--why", "to see")
    await migrate("watch", "--interval-s", "0.1")
    await migrate("start", target)
    await migrate("watch", "--interval-s", "0.1")
    await migrate("finalize")
    await migrate("watch", "--interval-s", "0.1")
    await run("tenants", "create", "after", "--web-url", server.web_url)
    assert "/admin/policies/after" in await paths_in(cluster, "new configuration")
    for name in SINGLE:
        assert "/admin/policies/after" not in await paths_in(cluster, name)
