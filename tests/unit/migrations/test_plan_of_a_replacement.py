"""What a plan says of replacing a store, whom it names, and that it writes nothing."""

from collections.abc import AsyncIterator, Sequence

import pytest

from anabranch.errors import InputError, NotFound
from anabranch.metadata.announced import Report, participants_path, write_report
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import AccessRight, MetadataStore, Record
from anabranch.metadata.transfer.keeping import EVERYTHING
from anabranch.migrations.engine.operation import Blocked
from anabranch.migrations.engine.steps import Plan
from anabranch.migrations.freeze_copy.planning import Survey, refuse_same_store
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime.real import real_runtime
from anabranch.testing.staged_replacement import SOURCE_URL, TARGET_URL, staged


async def everything(store: MetadataStore) -> list[Record]:
    return [record async for record in store.export("/")]


class Bench:
    """A store that is to be replaced by whatever a URL names, which is an empty one."""

    def __init__(self) -> None:
        clock = real_runtime().clock
        self.source, self.target = MemoryStore(clock), MemoryStore(clock)

    async def open_target(self, _url: str) -> LocalHandle:
        return await self.target.handle()

    async def plan(self, url: str, **parameters: str) -> Plan:
        steps = FreezeCopy(real_runtime(), SOURCE_URL, self.source, self.open_target)
        return await steps.plan({"target": url, **parameters})


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.source.close()
    await bench.target.close()


@pytest.mark.goal("454.A7", part="counts", broken_by="plan_reserves_the_target")
async def test_a_plan_counts_and_writes_nothing() -> None:
    async with staged("ash") as stage:
        store = stage.anybody.store
        for number in range(30):
            await store.put(f"/some/{number:02d}", b"12345")
        await store.put("/session", b"", ephemeral=True)
        raw = [await stage.open_store(url) for url in (SOURCE_URL, TARGET_URL)]
        before = [await everything(each) for each in raw]
        plan = await stage.operation.plan({"target": TARGET_URL, "nodes_per_s": "10"})
        assert [await everything(each) for each in raw] == before
        assert (plan.figures["nodes"], plan.figures["bytes"]) == (33, 150), "with their parents"
        assert plan.figures["ephemerals"] == 1
        assert float(plan.figures["expected_s"]) >= 3.2, "as fast as was asked for, at most"
        assert plan.blockers == ()
        assert plan.notes == ["1 ephemeral nodes are made anew by their owners"]
        assert plan.parameters == {
            "target": TARGET_URL,
            "source": SOURCE_URL,
            "nodes_per_s": "10",
        }
        for each in raw:
            await each.close()


@pytest.mark.goal("rel.A1", part="plan", broken_by="plan_makes_the_target")
async def test_a_plan_does_not_make_the_target(bench: Bench) -> None:
    made: list[str] = []

    async def make(url: str) -> LocalHandle:
        made.append(url)
        return await bench.open_target(url)

    async def look_at(url: str) -> LocalHandle:
        raise NotFound(f"{url} is not there")

    steps = FreezeCopy(real_runtime(), SOURCE_URL, bench.source, make, look_at=look_at)
    plan = await steps.plan({"target": "zk:h:1/chroot"})
    assert (plan.blockers, made) == ([], [])


@pytest.mark.goal("454.A7", part="blockers", broken_by="older_builds_are_not_asked")
@pytest.mark.goal("454.A6", part="older build", broken_by="older_builds_are_not_asked")
async def test_who_runs_an_older_version_blocks_the_start_and_is_named() -> None:
    async with staged("ash") as stage:
        source = await stage.open_store(SOURCE_URL)
        old = Report("old", "broker", "10.0.0.7", "0.1", level=0)
        await source.put(f"{participants_path('metadata')}/old", write_report(old), ephemeral=True)
        with pytest.raises(Blocked, match=r"old: takes part with level 0 of 3 \(broker on 10.0.0"):
            await stage.start()
        assert await stage.anybody.replaceable.journal.read() is None
        await source.close()


@pytest.mark.goal("454.A15", part="plan", broken_by="plan_is_silent_about_losses")
async def test_a_plan_says_what_the_target_cannot_hold(bench: Bench) -> None:
    await bench.source.put("/a/n-", b"", sequential=True)
    assert (await bench.plan("memory:other")).notes == []
    notes = (await bench.plan("oxia://o:1/n")).notes
    assert notes[:1] == ["times of nodes become those of the copy"]
    assert notes[-1:] == ["sequence counters may become larger, never smaller"]
    assert "times of nodes become those of the copy" in (await bench.plan("zk:h:1/c")).notes


def survey(records: Sequence[Record], *, drop_acls: bool) -> Survey:
    found = Survey(EVERYTHING, drop_acls)
    for record in records:
        found.add(record)
    return found


def test_rights_that_the_target_cannot_hold_are_left_out_only_if_asked() -> None:
    right = AccessRight(31, "digest", "alice:x")
    records = [Record(f"/closed/{number}", b"", 0, 1, 1, access=(right,)) for number in range(25)]
    kept = survey(records, drop_acls=False)
    blockers = kept.all_blockers()
    assert (blockers[0].who, "drop_acls" in blockers[0].why) == ("/closed/0", True)
    assert (len(blockers), blockers[-1].why) == (21, "5 more are in the way")
    dropped = survey(records, drop_acls=True)
    assert dropped.all_blockers() == []
    assert dropped.notes() == ["access rights of 25 nodes are left out"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("memory:a", "memory:a"),
        ("zk:h1:1,h2:1/c", "zk:h2:1,h1:1/c"),
        ("zk:h:1", "zk:h:1/below"),
        ("zk:h:1/above/it", "zk:h:1/above"),
    ],
)
def test_a_store_is_not_copied_into_itself(source: str, target: str) -> None:
    with pytest.raises(InputError, match="is the store that is in use"):
        refuse_same_store(source, target)


def test_a_store_beside_is_another_one() -> None:
    for source, target in (
        ("zk:h:1/a", "zk:h:1/b"),
        ("zk:h:1", "zk:other:1"),
        ("zk:h:1/a", "oxia://h:1/a"),
    ):
        refuse_same_store(source, target)


async def test_a_start_keeps_what_the_plan_has_counted() -> None:
    async with staged("ash") as stage:
        await stage.anybody.store.put("/a", b"")
        state = await stage.start()
        assert state.figures["nodes"] == 3
        status = (await stage.operation.status()).as_json()
        assert status["figures"] == state.figures
