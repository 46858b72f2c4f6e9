"""The ledger store's contract, shown on every store that needs no server."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.contracts.ledger_owners import Closing, Fencing, Surviving
from anabranch.testing.contracts.ledgers import Appending, LedgerBench, Living, Reading


class MemoryBench:
    """Memory has one life: what it holds is there as long as the process is."""

    def __init__(self) -> None:
        self.store: LedgerStore = MemoryLedgerStore()

    async def restart(self) -> LedgerStore:
        return self.store

    async def crash(self) -> LedgerStore:
        return self.store


class EmbeddedBench:
    """A folder; a crash goes on with what the folder held at that moment."""

    def __init__(self, root: Path, segment_bytes: int) -> None:
        self._root = root
        self._segment_bytes = segment_bytes
        self._disk = RealDisk()
        self._lives: list[EmbeddedLedgerStore] = []

    @property
    def _folder(self) -> Path:
        return self._root / str(len(self._lives))

    @property
    def store(self) -> LedgerStore:
        return self._lives[-1]

    async def begin(self, copy_of: Path | None = None) -> LedgerStore:
        if copy_of is not None:
            shutil.copytree(copy_of, self._folder)
        store = await EmbeddedLedgerStore.open_folder(
            self._disk, str(self._folder), segment_bytes=self._segment_bytes
        )
        self._lives.append(store)
        return store

    async def restart(self) -> LedgerStore:
        await self._lives[-1].close()
        return await self.crash()

    async def crash(self) -> LedgerStore:
        await self._lives[-1].tidied()
        return await self.begin(copy_of=self._root / str(len(self._lives) - 1))

    async def end(self) -> None:
        for store in self._lives:
            await store.close()
            assert store.upkeep_failure is None
        self._disk.close()


class OnMemory:
    @pytest.fixture
    async def bench(self) -> AsyncIterator[LedgerBench]:
        bench = MemoryBench()
        yield bench
        await bench.store.close()


class OnEmbedded:
    @pytest.fixture(params=[64 << 20, 1000], ids=["one-segment", "many-segments"])
    async def bench(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[LedgerBench]:
        bench = EmbeddedBench(tmp_path, request.param)
        await bench.begin()
        yield bench
        await bench.end()


@pytest.mark.goal("core.L1", part="memory")
class TestMemoryAppending(OnMemory, Appending):
    pass


@pytest.mark.goal("core.L1", part="memory")
class TestMemoryReading(OnMemory, Reading):
    pass


@pytest.mark.goal("core.L1", part="memory")
class TestMemoryLiving(OnMemory, Living):
    pass


@pytest.mark.goal("core.L1", part="memory")
class TestMemoryClosing(OnMemory, Closing):
    pass


@pytest.mark.goal("core.L1", part="memory")
class TestMemoryFencing(OnMemory, Fencing):
    pass


@pytest.mark.goal("core.L1", part="memory")
class TestMemorySurviving(OnMemory, Surviving):
    pass


@pytest.mark.goal("core.L1", part="embedded")
class TestEmbeddedAppending(OnEmbedded, Appending):
    pass


@pytest.mark.goal("core.L1", part="embedded")
class TestEmbeddedReading(OnEmbedded, Reading):
    pass


@pytest.mark.goal("core.L1", part="embedded")
class TestEmbeddedLiving(OnEmbedded, Living):
    pass


@pytest.mark.goal("core.L1", part="embedded")
class TestEmbeddedClosing(OnEmbedded, Closing):
    pass


@pytest.mark.goal("core.L1", part="embedded")
class TestEmbeddedFencing(OnEmbedded, Fencing):
    pass


@pytest.mark.goal("core.L1", part="embedded")
class TestEmbeddedSurviving(OnEmbedded, Surviving):
    pass
