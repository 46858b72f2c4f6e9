"""`anabranch metadata` on servers that are set up otherwise: lower limits, nodes that expire."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_metadata_tools_refuse import begin, digest, refusal, run

from anabranch.metadata.store import Record
from anabranch.metadata.zookeeper.requests import Flag
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import zookeeper
from anabranch.testing.servers.oxia import oxia

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.goal("core.M8", part="tools"),
]
REQUEST_BYTES = 65_536
VALUE_BYTES_MAX = 1_048_576
OUTCOME_UNKNOWN = 3


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings = (f"-Djute.maxbuffer={REQUEST_BYTES}", "-Dzookeeper.extendedTypesEnabled=true")
    with zookeeper(memory=settings) as ensemble:
        yield f"{ensemble.url}/settings"


def test_a_value_above_the_limit_of_zookeeper_changes_nothing(url: str, tmp_path: Path) -> None:
    run("put", "/kept", "--value", "kept", "--url", url)
    before = digest(url)
    large = tmp_path / "large"
    large.write_bytes(b"x" * (REQUEST_BYTES + 1))
    # The server hangs up and says nothing, so nobody can know for sure.
    said = refusal(begin("put", "/kept", "--file", large, "--url", url), OUTCOME_UNKNOWN)
    assert "if the servers' jute.maxbuffer is lower, set it in the URL" in said
    told = f"{url}?jute.maxbuffer={REQUEST_BYTES}"
    said = refusal(begin("put", "/kept", "--file", large, "--url", told))
    assert f"ZooKeeper takes requests of {REQUEST_BYTES} bytes: raise jute.maxbuffer" in said
    assert digest(url) == before


def test_a_value_above_the_limit_on_oxia_changes_nothing(tmp_path: Path) -> None:
    """Ours is lower than that of the server, which takes more than the largest value we allow."""
    largest, large = tmp_path / "largest", tmp_path / "large"
    largest.write_bytes(b"x" * VALUE_BYTES_MAX)
    large.write_bytes(b"x" * (VALUE_BYTES_MAX + 1))
    with oxia() as server:
        run("put", "/kept", "--file", largest, "--url", server.url)
        before = digest(server.url)
        said = refusal(begin("put", "/kept", "--file", large, "--url", server.url))
        assert f"at most {VALUE_BYTES_MAX} bytes are allowed" in said
        assert digest(server.url) == before


def test_a_copy_above_the_limit_of_its_target_writes_nothing(url: str, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (REQUEST_BYTES + 1))
    with oxia() as server:
        run("put", "/copied/small", "--value", "x", "--url", server.url)
        run("put", "/copied/z-large", "--file", large, "--url", server.url)
        before = digest(url)
        target = f"{url}?jute.maxbuffer={REQUEST_BYTES}"
        said = refusal(begin("copy", server.url, target, "--prefix", "/copied"))
    assert "the first is /copied/z-large" in said
    assert "raise jute.maxbuffer" in said
    assert digest(url) == before


def test_no_client_can_tell_nodes_that_expire_from_those_that_stay(url: str) -> None:
    """Or they would have to be counted, and told to whoever makes a copy of them."""

    async def make() -> tuple[list[int], list[Record]]:
        store = await ZooKeeperStore.open(real_runtime(), url)
        await store.put("/aging", b"")
        made = [
            await store.client.create("/aging/ttl", b"", Flag.TTL, ttl_ms=3_600_000),
            await store.client.create("/aging/container", b"", Flag.CONTAINER),
        ]
        records = [record async for record in store.export("/aging")]
        read = [await store.client.get_data(path) for path, _ in made]
        owners = [stat.owner for _, stat in (*made, *read)]
        await store.close()
        return owners, records

    owners, records = asyncio.run(make())
    assert owners == [0] * 4, "the server told what they are"
    assert [record.path for record in records] == ["/aging", "/aging/container", "/aging/ttl"]
    assert [record.session for record in records] == [None] * 3
