"""`anabranch cluster init`: the nodes of Pulsar's own tool, once, and nothing in a dry run."""

import json

import pytest

from anabranch.errors import ConfigError
from anabranch.metadata.memory import MemoryStore
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_setup import ClusterSetup, set_up


async def test_a_cluster_is_prepared_once_and_opened_to_a_second_one() -> None:
    runtime = real_runtime()
    store = MemoryStore(runtime.clock)
    planned = await set_up(store, runtime, ClusterSetup("blue"), dry_run=True)
    assert {done.what for done in planned} == {"created"}
    assert not await store.exists("/admin"), "a dry run writes nothing"
    assert await set_up(store, runtime, ClusterSetup("blue"), dry_run=False) == planned
    instance = await store.get("/ledgers/INSTANCEID")
    assert instance is not None
    assert [len(part) for part in instance.value.decode().split("-")] == [8, 4, 4, 4, 12]
    again = await set_up(store, runtime, ClusterSetup("blue", bundles=9), dry_run=False)
    assert {done.what for done in again} == {"there"}
    second = dict(await set_up(store, runtime, ClusterSetup("green"), dry_run=False))
    assert second["/admin/clusters/green"] == "created"
    assert second["/admin/policies/public"] == "extended"
    tenant = await store.get("/admin/policies/public")
    assert tenant is not None
    assert json.loads(tenant.value)["allowedClusters"] == ["blue", "green"]
    namespace = await store.get("/admin/policies/public/default")
    assert namespace is not None
    assert json.loads(namespace.value)["bundles"]["numBundles"] == 4
    await store.close()


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="may have letters"):
        ClusterSetup("a/b")
