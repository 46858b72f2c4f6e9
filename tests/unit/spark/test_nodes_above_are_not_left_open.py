"""Tasks of Spark that fail: nodes above their parts are closed, or it is said that they are open.

Tasks run in threads of this process; what is tested is what the driver makes of them.
"""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from anabranch.errors import ConflictError, InputError, Unreachable
from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.open_copies import sentences_of
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.model_stores import modelled_zookeeper
from pyspark_anabranch.jobs.bulk_tasks import CopyPart, Failure
from pyspark_anabranch.jobs.spark_bulk import SparkBulk
from pyspark_anabranch.jobs.tree_parts import NOTHING, TreePart

OWN = (AccessRight(31, "digest", "owner:abc="),)
OPEN = (*OWN, AccessRight(31, "world", "anyone"))
TREE = [Record(path, b"v", 0, 0, 0, access=OWN) for path in ("/a", "/a/b", "/a/b/c", "/a/d")]
PARTS = [TreePart(("/", "/a")), TreePart((), ("/a/b",)), TreePart((), ("/a/d",))]


class InThreads(SparkBulk):
    """Without a cluster; `failing` is what becomes of a task for the last part."""

    def __init__(self, failing=None):
        super().__init__(SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)))
        self.failing = failing

    async def parts(self, between, prefix):
        del between, prefix
        return PARTS

    async def _each(self, task, parts, note, kept=None):
        results = []
        for part in parts:
            if part == NOTHING:
                continue
            if self.failing is not None and part is PARTS[-1] and isinstance(task, CopyPart):
                raise self.failing
            result = await asyncio.to_thread(task, part)
            if isinstance(result, Failure):
                raise result.error()
            note(result)
            results.append(result)
        return results


@pytest.fixture
async def places():
    async with contextlib.AsyncExitStack() as held:
        urls = [await held.enter_async_context(modelled_zookeeper(name)) for name in ("l", "r")]
        source = await ZooKeeperStore.open(real_runtime(), urls[0])
        await source.restore(each(TREE))
        await source.close()
        target = await ZooKeeperStore.open(real_runtime(), urls[1])
        yield StorePlace(urls[0]), StorePlace(urls[1]), target
        await target.close()


async def rights_in(target):
    return {record.path: record.access async for record in target.export() if record.path != "/"}


async def test_nodes_above_are_closed_when_all_is_there(places):
    left, right, target = places
    assert (await InThreads().copy(left, right)).copied == len(TREE)
    assert await rights_in(target) == {record.path: OWN for record in TREE}
    assert await sentences_of(target.open_notes) == []


@pytest.mark.broken_by("spark_leaves_nodes_above_open")
async def test_a_task_that_is_refused(places):
    left, right, target = places
    await target.put("/a", b"v")
    await target.put("/a/d", b"of somebody else")
    await target.set_rights([("/a", OPEN)], again=False)  # as an interrupted copy leaves it
    with pytest.raises(ConflictError, match="/a/d") as told:
        await InThreads().copy(left, right)
    assert "open" not in str(told.value), "there is nothing to be said"
    rights = await rights_in(target)
    assert (rights["/a"], rights["/a/b"]) == (OWN, OWN)


@pytest.mark.broken_by("spark_leaves_nodes_above_open")
@pytest.mark.parametrize("error", [Unreachable("gone"), RuntimeError("a page of Spark's")])
async def test_a_task_that_is_lost(places, error):
    left, right, target = places
    with pytest.raises(type(error)) as told:
        await InThreads(error).copy(left, right)
    said = " ".join([str(told.value), *getattr(told.value, "__notes__", ())])
    assert "at and below / that were written are open still" in said
    assert (await rights_in(target))["/a"] == OPEN
    assert len(await sentences_of(target.open_notes)) == 1
    assert (await InThreads().copy(left, right)).copied == 1
    assert await rights_in(target) == {record.path: OWN for record in TREE}
    assert await sentences_of(target.open_notes) == []


async def test_nodes_above_are_looked_at_before_anything_is_written(places, monkeypatch):
    left, right, target = places

    async def why_not(*_, **__):
        return "no such scheme"

    monkeypatch.setattr("anabranch.metadata.zookeeper.rights_probe.RightsProbe.why_not", why_not)
    monkeypatch.setattr(f"{__name__}.PARTS", PARTS[:1])
    with pytest.raises(InputError, match="/a: no such scheme"):
        await InThreads().copy(left, right)
    assert await target.children("/") == []
