"""The metadata store's contract through a wrapper that hands every call on and has nothing else."""

from collections.abc import AsyncIterator

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Copies, Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.contracts.proving import proves
from anabranch.testing.pass_through import PassThrough

PART = "pass-through"


class Wrapped:
    @pytest.fixture
    async def behind(self) -> LocalHandle:
        store = await open_store("memory:", real_runtime())
        assert isinstance(store, LocalHandle)
        return store

    @pytest.fixture
    async def store(self, behind: LocalHandle) -> AsyncIterator[MetadataStore]:
        store = PassThrough(behind)
        yield store
        await store.close()

    @pytest.fixture
    async def other(
        self, store: MetadataStore, behind: LocalHandle
    ) -> AsyncIterator[MetadataStore]:
        other = PassThrough(await behind.handle())
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, behind: LocalHandle) -> Kill:
        return lambda victim: behind.end_session(victim.session)

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = PassThrough(await open_store("memory:", real_runtime()))
        yield another
        await another.close()


@proves("core.M1", PART, {"test_put_stale_version_changes_nothing": "any_version_will_do"})
class TestConditionalWrites(Wrapped, ConditionalWrites):
    pass


@proves("core.M1", PART, {"test_delete_exact_version": "any_version_will_do"})
class TestDeletes(Wrapped, Deletes):
    pass


@proves("core.M1", PART, {"test_value_above_the_limit_is_refused": "values_of_any_size"})
class TestHostileInput(Wrapped, HostileInput):
    pass


@proves("core.M1", PART, {"test_children_are_names_in_order": "children_are_not_sorted"})
class TestScanAndChildren(Wrapped, ScanAndChildren):
    pass


@proves(
    "core.M1", PART, {"test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal"}
)
class TestBatching(Wrapped, Batching):
    pass


@proves("core.M1", PART, {"test_own_writes_are_seen": "modifications_are_not_told"})
class TestWatching(Wrapped, Watching):
    pass


@proves("core.M1", PART, {"test_stat_tells_whose_node_it_is": "everybody_is_the_owner"})
class TestSessions(Wrapped, Sessions):
    pass


@proves(
    "core.M1",
    PART,
    {"test_number_is_not_given_out_again_after_a_delete": "sequences_count_children"},
)
class TestSequences(Wrapped, Sequences):
    pass


@proves("core.M1", PART, {"test_guard_that_is_gone_fences": "guards_are_not_checked"})
class TestGuards(Wrapped, Guards):
    pass


@proves("core.M1", PART, {"test_follow_puts_and_deletes": "old_index_keys_stay"})
class TestIndexes(Wrapped, Indexes):
    pass


@proves("core.M1", PART, {"test_round_trip_keeps_everything": "restored_versions_begin_anew"})
class TestCopies(Wrapped, Copies):
    pass
