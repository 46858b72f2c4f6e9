"""The embedded ledger store against a plain model: any order of calls, restarts and crashes."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from anabranch.errors import AlreadyClosed, ConflictError, Fenced, NotFound
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.embedded_ledger import EmbeddedWriter
from anabranch.ledgers.store import LedgerState
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.contracts.ledgers import append, ids_of, payloads_of

T = TypeVar("T")
IDS = st.integers(0, 9)
ENTRY_OVERHEAD = 150
"""Headers of an entry, and of a segment that holds nothing but this entry."""
FACTS_AND_TAIL_BYTES = 4000
PAYLOADS = st.lists(st.binary(max_size=200), min_size=1, max_size=8)


class Modelled:
    """A ledger as it should be."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.closed = False


class LedgerStoreMachine(RuleBasedStateMachine):
    """Drives a store with tiny segments and compares it with dictionaries."""

    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.disk = RealDisk()
        self.root = Path(tempfile.mkdtemp(prefix="ledgers-"))
        self.life = 0
        self.stores: list[EmbeddedLedgerStore] = []
        self.model: dict[int, Modelled] = {}
        self.used: set[int] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def store(self) -> EmbeddedLedgerStore:
        return self.stores[-1]

    def begin(self) -> None:
        folder = str(self.root / str(self.life))
        self.stores.append(
            self.run(EmbeddedLedgerStore.open_folder(self.disk, folder, segment_bytes=400))
        )

    @initialize()
    def first_life(self) -> None:
        self.begin()

    @rule(target=writers, ledger_id=IDS)
    def create(self, ledger_id: int) -> Any:
        if ledger_id in self.used:
            try:
                self.run(self.store.create(ledger_id))
            except ConflictError:
                return multiple()
            raise AssertionError("an id was used twice")
        self.used.add(ledger_id)
        self.model[ledger_id] = Modelled()
        return self.run(self.store.create(ledger_id)), self.life

    @rule(writer=writers, payloads=PAYLOADS)
    def append(self, writer: tuple[EmbeddedWriter, int], payloads: list[bytes]) -> None:
        handle, life = writer
        if life != self.life:
            return
        ledger = self.model.get(handle.ledger_id)
        try:
            ids = self.run(append(handle, *payloads))
        except (Fenced, AlreadyClosed):
            assert ledger is None or ledger.closed
            return
        assert ledger is not None
        assert not ledger.closed
        assert ids == list(range(len(ledger.entries), len(ledger.entries) + len(payloads)))
        ledger.entries += payloads

    @rule(writer=consumes(writers))
    def close(self, writer: tuple[EmbeddedWriter, int]) -> None:
        handle, life = writer
        if life != self.life:
            return
        ledger = self.model.get(handle.ledger_id)
        try:
            last = self.run(handle.close())
        except Fenced:
            assert ledger is None or ledger.closed
            return
        assert ledger is not None
        assert last == len(ledger.entries) - 1
        ledger.closed = True

    @rule(ledger_id=IDS)
    def open(self, ledger_id: int) -> None:
        ledger = self.model.get(ledger_id)
        try:
            reader = self.run(self.store.open(ledger_id))
        except NotFound:
            assert ledger is None
            return
        assert ledger is not None
        ledger.closed = True
        assert self.run(payloads_of(reader)) == ledger.entries

    @rule(ledger_id=IDS)
    def delete(self, ledger_id: int) -> None:
        expected = self.model.pop(ledger_id, None)
        try:
            self.run(self.store.delete(ledger_id))
        except NotFound:
            assert expected is None
            return
        assert expected is not None

    @precondition(lambda self: self.stores)
    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.crash()

    @precondition(lambda self: self.stores)
    @rule()
    def crash(self) -> None:
        """Go on with a copy of the folder; the old store ends at the end of the test."""
        self.run(self.store.tidied())
        before = self.root / str(self.life)
        self.life += 1
        shutil.copytree(before, self.root / str(self.life))
        self.begin()

    @precondition(lambda self: self.stores)
    @rule()
    def tidy(self) -> None:
        """What the disk holds is at most twice what lives, but for headers, facts and the tail."""
        self.run(self.store.tidied())
        living = sum(
            len(entry) + ENTRY_OVERHEAD
            for ledger in self.model.values()
            for entry in ledger.entries
        )
        journal = self.root / str(self.life) / "journal"
        found = sum(file.stat().st_size for file in journal.iterdir())
        assert found <= 2 * living + FACTS_AND_TAIL_BYTES

    @invariant()
    def agrees(self) -> None:
        if not self.stores:
            return
        assert self.run(ids_of(self.store)) == sorted(self.model)
        for ledger_id, ledger in self.model.items():
            found = self.run(self.store.describe(ledger_id))
            assert found.last_entry_id == len(ledger.entries) - 1
            assert found.length_bytes == sum(map(len, ledger.entries))
            assert (found.state is LedgerState.CLOSED) == ledger.closed
        assert self.store.upkeep_failure is None

    def teardown(self) -> None:
        for store in self.stores:
            self.run(store.close())
        self.loop.close()
        self.disk.close()
        shutil.rmtree(self.root)


LedgerStoreMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLedgerStoreModel = LedgerStoreMachine.TestCase
