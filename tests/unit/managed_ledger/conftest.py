"""Stores that live in the test process, and a ledger store that can be told to wait or fail."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import pytest

from anabranch.errors import (
    AlreadyClosed,
    ConflictError,
    Fenced,
    InputError,
    NotFound,
    StoreFailed,
)
from anabranch.ids import Position
from anabranch.journal import Pressure
from anabranch.ledgers.store import (
    AppendDone,
    Entry,
    LedgerDescription,
    LedgerQuorums,
    LedgerReader,
    LedgerState,
    LedgerWriter,
)
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.network import Buffer
from anabranch.runtime.real import real_runtime

NAME = "t/ns/persistent/topic"


class ScriptedLedger:
    """One ledger, its writer and its reader."""

    def __init__(self, store: "ScriptedLedgers", ledger_id: int) -> None:
        self.store = store
        self.ledger_id = ledger_id
        self.durable: list[bytes] = []
        self.in_flight: list[tuple[bytes, AppendDone]] = []
        self.state = LedgerState.OPEN
        self.fenced = False
        self.failed = False
        self.custom_metadata: dict[str, bytes] = {}
        self.quorums: LedgerQuorums | None = None
        self.idle = asyncio.Event()
        self.idle.set()
        self._settling = False

    @property
    def last_entry_id(self) -> int:
        return len(self.durable) - 1

    def append(self, payload: Buffer, done: AppendDone) -> int:
        if self.fenced:
            raise Fenced(f"ledger {self.ledger_id} was opened by another")
        if self.state is LedgerState.CLOSED:
            raise AlreadyClosed(f"ledger {self.ledger_id} is closed")
        if len(payload) > self.store.entry_bytes_max:
            raise InputError(f"an entry of {len(payload)} bytes is too large")
        self.idle.clear()
        self.in_flight.append((bytes(payload), done))
        if not self.store.held and not self._settling:
            self._settling = True
            asyncio.get_running_loop().call_soon(self.settle)
        return len(self.durable) + len(self.in_flight) - 1

    def settle(self) -> None:
        self._settling = False
        in_flight, self.in_flight = self.in_flight, []
        for payload, done in in_flight:
            if self.store.appends_fail:
                self.failed = True
            if self.fenced:
                done(-1, Fenced(f"ledger {self.ledger_id} was opened by another"))
            elif self.failed:
                done(-1, StoreFailed("the disk is gone"))
            else:
                self.durable.append(payload)
                done(len(self.durable) - 1, None)
        if not self.in_flight:
            self.idle.set()

    async def close(self) -> int:
        await self.idle.wait()
        if self.fenced:
            raise Fenced(f"ledger {self.ledger_id} was opened by another")
        if self.failed:
            raise StoreFailed("the disk is gone")
        self.state = LedgerState.CLOSED
        return self.last_entry_id

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        self.store.reads += 1
        if self.ledger_id not in self.store.ledgers or first > self.last_entry_id:
            raise NotFound(f"no entry {first} in ledger {self.ledger_id}")
        entries: list[Entry] = []
        for entry_id in range(first, min(last, self.last_entry_id) + 1):
            payload = self.durable[entry_id]
            max_bytes -= len(payload)
            if entries and max_bytes < 0:
                break
            entries.append(Entry(self.ledger_id, entry_id, payload))
        return entries


@dataclass
class ScriptedLedgers:
    """A ledger store in memory that waits or fails when told to."""

    ledgers: dict[int, ScriptedLedger] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    held: bool = False
    appends_fail: bool = False
    creates_fail: bool = False
    create_gate: asyncio.Event | None = None
    reads: int = 0
    entry_bytes_max: int = 1 << 30
    pressure: Pressure = field(default_factory=Pressure)

    async def create(
        self,
        ledger_id: int,
        *,
        custom_metadata: Mapping[str, bytes] | None = None,
        quorums: LedgerQuorums | None = None,
    ) -> LedgerWriter:
        if self.create_gate is not None:
            await self.create_gate.wait()
        if self.creates_fail:
            raise StoreFailed("the disk is gone")
        if ledger_id in self.used:
            raise ConflictError(f"ledger {ledger_id} was used before")
        self.used.add(ledger_id)
        ledger = self.ledgers[ledger_id] = ScriptedLedger(self, ledger_id)
        ledger.custom_metadata = dict(custom_metadata or {})
        ledger.quorums = quorums
        return ledger

    async def open(self, ledger_id: int) -> LedgerReader:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise NotFound(f"no ledger {ledger_id}")
        if ledger.state is LedgerState.OPEN:
            ledger.fenced = True
            ledger.settle()
            ledger.state = LedgerState.CLOSED
        return ledger

    async def delete(self, ledger_id: int) -> None:
        if self.ledgers.pop(ledger_id, None) is None:
            raise NotFound(f"no ledger {ledger_id}")

    async def list(self) -> AsyncIterator[int]:
        for ledger_id in sorted(self.ledgers):
            yield ledger_id

    async def describe(self, ledger_id: int) -> LedgerDescription:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise NotFound(f"no ledger {ledger_id}")
        size = sum(len(payload) for payload in ledger.durable)
        return LedgerDescription(
            ledger_id, ledger.state, 0, ledger.last_entry_id, size, ledger.custom_metadata
        )

    async def close(self) -> None:
        pass

    def release(self) -> None:
        """Let held appends complete."""
        self.held = False
        for ledger in self.ledgers.values():
            ledger.settle()


@dataclass
class World:
    """The stores that outlive a broker, and brokers on top of them."""

    metadata: MetadataStore
    ledgers: ScriptedLedgers
    runtime: Runtime
    brokers: list[ManagedLedgers] = field(default_factory=list)

    def broker(self, config: ManagedLedgerConfig | None = None) -> ManagedLedgers:
        """Another process, which knows nothing but the stores."""
        broker = ManagedLedgers(
            metadata=self.metadata, ledgers=self.ledgers, runtime=self.runtime, config=config
        )
        self.brokers.append(broker)
        return broker

    async def open(self, config: ManagedLedgerConfig | None = None) -> ManagedLedger:
        """The topic, taken over by another process."""
        return await self.broker(config).open(NAME)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    runtime = real_runtime()
    world = World(await open_store("memory:", runtime), ScriptedLedgers(), runtime)
    yield world
    world.ledgers.release()
    for broker in world.brokers:
        await broker.close()


Append = Callable[[ManagedLedger, bytes], "asyncio.Future[Position]"]


def start_append(ledger: ManagedLedger, payload: bytes) -> "asyncio.Future[Position]":
    future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position | None, error: Exception | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            assert position is not None
            future.set_result(position)

    ledger.append(payload, done)
    return future


@pytest.fixture
def append() -> Append:
    """Append an entry; the future has its position."""
    return start_append


@pytest.fixture
def append_all() -> Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]:
    """Append so many entries `entry-<n>` at once; the future has their positions."""

    def run(ledger: ManagedLedger, count: int) -> "asyncio.Future[list[Position]]":
        return asyncio.gather(*(start_append(ledger, b"entry-%d" % n) for n in range(count)))

    return run
