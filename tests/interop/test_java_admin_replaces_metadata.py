"""The Java admin client of Pulsar 5.0.0-M1 has our brokers replace ZooKeeper by Oxia."""

import asyncio
from pathlib import Path

import pytest

from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.java_programs import marked_lines, said_by
from anabranch.testing.servers.replaceable_cluster import replaceable_cluster

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
PROGRAM = Path(__file__).with_name("MigrateMetadata.java")
OF_THE_CLUSTER = 1
"""The namespace that is there from the beginning."""
SEEN = [
    "before NOT_STARTED null",
    "elsewhere 400",
    "twice 409",
    "others []",
    "after COMPLETED true",
    f"namespaces {OF_THE_CLUSTER + 2}",
]


async def namespaces(url: str) -> list[str]:
    store = await open_store(url, real_runtime())
    try:
        return await store.children("/admin/policies/public")
    finally:
        await store.close()


@pytest.mark.goal("454.A44", part="java")
def test_the_java_admin_client_drives_a_whole_migration(tmp_path: Path) -> None:
    with replaceable_cluster(tmp_path, brokers=1) as cluster:
        said = said_by(PROGRAM, cluster.web_urls[0], cluster.target.url)
        assert marked_lines(said) == SEEN
        found = asyncio.run(namespaces(cluster.target.url))
    assert {"before", "after", "default", "meanwhile-0"} <= set(found)
