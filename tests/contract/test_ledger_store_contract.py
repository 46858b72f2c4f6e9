"""The ledger store's contract, shown on every store that needs no server.

One test of each suite stands for it in the goal map, with a mistake that it must notice.
"""

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FunctionType
from typing import Any

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


def proving(case: Callable[..., Any], part: str, bug: str) -> Callable[..., Any]:
    """A case of a suite as a function of its own, so that it carries a marker only here."""
    own = FunctionType(
        case.__code__, case.__globals__, case.__name__, case.__defaults__, case.__closure__
    )
    return pytest.mark.goal("core.L1", part=part, broken_by=bug)(own)


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
    test_completion_never_comes_within_the_call = proving(
        Appending.test_completion_never_comes_within_the_call,
        "memory",
        "memory_completes_within_the_call",
    )


class TestMemoryReading(OnMemory, Reading):
    test_a_range_is_inclusive = proving(
        Reading.test_a_range_is_inclusive, "memory", "memory_range_excludes_its_end"
    )


class TestMemoryLiving(OnMemory, Living):
    test_an_id_is_used_once = proving(
        Living.test_an_id_is_used_once, "memory", "memory_id_is_used_again"
    )


class TestMemoryClosing(OnMemory, Closing):
    test_close_waits_for_appends_in_flight = proving(
        Closing.test_close_waits_for_appends_in_flight, "memory", "memory_close_does_not_wait"
    )


class TestMemoryFencing(OnMemory, Fencing):
    test_an_opener_fences_the_writer_and_closes = proving(
        Fencing.test_an_opener_fences_the_writer_and_closes, "memory", "memory_open_does_not_fence"
    )


class TestMemorySurviving(OnMemory, Surviving):
    test_a_deletion_survives_a_crash = proving(
        Surviving.test_a_deletion_survives_a_crash, "memory", "memory_id_is_used_again"
    )


class TestEmbeddedAppending(OnEmbedded, Appending):
    test_completion_never_comes_within_the_call = proving(
        Appending.test_completion_never_comes_within_the_call,
        "embedded",
        "embedded_completes_within_the_call",
    )


class TestEmbeddedReading(OnEmbedded, Reading):
    test_a_range_is_inclusive = proving(
        Reading.test_a_range_is_inclusive, "embedded", "embedded_range_excludes_its_end"
    )


class TestEmbeddedLiving(OnEmbedded, Living):
    test_an_id_is_used_once = proving(
        Living.test_an_id_is_used_once, "embedded", "embedded_id_is_used_again"
    )


class TestEmbeddedClosing(OnEmbedded, Closing):
    test_close_waits_for_appends_in_flight = proving(
        Closing.test_close_waits_for_appends_in_flight, "embedded", "embedded_close_does_not_wait"
    )


class TestEmbeddedFencing(OnEmbedded, Fencing):
    test_an_opener_fences_the_writer_and_closes = proving(
        Fencing.test_an_opener_fences_the_writer_and_closes, "embedded", "open_does_not_fence"
    )


class TestEmbeddedSurviving(OnEmbedded, Surviving):
    test_a_deletion_survives_a_crash = proving(
        Surviving.test_a_deletion_survives_a_crash, "embedded", "deletion_is_not_written"
    )
