"""Stores that export in another order than that of paths, as Oxia does, are copied all the same."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.errors import ConflictError, InputError
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.paths import order_key
from anabranch.metadata.store import Record
from anabranch.metadata.transfer.comparing import compare
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping, keeping_of
from anabranch.metadata.transfer.ordering import SortedPieces, Sorting
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each, records_of

LEVELS = replace(EVERYTHING, path_order=False)


class LevelStore(MemoryStore):
    """A memory store that exports level by level."""

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        return self._by_level(prefix)

    async def _by_level(self, prefix: str) -> AsyncIterator[Record]:
        records = [record async for record in super().export(prefix)]
        for record in sorted(records, key=lambda record: record.path.rstrip("/").count("/")):
            yield record


@pytest.mark.parametrize(
    ("piece_bytes", "count"),
    [(1, 50), (2000, 50), (10**9, 50), (10**9, 999), (10**9, 2500), (10**6, 5000)],
)
async def test_any_order_becomes_path_order(piece_bytes: int, count: int, tmp_path: Path) -> None:
    names = ["/", *(f"/{i % 7}/{i % 3}/{i}" for i in range(count))]
    records = [Record(name, name.encode(), 1, 2, 3) for name in names]
    wanted = sorted(records, key=lambda record: order_key(record.path))
    random.Random(3).shuffle(records)
    sorting = Sorting(real_runtime(), str(tmp_path), piece_bytes)
    found = [record async for record in sorting.in_path_order(each(records), LEVELS)]
    assert found == wanted
    assert await real_runtime().disk.list(str(tmp_path)) == [], "nothing is left behind"


async def test_files_go_away_when_nobody_reads_on(tmp_path: Path) -> None:
    records = [Record(f"/{i}", b"", 1, 2, 3) for i in range(9)]
    stream = Sorting(real_runtime(), str(tmp_path), 1).in_path_order(each(records), LEVELS)
    async for record in stream:
        assert record.path == "/0"
        break
    await stream.aclose()  # type: ignore[attr-defined]
    assert await real_runtime().disk.list(str(tmp_path)) == []


async def test_copy_between_stores_by_level(tmp_path: Path) -> None:
    clock = real_runtime().clock
    source, target = LevelStore(clock), LevelStore(clock)
    for path in ("/b/c/d", "/a/z", "/a-b", "/b/a"):
        await source.put(path, path.encode())
    await target.put("/other", b"")
    sorting = Sorting(real_runtime(), str(tmp_path))
    origin = StoreSource(source, "source:", "/", LEVELS, sorting)
    options = CopyOptions(
        checkpoint=f"{tmp_path}/checkpoint", sorting_folder=str(tmp_path), span_nodes=2
    )
    report = await Copy(real_runtime(), origin, target, "target:", LEVELS, options).run()
    assert report.verified
    there = StoreSource(target, "target:", "/", LEVELS, sorting)
    differences = [d.path async for d in compare(origin.records(), there.records())]
    assert differences == ["/other"]
    assert len(await records_of(target)) == report.digest.nodes + 1
    await source.close()
    await target.close()


def test_what_stores_keep() -> None:
    assert keeping_of("embedded:x") == EVERYTHING
    zookeeper = keeping_of("zk:h:1/c")
    assert zookeeper.keeps_version(Record("/a", b"", 1000, 0, 0))
    assert not zookeeper.keeps_version(Record("/a", b"", 1001, 0, 0))
    assert zookeeper.access
    oxia = keeping_of("oxia://h:1/n")
    assert oxia.keeps_version(Record("/a", b"x", 0, 0, 0, next_sequence=9))
    assert oxia.keeps_version(Record("/a", b"", 8, 0, 0, next_sequence=9))
    assert not oxia.keeps_version(Record("/a", b"", 7, 0, 0, next_sequence=9))
    assert Keeping().keeps_version(Record("/a", b"", 2**40, 0, 0))


class CountedStore(LevelStore):
    """Counts how often it is read."""

    readings = 0

    async def _by_level(self, prefix: str) -> AsyncIterator[Record]:
        self.readings += 1
        async for record in super()._by_level(prefix):
            yield record


@pytest.fixture
async def counted() -> AsyncIterator[CountedStore]:
    store = CountedStore(real_runtime().clock)
    for path in ("/b/c/d", "/a/z", "/a-b", "/b/a"):
        await store.put(path, path.encode())
    yield store
    await store.close()


async def copied_to_zookeeper(source: MemoryStore, folder: Path) -> bool:
    """Whether a copy arrived in something that refuses what ZooKeeper does."""
    target = MemoryStore(real_runtime().clock)
    sorting = Sorting(real_runtime(), str(folder), piece_bytes=1)
    origin = StoreSource(source, "source:", "/", LEVELS, sorting)
    options = CopyOptions(sorting_folder=str(folder), version_map=f"{folder}/map")
    keeping = keeping_of("zk:h:1")
    try:
        return (await Copy(real_runtime(), origin, target, "t", keeping, options).run()).verified
    finally:
        await target.close()


async def test_source_is_sorted_once_to_be_looked_at_and_copied(
    counted: CountedStore, tmp_path: Path
) -> None:
    assert await copied_to_zookeeper(counted, tmp_path)
    assert counted.readings == 1
    assert await real_runtime().disk.list(str(tmp_path)) == [], "nothing is left behind"


@pytest.mark.broken_by("second_look_is_the_first")
async def test_change_after_the_look_is_noticed_all_the_same(
    counted: CountedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SortedPieces.take

    async def take(self: SortedPieces, records: AsyncIterator[Record]) -> None:
        await real(self, records)
        await counted.put("/b/late", b"")

    monkeypatch.setattr(SortedPieces, "take", take)
    with pytest.raises(ConflictError, match="has changed while it was read"):
        await copied_to_zookeeper(counted, tmp_path)
    assert counted.readings >= 2


async def test_refused_source_leaves_no_files(counted: CountedStore, tmp_path: Path) -> None:
    await counted.put("/𝄞", b"")
    with pytest.raises(InputError, match=r"U\+FFFF"):
        await copied_to_zookeeper(counted, tmp_path)
    assert await real_runtime().disk.list(str(tmp_path)) == []
