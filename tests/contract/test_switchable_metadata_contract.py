"""The metadata store's contract, shown on a store that can be replaced and is not.

The wrapper must be like what it is around: a store in this process, and modelled servers of
ZooKeeper and Oxia, whose sessions can run out.
"""

from collections.abc import AsyncIterator

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Copies, Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.contracts.proving import proves
from anabranch.testing.model_stores import model_runtime, modelled_oxia, modelled_zookeeper
from anabranch.testing.zookeeper_sessions import end_session

MANY_CHILDREN = 500
TIMEOUT_S = 3.0


class Wrapped:
    """What all have in common: the fixture `bare` opens another handle on one store."""

    @pytest.fixture
    async def store(self, handles: "Handles") -> AsyncIterator[MetadataStore]:
        store = await handles.switchable()
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, handles: "Handles") -> AsyncIterator[MetadataStore]:
        other = await handles.switchable()
        yield other
        await other.close()

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


class Handles:
    """Opens handles on one store."""

    def __init__(self, url: str, runtime: Runtime, first: LocalHandle | None = None) -> None:
        self._url = url
        self._runtime = runtime
        self._first = first

    async def switchable(self) -> SwitchableStore:
        store, side = await self._open(), await self._open()
        return SwitchableStore(store, side, self._runtime.clock, "metadata", "me")

    async def _open(self) -> MetadataStore:
        if self._first is not None:
            return await self._first.handle()
        return await open_store(self._url, self._runtime, session_timeout_s=TIMEOUT_S)


class OnMemory(Wrapped):
    @pytest.fixture
    async def first(self) -> AsyncIterator[LocalHandle]:
        first = await open_store("memory:", real_runtime())
        assert isinstance(first, LocalHandle)
        yield first
        await first.close()

    @pytest.fixture
    def handles(self, first: LocalHandle) -> Handles:
        return Handles("memory:", real_runtime(), first)

    @pytest.fixture
    def kill(self, first: LocalHandle) -> Kill:
        return lambda victim: first.end_session(victim.session)


class OnModelledZooKeeper(Wrapped):
    @pytest.fixture
    async def handles(self) -> AsyncIterator[Handles]:
        async with modelled_zookeeper("contract") as url:
            yield Handles(url, real_runtime())

    @pytest.fixture
    def kill(self) -> Kill:
        async def kill(victim: MetadataStore) -> None:
            assert isinstance(victim, SwitchableStore)
            inner = victim.route.store
            assert isinstance(inner, ZooKeeperStore)
            await end_session(inner)

        return kill


class OnModelledOxia(Wrapped):
    @pytest.fixture
    async def handles(self) -> AsyncIterator[Handles]:
        async with modelled_oxia() as url:
            yield Handles(url, model_runtime())

    @pytest.fixture
    def kill(self, store: SwitchableStore) -> Kill:
        inner = store.route.store
        return lambda victim: inner.end_session(victim.session)  # type: ignore[attr-defined]


@proves("core.M1", "switchable", {"test_put_stale_version_changes_nothing": "any_version_will_do"})
class TestSwitchableConditionalWrites(OnMemory, ConditionalWrites):
    pass


class TestSwitchableDeletes(OnMemory, Deletes):
    pass


class TestSwitchableHostileInput(OnMemory, HostileInput):
    pass


class TestSwitchableScanAndChildren(OnMemory, ScanAndChildren):
    many = MANY_CHILDREN


@proves(
    "core.M1",
    "switchable",
    {"test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal"},
)
class TestSwitchableBatching(OnMemory, Batching):
    pass


@proves("core.M1", "switchable", {"test_own_writes_are_seen": "modifications_are_not_told"})
class TestSwitchableWatching(OnMemory, Watching):
    pass


@proves("core.M1", "switchable", {"test_stat_tells_whose_node_it_is": "everybody_is_the_owner"})
class TestSwitchableSessions(OnMemory, Sessions):
    pass


class TestSwitchableSequences(OnMemory, Sequences):
    pass


@proves("core.M1", "switchable", {"test_guard_that_is_gone_fences": "guards_are_not_checked"})
class TestSwitchableGuards(OnMemory, Guards):
    pass


class TestSwitchableIndexes(OnMemory, Indexes):
    pass


class TestSwitchableCopies(OnMemory, Copies):
    pass


class TestSwitchableZooKeeperConditionalWrites(OnModelledZooKeeper, ConditionalWrites):
    pass


class TestSwitchableZooKeeperDeletes(OnModelledZooKeeper, Deletes):
    pass


class TestSwitchableZooKeeperWatching(OnModelledZooKeeper, Watching):
    pass


class TestSwitchableZooKeeperSessions(OnModelledZooKeeper, Sessions):
    pass


class TestSwitchableZooKeeperSequences(OnModelledZooKeeper, Sequences):
    pass


class TestSwitchableZooKeeperGuards(OnModelledZooKeeper, Guards):
    pass


class TestSwitchableOxiaConditionalWrites(OnModelledOxia, ConditionalWrites):
    pass


class TestSwitchableOxiaDeletes(OnModelledOxia, Deletes):
    pass


class TestSwitchableOxiaWatching(OnModelledOxia, Watching):
    pass


class TestSwitchableOxiaSessions(OnModelledOxia, Sessions):
    pass


class TestSwitchableOxiaSequences(OnModelledOxia, Sequences):
    pass


class TestSwitchableOxiaGuards(OnModelledOxia, Guards):
    pass
