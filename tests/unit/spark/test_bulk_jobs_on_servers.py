"""Trees of metadata copied and compared by Spark between a real ZooKeeper and a real Oxia."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import sysconfig

import pytest

from anabranch.metadata.factory import open_store
from anabranch.migrations.engine.bulk import CompareWishes, Mismatch, StorePlace
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.bulk_engine import fill
from anabranch.testing.made_trees import made_tree
from anabranch.testing.oxia_wiping import wipe
from anabranch.testing.servers import zookeeper
from anabranch.testing.servers.oxia import oxia
from anabranch.testing.spark_metadata_drill import planned_differences
from pyspark_anabranch.jobs.spark_bulk import SparkBulk

pytestmark = [
    pytest.mark.peer,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]
NODES = 1500
SPREAD = 2000
"""Enough for more than thirty parts."""
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


@pytest.mark.goal("spark.B3", part="servers")
async def test_three_differences_are_found_by_reading_three_parts_again(spark, servers):
    left, right = StorePlace(f"{servers[0]}/by-digest"), StorePlace(servers[1].url)
    await wipe(servers[1])
    await fill(left.url, list(made_tree(SPREAD + 1, 100))[1:])
    engine, by_digest = SparkBulk(spark), CompareWishes(by_digest=True)
    await engine.copy(left, right)
    same = await engine.compare(left, right, wishes=by_digest)
    assert same.is_same, same.mismatches
    assert same.buckets > 30
    assert same.buckets_read_again <= 1, "at most the nodes above all parts"
    planned = planned_differences(SPREAD)[:3]
    store = await open_store(right.url, real_runtime())
    for path, kind in planned:
        await (store.delete(path) if kind is Mismatch.MISSING else store.put(path, b"another"))
    await store.close()
    found = await engine.compare(left, right, wishes=by_digest)
    seen = {(one.path, one.kind) for one in found.mismatches if one.fields != ("sequence",)}
    assert seen == set(planned)
    assert found.buckets_read_again - same.buckets_read_again <= 3
    assert found.buckets == same.buckets


@pytest.mark.goal("spark.B1", part="oxia to zookeeper")
async def test_from_oxia_to_zookeeper(spark, servers):
    left, right = StorePlace(servers[1].url), StorePlace(f"{servers[0]}/from-oxia")
    await wipe(servers[1])
    await fill(left.url, list(made_tree(NODES + 1, 100))[1:])
    await fill(right.url, list(made_tree(NODES // 2, 100))[1:])  # what a killed copy left
    await copied_once(SparkBulk(spark), left, right)


WORKER = """#!/bin/sh
# Of what is installed, a task sees other packages alone: nothing of this one.
[ "$1" = -m ] || exec "{python}" "$@"
PYTHONPATH="$PYTHONPATH:{packages}" exec "{python}" -S "$@"
"""


@pytest.mark.goal("spark.B1", part="zookeeper to oxia")
async def test_a_cluster_copies_with_the_code_that_it_is_sent(servers, tmp_path):
    left, right = f"{servers[0]}/by-a-cluster", servers[1].url
    await wipe(servers[1])
    await fill(left, list(made_tree(NODES + 1, 100))[1:])
    worker = tmp_path / "python"
    packages = sysconfig.get_path("platlib")
    worker.write_text(WORKER.format(python=sys.executable, packages=packages))
    worker.chmod(0o755)
    alone = await asyncio.to_thread(
        subprocess.run, [worker, "-m", "anabranch"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "No module named anabranch" in alone.stderr, "else nobody could tell whose code it is"
    flags = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": flags,
        "spark.executor.extraJavaOptions": flags,
        "spark.python.authenticate.socketTimeout": "120s",
    }
    command = [
        *(sys.executable, "-m", "anabranch", "spark", "copy-metadata", left, right),
        *("--master", "local-cluster[2,1,1024]", "--output", "json"),
        *(word for name, value in settings.items() for word in ("--setting", f"{name}={value}")),
    ]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=500,
        cwd=tmp_path, env=os.environ | {"PYSPARK_PYTHON": str(worker)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    verdict = json.loads(done.stdout)
    assert verdict["result"]["copied"] >= NODES
    assert not any(verdict["result"]["verified"]["counts"].values())


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
