"""A copy that is slowed down leaves the source to those who use it: in virtual time, on a model.

The model does one thing after another, each in the time that a ZooKeeper on two cores was seen to
take for it. A page of nodes keeps it busy as a whole.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import pytest

from anabranch.metadata.store import MetadataStore, Node, Record, Stat
from anabranch.metadata.transfer.resting import REST_PER_TURN
from anabranch.runtime import Clock, Runtime
from anabranch.testing.pass_through import PassThrough
from anabranch.testing.simulation import World
from anabranch.testing.staged_replacement import SOURCE_URL, TARGET_URL, staged

CALL_S = 0.000_1
"""For one read or write."""
NODE_S = 0.000_004
"""For each node of a page."""
PAGE_NODES = 500
NODES = 5000
NODES_PER_S = 1000
HURRIED = {"nodes_per_s": "1000000000"}
CALLS_PER_S = 1000
WRITES_SHARE = 0.1
RISE_MAX = 0.2
"""How much of what a copy costs others without a rate it may cost them with one."""
PLENTY_S = 600.0


class Busy:
    """One server, for all who have its store open."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.read: list[tuple[float, int]] = []
        """When nodes were read to be copied or compared, and how many."""
        self._free_at_s = 0.0

    async def work(self, cost_s: float) -> None:
        now_s = self.clock.monotonic_s()
        self._free_at_s = max(self._free_at_s, now_s) + cost_s
        await asyncio.sleep(self._free_at_s - now_s)


class Served(PassThrough):
    """A store that such a server keeps."""

    def __init__(self, behind: MetadataStore, busy: Busy) -> None:
        super().__init__(behind)
        self._busy = busy

    async def get(self, path: str) -> Node | None:
        await self._busy.work(CALL_S)
        return await super().get(path)

    async def children(self, path: str) -> list[str]:
        await self._busy.work(CALL_S)
        return await super().children(path)

    async def record(self, path: str) -> Record | None:
        await self._busy.work(CALL_S)
        self._busy.read.append((self._busy.clock.monotonic_s(), 1))
        return await super().record(path)

    async def put(self, path: str, *rest: object, **more: object) -> Stat:
        await self._busy.work(CALL_S)
        return await super().put(path, *rest, **more)  # type: ignore[arg-type]

    async def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        page: list[Record] = []
        async for record in super().export(prefix, access=access, values=values):
            page.append(record)
            if len(page) == PAGE_NODES:
                await self._read(page)
                for each in page:
                    yield each
                page = []
        await self._read(page)
        for each in page:
            yield each

    async def _read(self, page: list[Record]) -> None:
        await self._busy.work(NODE_S * len(page))
        self._busy.read.append((self._busy.clock.monotonic_s(), len(page)))


@dataclass
class Load:
    """Calls of others at random moments, and how long each took; the same for each run."""

    store: MetadataStore
    clock: Clock
    latencies_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By the second in which a call was made."""

    async def run(self) -> None:
        chance = random.Random(7)
        async with asyncio.TaskGroup() as calls:
            while True:
                await asyncio.sleep(chance.expovariate(CALLS_PER_S))
                path = f"/some/{chance.randrange(NODES):05d}"
                calls.create_task(self._call(path, writes=chance.random() < WRITES_SHARE))

    async def _call(self, path: str, *, writes: bool) -> None:
        began_s = self.clock.monotonic_s()
        if writes:
            await self.store.put(path, b"changed")
        else:
            assert await self.store.get(path) is not None
        self.latencies_s[int(began_s)].append(self.clock.monotonic_s() - began_s)

    def p99_s(self) -> float:
        """Of the worst second since it was last asked for."""
        seconds, self.latencies_s = list(self.latencies_s.values()), defaultdict(list)
        whole = [sorted(each) for each in seconds if len(each) > CALLS_PER_S / 2]
        return max(each[len(each) * 99 // 100] for each in whole)


@dataclass
class Seen:
    """What a replacement did to the source until writes would have to wait."""

    before_s: float
    """In no second did more than 1 of 100 calls take longer while nothing was copied."""
    copying_s: float
    """The same from the start of the copy until everything was compared."""
    read: list[tuple[float, int]]


async def some(count: int) -> AsyncIterator[Record]:
    yield Record("/some", b"", 0, 1, 1)
    for number in range(count):
        yield Record(f"/some/{number:05d}", b"12345", 0, 1, 1)


async def replaced(runtime: Runtime, parameters: dict[str, str]) -> Seen:
    async with staged(runtime=runtime) as stage:
        busy = Busy(runtime.clock)
        raw = await stage.shelf.open(SOURCE_URL)
        await raw.restore(some(NODES))
        await raw.close()

        async def open_store(url: str) -> MetadataStore:
            store = await stage.open_store(url)
            return Served(store, busy) if url == SOURCE_URL else store

        user = await stage.join("ash", open_store=open_store)
        load = Load(user.store, runtime.clock)
        loading = asyncio.ensure_future(load.run())
        await asyncio.sleep(5.0)
        before_s = load.p99_s()
        stage.hold("copying")
        await stage.operation.start({"target": TARGET_URL, **parameters}, "somebody")
        await stage.until_held(PLENTY_S)
        await asyncio.sleep(2.0)
        load.p99_s()
        del busy.read[:]  # of the plan
        stage.hold("halting")
        await stage.until_held(PLENTY_S)
        await asyncio.sleep(2.0)  # so that the second in which it ended is whole
        copying_s = load.p99_s()
        read = list(busy.read)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        stage.go_on()
        await stage.until("switched", wait_s=PLENTY_S)
        return Seen(before_s, copying_s, read)


def seen_with(parameters: dict[str, str]) -> Seen:
    async def main(world: World) -> Seen:
        found: Seen = await world.process("all").run(lambda runtime: replaced(runtime, parameters))
        return found

    return World(1).run(main, time_limit_s=PLENTY_S)


@pytest.mark.goal("454.A42", part="source under load", broken_by="copy_knows_no_pace")
def test_no_second_reads_more_nodes_than_was_asked_for() -> None:
    seen = seen_with({"nodes_per_s": str(NODES_PER_S)})
    assert sum(nodes for _, nodes in seen.read) > 2 * NODES, "copied, compared, and followed"
    for since_s, _ in seen.read:
        within = [nodes for at_s, nodes in seen.read if since_s <= at_s < since_s + 1.0]
        assert sum(within) <= NODES_PER_S + PAGE_NODES, "a page is read as a whole"
    took_s = seen.read[-1][0] - seen.read[0][0]
    assert took_s >= 0.9 * 2 * NODES / NODES_PER_S


@pytest.mark.goal("454.A42", part="source under load", broken_by="comparison_knows_no_pace")
def test_calls_of_others_hardly_take_longer() -> None:
    seen, hurried = seen_with({"nodes_per_s": str(NODES_PER_S)}), seen_with(HURRIED)
    assert hurried.copying_s > 5 * hurried.before_s, "the model has to be one that can be crowded"
    assert seen.copying_s - seen.before_s <= RISE_MAX * (hurried.copying_s - hurried.before_s)
    assert seen.copying_s < 4 * CALL_S + seen.before_s


def usual_time_between_pages_s(seen: Seen) -> float:
    pages = [at_s for at_s, nodes in seen.read if nodes == PAGE_NODES]
    assert len(pages) == 2 * NODES // PAGE_NODES, "copied and compared"
    return median(later - one for one, later in pairwise(pages))


@pytest.mark.goal("454.A42", part="source under load", broken_by="copy_gives_no_way")
def test_without_a_rate_most_of_the_time_is_left_to_others() -> None:
    page_s = NODE_S * PAGE_NODES
    assert usual_time_between_pages_s(seen_with(HURRIED)) < 1.5 * page_s, "else nothing is shown"
    assert usual_time_between_pages_s(seen_with({})) > 0.95 * (1 + REST_PER_TURN) * page_s
