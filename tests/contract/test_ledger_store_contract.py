"""The ledger store's contract, shown on every store that needs no server.

One test of each suite stands for it in the goal map, with a mistake that it must notice.
"""

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


class TestMemoryAppending(OnMemory, Appending):
    @pytest.mark.goal("core.L1", part="memory", broken_by="memory_completes_within_the_call")
    async def test_completion_never_comes_within_the_call(self, bench: LedgerBench) -> None:
        await super().test_completion_never_comes_within_the_call(bench)


class TestMemoryReading(OnMemory, Reading):
    @pytest.mark.goal("core.L1", part="memory", broken_by="memory_range_excludes_its_end")
    async def test_a_range_is_inclusive(self, bench: LedgerBench) -> None:
        await super().test_a_range_is_inclusive(bench)


class TestMemoryLiving(OnMemory, Living):
    @pytest.mark.goal("core.L1", part="memory", broken_by="memory_id_is_used_again")
    async def test_an_id_is_used_once(self, bench: LedgerBench) -> None:
        await super().test_an_id_is_used_once(bench)


class TestMemoryClosing(OnMemory, Closing):
    @pytest.mark.goal("core.L1", part="memory", broken_by="memory_close_does_not_wait")
    async def test_close_waits_for_appends_in_flight(self, bench: LedgerBench) -> None:
        await super().test_close_waits_for_appends_in_flight(bench)


class TestMemoryFencing(OnMemory, Fencing):
    @pytest.mark.goal("core.L1", part="memory", broken_by="memory_open_does_not_fence")
    async def test_an_opener_fences_the_writer_and_closes(self, bench: LedgerBench) -> None:
        await super().test_an_opener_fences_the_writer_and_closes(bench)


class TestMemorySurviving(OnMemory, Surviving):
    @pytest.mark.goal("core.L1", part="memory", broken_by="memory_id_is_used_again")
    async def test_a_deletion_survives_a_crash(self, bench: LedgerBench) -> None:
        await super().test_a_deletion_survives_a_crash(bench)


class TestEmbeddedAppending(OnEmbedded, Appending):
    @pytest.mark.goal("core.L1", part="embedded", broken_by="embedded_completes_within_the_call")
    async def test_completion_never_comes_within_the_call(self, bench: LedgerBench) -> None:
        await super().test_completion_never_comes_within_the_call(bench)


class TestEmbeddedReading(OnEmbedded, Reading):
    @pytest.mark.goal("core.L1", part="embedded", broken_by="embedded_range_excludes_its_end")
    async def test_a_range_is_inclusive(self, bench: LedgerBench) -> None:
        await super().test_a_range_is_inclusive(bench)


class TestEmbeddedLiving(OnEmbedded, Living):
    @pytest.mark.goal("core.L1", part="embedded", broken_by="embedded_id_is_used_again")
    async def test_an_id_is_used_once(self, bench: LedgerBench) -> None:
        await super().test_an_id_is_used_once(bench)


class TestEmbeddedClosing(OnEmbedded, Closing):
    @pytest.mark.goal("core.L1", part="embedded", broken_by="embedded_close_does_not_wait")
    async def test_close_waits_for_appends_in_flight(self, bench: LedgerBench) -> None:
        await super().test_close_waits_for_appends_in_flight(bench)


class TestEmbeddedFencing(OnEmbedded, Fencing):
    @pytest.mark.goal("core.L1", part="embedded", broken_by="open_does_not_fence")
    async def test_an_opener_fences_the_writer_and_closes(self, bench: LedgerBench) -> None:
        await super().test_an_opener_fences_the_writer_and_closes(bench)


class TestEmbeddedSurviving(OnEmbedded, Surviving):
    @pytest.mark.goal("core.L1", part="embedded", broken_by="deletion_is_not_written")
    async def test_a_deletion_survives_a_crash(self, bench: LedgerBench) -> None:
        await super().test_a_deletion_survives_a_crash(bench)
