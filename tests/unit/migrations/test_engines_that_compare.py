"""An engine may compare two stores in the driver's place; what it finds is looked at again."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch.errors import ConflictError, InputError, Unreachable
from anabranch.metadata.announced import journal_path
from anabranch.metadata.memory import MemoryStore
from anabranch.migrations.engine.bulk import CompareResult, StorePlace
from anabranch.migrations.engine.bulk_local import LocalBulk
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.migrations.freeze_copy.tail import End, Tail, Wishes
from anabranch.runtime.real import real_runtime
from anabranch.server.bulk_engines import bulk_engines

URLS = ("memory:a", "memory:b")


class Engine(LocalBulk):
    """Finds the stores of a test by their URLs, as tasks elsewhere would."""

    def __init__(self, *stores: MemoryStore) -> None:
        super().__init__(real_runtime())
        self._stores = dict(zip(URLS, stores, strict=True))
        self.found: list[CompareResult] = []
        self.fails = False
        self.named_max = 1000

    async def compare(
        self, left: StorePlace, right: StorePlace, *arguments, **wishes
    ) -> CompareResult:
        if self.fails:
            raise Unreachable("no worker answers")
        places = (replace(place, store=self._stores[place.url]) for place in (left, right))
        found = await super().compare(*places, *arguments, **wishes)
        self.found.append(replace(found, mismatches=found.mismatches[: self.named_max]))
        return self.found[-1]


class Two:
    """A store, its copy, and the engine that compares them."""

    def __init__(self) -> None:
        clock = real_runtime().clock
        self.source, self.target = MemoryStore(clock), MemoryStore(clock)
        self.engine = Engine(self.source, self.target)

    async def tail(self) -> Tail:
        await self.source.put(journal_path("metadata"), b"ours")
        for number in range(20):
            await self.source.put(f"/a/{number:02}", b"right")
        ends = (
            End(url, store) for url, store in zip(URLS, (self.source, self.target), strict=True)
        )
        tail = Tail(real_runtime(), *ends, Wishes(compared_by=self.engine))
        await tail.copy(lambda nodes, size_bytes: None)
        return tail


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    two = Two()
    yield two
    await two.source.close()
    await two.target.close()


async def test_what_the_engine_finds_is_looked_at_again_and_only_what_stays_is_named(
    two: Two,
) -> None:
    tail = await two.tail()
    await two.source.put("/a/03", b"newer")  # on its way to the copy
    await tail.verify()
    assert tail.compared
    assert {one.path for one in two.engine.found[0].mismatches} >= {"/a/03"}
    await two.target.put("/a/07", b"wrong")
    with pytest.raises(ConflictError, match="/a/07 "):
        await tail.verify()


@pytest.mark.broken_by("replacement_believes_a_failed_engine")
async def test_where_the_engine_fails_the_driver_finds_the_same(two: Two) -> None:
    tail = await two.tail()
    await two.target.put("/a/07", b"wrong")
    two.engine.fails = True
    with pytest.raises(ConflictError, match="/a/07 "):
        await tail.verify()


@pytest.mark.broken_by("replacement_believes_a_failed_engine")
async def test_what_the_engine_cannot_name_is_looked_for_by_the_driver(two: Two) -> None:
    tail = await two.tail()
    await two.target.put("/a/07", b"wrong")
    two.engine.named_max = 0
    with pytest.raises(ConflictError, match="/a/07 "):
        await tail.verify()
    assert not two.engine.found[0].is_same


async def test_a_plan_says_who_compares_and_refuses_who_is_not_there(two: Two) -> None:
    async def opened(_url: str):
        return await two.target.handle()

    with_engine = FreezeCopy(
        real_runtime(), URLS[0], two.source, opened, engines={"spark": two.engine}
    )
    plan = await with_engine.plan({"target": URLS[1], "bulk": "spark"})
    assert plan.parameters["bulk"] == "spark"
    assert any(note.startswith("spark compares everything") for note in plan.notes)
    assert (await with_engine.plan({"target": URLS[1]})).notes == []
    without = FreezeCopy(real_runtime(), URLS[0], two.source, opened)
    with pytest.raises(InputError, match=r"no bulk engine 'spark'.*metadata_migration_spark"):
        await without.plan({"target": URLS[1], "bulk": "spark"})
    assert list(bulk_engines("", None)) == []
    assert list(bulk_engines("local[1]", None)) == ["spark"]
