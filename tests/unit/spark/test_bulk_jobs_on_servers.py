"""Trees of metadata copied and compared by Spark between a real ZooKeeper and a real Oxia."""

import contextlib

import pytest

from anabranch.metadata.factory import open_store
from anabranch.migrations.engine.bulk import CompareWishes, Mismatch, StorePlace
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.bulk_engine import fill
from anabranch.testing.made_trees import made_tree
from anabranch.testing.oxia_wiping import wipe
from anabranch.testing.servers import zookeeper
from anabranch.testing.servers.oxia import oxia
from pyspark_anabranch.jobs.spark_bulk import SparkBulk

pytestmark = [
    pytest.mark.peer,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]
NODES = 1500
TOPIC = "/namespace-00000/topic-{:04}/cursor-1"


@pytest.fixture(scope="module")
def servers():
    with contextlib.ExitStack() as held:
        ensemble = held.enter_context(zookeeper())
        yield ensemble.url, held.enter_context(oxia(2))


@pytest.mark.goal("spark.B1", part="zookeeper to oxia")
@pytest.mark.goal("spark.B2", part="zookeeper to oxia")
async def test_from_zookeeper_to_oxia_and_ten_differences_between_them(spark, servers):
    left, right = StorePlace(f"{servers[0]}/to-oxia"), StorePlace(servers[1].url)
    await wipe(servers[1])
    await fill(left.url, list(made_tree(NODES + 1, 100))[1:])
    engine = SparkBulk(spark)
    await copied_once(engine, left, right)
    await found_exactly(engine, left, right)


@pytest.mark.goal("spark.B1", part="oxia to zookeeper")
async def test_from_oxia_to_zookeeper(spark, servers):
    left, right = StorePlace(servers[1].url), StorePlace(f"{servers[0]}/from-oxia")
    await wipe(servers[1])
    await fill(left.url, list(made_tree(NODES + 1, 100))[1:])
    await fill(right.url, list(made_tree(NODES // 2, 100))[1:])  # what a killed copy left
    await copied_once(SparkBulk(spark), left, right)


async def copied_once(engine, left, right):
    done = await engine.copy(left, right)
    assert done.nodes >= NODES
    assert done.copied >= NODES // 2
    for wishes in (CompareWishes(), CompareWishes(by_digest=True)):
        compared = await engine.compare(left, right, wishes=wishes)
        assert compared.is_same, compared.mismatches
        assert compared.buckets_read_again <= 1, "at most the nodes above all parts"
    assert (await engine.copy(left, right)).copied == 0


async def found_exactly(engine, left, right):
    store = await open_store(right.url, real_runtime())
    for number in range(4):
        await store.put(TOPIC.format(number), b"changed")
        await store.delete(TOPIC.format(10 + number))
    for number in range(2):
        await store.put(f"/namespace-00000/topic-{20 + number:04}/stray", b"")
    await store.close()
    compared = await engine.compare(left, right, wishes=CompareWishes(by_digest=True))
    found = {(one.path, one.kind) for one in compared.mismatches if one.fields != ("sequence",)}
    assert found == {
        *((TOPIC.format(number), Mismatch.DIFFERS) for number in range(4)),
        *((TOPIC.format(10 + number), Mismatch.MISSING) for number in range(4)),
        *((f"/namespace-00000/topic-{20 + n:04}/stray", Mismatch.EXTRA) for n in range(2)),
    }
    assert compared.buckets_read_again < compared.buckets
