"""Topics over several storage clusters: any order of appends, takeovers and switches."""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import AnabranchError
from anabranch.ids import EARLIEST, Position
from anabranch.journal import Pressure
from anabranch.ledgers.catalog import StorageCatalog, StorageCluster
from anabranch.ledgers.clusters import StorageClusters
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.ledgers.stamps import NO_STAMP
from anabranch.ledgers.store import LedgerStore
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, ManagedLedgers
from anabranch.managed_ledger.references import references
from anabranch.managed_ledger.retention import Retention
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime

CLUSTERS: Final = ("main", "second", "third")
TOPICS: Final = ("t/n/persistent/a", "t/n/persistent/b")
PROCESSES: Final = 2
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, PROCESSES - 1), st.sampled_from(TOPICS)),
        st.tuples(st.just("switch"), st.just(0), st.sampled_from(CLUSTERS)),
        st.tuples(st.just("foreign"), st.integers(1, 150), st.sampled_from(CLUSTERS[1:])),
    ),
    max_size=25,
)


class Site:
    """Stores that stay while processes take topics from each other."""

    def __init__(self, metadata: MetadataStore) -> None:
        self.metadata = metadata
        self.runtime = real_runtime()
        pressure = Pressure()
        self.stores: dict[str, LedgerStore] = {
            name: MemoryLedgerStore(pressure) for name in CLUSTERS
        }
        self.processes: list[ManagedLedgers] = []
        self.stored: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.foreign: dict[str, set[int]] = {name: set() for name in CLUSTERS}

    async def catalog(self) -> StorageCatalog:
        ids = LedgerIds(self.metadata, self.runtime)
        return await StorageCatalog.open(self.metadata, ids, "memory:")

    async def start(self) -> ManagedLedgers:
        catalog = await self.catalog()

        async def open_other(url: str, _pressure: Pressure, _held: AsyncExitStack) -> LedgerStore:
            return self.stores[url.removeprefix("embedded:")]

        clusters = StorageClusters(
            catalog.ids, {"main": self.stores["main"]}, catalog=catalog, open_store=open_other
        )
        config = ManagedLedgerConfig(ledger_entries_max=2, retention=Retention(-1, -1))
        process = ManagedLedgers(
            metadata=self.metadata, ledgers=clusters, runtime=self.runtime, config=config
        )
        self.processes.append(process)
        return process

    async def append(self, process: int, topic: str) -> None:
        payload = b"%d by %d" % (len(self.stored[topic]), process)
        for _ in range(3):
            try:
                ledger = await self.processes[process].open(topic)
                await _append(ledger, payload)
            except AnabranchError:
                # Taken by the other process since: it is opened again, and is ours then. What
                # was refused is not stored, for the store in memory refuses before it stores.
                continue
            self.stored[topic].append(payload)
            return
        raise AssertionError("a topic can not be taken over")

    async def switch(self, name: str) -> None:
        catalog = await self.catalog()
        if name not in catalog.document.clusters:
            # Who adds a cluster says below which ids others have created ledgers there.
            floor = max(self.foreign[name], default=0) + 1
            await catalog.add(name, StorageCluster(f"embedded:{name}", floor))
        await catalog.activate(name, above=max(self.foreign[name], default=0) + 1)

    async def create_foreign(self, ledger_id: int, name: str) -> None:
        catalog = await self.catalog()
        taken = [n async for n in self.stores[name].list()]
        if name not in catalog.document.clusters and ledger_id not in taken:
            writer = await self.stores[name].create(ledger_id)
            writer.append(b"foreign", lambda _entry, _error: None)
            await writer.close()
            self.foreign[name].add(ledger_id)

    async def read_back(self) -> dict[str, list[bytes]]:
        """What each topic that was written to has, as a new process reads it."""
        process = await self.start()
        found = {
            topic: await _payloads(await process.open(topic)) if stored else []
            for topic, stored in self.stored.items()
        }
        await process.close()
        return found

    async def misplaced_ledgers(self) -> list[str]:
        """Ledgers that nobody names, or that are named and not there, or twice."""
        named: dict[str, set[int]] = {name: set() for name in CLUSTERS}
        wrong: list[str] = []
        async for place, _ in references(self.metadata):
            if place.stamp == NO_STAMP and place.ledger_id not in [
                n async for n in self.stores["main"].list()
            ]:
                wrong.append(f"{place.ledger_id} without a stamp is not in the first cluster")
            named[place.stamp.cluster or "main"].add(place.ledger_id)
        ours = [ledger_id for ids in named.values() for ledger_id in ids]
        if len(ours) != len(set(ours)):
            wrong.append(f"an id is there twice: {sorted(ours)}")
        for name, store in self.stores.items():
            held = {n async for n in store.list()}
            astray = held ^ (named[name] | self.foreign[name])
            wrong += [f"{ledger_id} is lost or left in {name}" for ledger_id in sorted(astray)]
        return wrong


async def _append(ledger: ManagedLedger, payload: bytes) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_position: Position | None, error: Exception | None) -> None:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    ledger.append(payload, done)
    await future


async def _payloads(ledger: ManagedLedger) -> list[bytes]:
    found: list[bytes] = []
    start = EARLIEST
    while entries := await ledger.read(start, 100, 1 << 20):
        found += [bytes(entry.payload) for entry in entries]
        start = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
    return found


async def run(
    steps: list[tuple[str, int, str]],
) -> tuple[dict[str, list[bytes]], dict[str, list[bytes]], list[str]]:
    """What was stored, what is read back, and which ledgers are where they should not be."""
    site = Site(await open_store("memory:", real_runtime()))
    for _ in range(PROCESSES):
        await site.start()
    for kind, number, name in steps:
        if kind == "append":
            await site.append(number, name)
        elif kind == "switch":
            await site.switch(name)
        else:
            await site.create_foreign(number, name)
    for process in site.processes:
        await process.close()
    found, misplaced = await site.read_back(), await site.misplaced_ledgers()
    await site.metadata.close()
    return site.stored, found, misplaced


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_nothing_is_lost_mixed_up_or_left_behind(steps: list[tuple[str, int, str]]) -> None:
    stored, found, misplaced = asyncio.run(run(steps))
    assert found == stored
    assert misplaced == []
