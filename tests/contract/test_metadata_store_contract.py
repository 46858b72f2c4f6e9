"""The metadata store's contract, shown on every store that needs no server.

One test of each suite stands for it in the goal map, with a mistake that it must notice.
"""

from collections.abc import AsyncIterator
from pathlib import Path

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


class Local:
    """What the two stores that live in this process need besides `store`."""

    @pytest.fixture
    async def other(self, store: LocalHandle) -> AsyncIterator[MetadataStore]:
        other = await store.handle()
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, store: LocalHandle) -> Kill:
        return lambda victim: store.end_session(victim.session)

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


class OnMemory(Local):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MetadataStore]:
        store = await open_store("memory:", real_runtime())
        yield store
        await store.close()


class OnEmbedded(Local):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MetadataStore]:
        store = await open_store(f"embedded:{tmp_path}/store", real_runtime())
        yield store
        await store.close()


@proves("core.M1", "memory", {"test_put_stale_version_changes_nothing": "any_version_will_do"})
@proves(
    "core.M2",
    "memory",
    {
        "test_put_stale_version_changes_nothing": "any_version_will_do",
        "test_put_version_where_nothing_is": "any_version_will_do",
        "test_version_of_an_earlier_life_does_not_match": "any_version_will_do",
        "test_put_absent_creates_once": "absent_is_not_checked",
    },
)
class TestMemoryConditionalWrites(OnMemory, ConditionalWrites):
    pass


@proves("core.M1", "memory", {"test_delete_exact_version": "any_version_will_do"})
class TestMemoryDeletes(OnMemory, Deletes):
    pass


@proves("core.M1", "memory", {"test_value_above_the_limit_is_refused": "values_of_any_size"})
class TestMemoryHostileInput(OnMemory, HostileInput):
    pass


@proves("core.M1", "memory", {"test_children_are_names_in_order": "children_are_not_sorted"})
@proves(
    "core.M7",
    "memory",
    {
        "test_children_are_names_in_order": "children_are_not_sorted",
        "test_many_children_of_one_node": "children_are_cut_short",
    },
)
class TestMemoryScanAndChildren(OnMemory, ScanAndChildren):
    pass


@proves(
    "core.M1",
    "memory",
    {"test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal"},
)
@proves(
    "core.M6",
    "memory",
    {
        "test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal",
    },
)
class TestMemoryBatching(OnMemory, Batching):
    pass


@proves("core.M1", "memory", {"test_own_writes_are_seen": "modifications_are_not_told"})
@proves(
    "core.M5",
    "memory",
    {
        "test_own_writes_are_seen": "modifications_are_not_told",
        "test_resume_after_every_event": "watch_resumes_one_late",
        "test_concurrent_writes_are_told_in_the_order_of_history": "modifications_are_not_told",
        "test_revision_of_another_history_is_a_gap": "gap_is_passed_over",
        "test_resume_from_now_tells_only_what_follows": "watch_resumes_one_early",
    },
)
class TestMemoryWatching(OnMemory, Watching):
    pass


@proves("core.M1", "embedded", {"test_put_stale_version_changes_nothing": "any_version_will_do"})
@proves(
    "core.M2",
    "embedded",
    {
        "test_put_stale_version_changes_nothing": "any_version_will_do",
        "test_put_version_where_nothing_is": "any_version_will_do",
        "test_version_of_an_earlier_life_does_not_match": "any_version_will_do",
        "test_put_absent_creates_once": "absent_is_not_checked",
    },
)
class TestEmbeddedConditionalWrites(OnEmbedded, ConditionalWrites):
    pass


@proves("core.M1", "embedded", {"test_delete_exact_version": "any_version_will_do"})
class TestEmbeddedDeletes(OnEmbedded, Deletes):
    pass


@proves("core.M1", "embedded", {"test_value_above_the_limit_is_refused": "values_of_any_size"})
class TestEmbeddedHostileInput(OnEmbedded, HostileInput):
    pass


@proves("core.M1", "embedded", {"test_children_are_names_in_order": "children_are_not_sorted"})
@proves(
    "core.M7",
    "embedded",
    {
        "test_children_are_names_in_order": "children_are_not_sorted",
        "test_many_children_of_one_node": "children_are_cut_short",
    },
)
class TestEmbeddedScanAndChildren(OnEmbedded, ScanAndChildren):
    pass


@proves(
    "core.M1",
    "embedded",
    {"test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal"},
)
@proves(
    "core.M6",
    "embedded",
    {
        "test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal",
    },
)
class TestEmbeddedBatching(OnEmbedded, Batching):
    pass


@proves("core.M1", "embedded", {"test_own_writes_are_seen": "modifications_are_not_told"})
@proves(
    "core.M5",
    "embedded",
    {
        "test_own_writes_are_seen": "modifications_are_not_told",
        "test_resume_after_every_event": "watch_resumes_one_late",
        "test_concurrent_writes_are_told_in_the_order_of_history": "modifications_are_not_told",
        "test_revision_of_another_history_is_a_gap": "gap_is_passed_over",
        "test_resume_from_now_tells_only_what_follows": "watch_resumes_one_early",
    },
)
class TestEmbeddedWatching(OnEmbedded, Watching):
    pass


@proves("core.M1", "memory", {"test_stat_tells_whose_node_it_is": "everybody_is_the_owner"})
@proves(
    "core.M3",
    "memory",
    {
        "test_stat_tells_whose_node_it_is": "everybody_is_the_owner",
        "test_session_that_ends_takes_the_nodes_along": "ephemeral_outlives_its_session",
    },
)
class TestMemorySessions(OnMemory, Sessions):
    pass


@proves(
    "core.M1",
    "memory",
    {"test_number_is_not_given_out_again_after_a_delete": "sequences_count_children"},
)
@proves(
    "core.M4",
    "memory",
    {
        "test_eight_writers_get_different_rising_numbers": "sequences_count_down",
        "test_number_is_not_given_out_again_after_a_delete": "sequences_count_children",
    },
)
class TestMemorySequences(OnMemory, Sequences):
    pass


@proves("core.M1", "memory", {"test_guard_that_is_gone_fences": "guards_are_not_checked"})
class TestMemoryGuards(OnMemory, Guards):
    pass


@proves("core.M1", "memory", {"test_follow_puts_and_deletes": "old_index_keys_stay"})
class TestMemoryIndexes(OnMemory, Indexes):
    pass


@proves("core.M1", "memory", {"test_round_trip_keeps_everything": "restored_versions_begin_anew"})
class TestMemoryCopies(OnMemory, Copies):
    pass


@proves("core.M1", "embedded", {"test_stat_tells_whose_node_it_is": "everybody_is_the_owner"})
@proves(
    "core.M3",
    "embedded",
    {
        "test_stat_tells_whose_node_it_is": "everybody_is_the_owner",
        "test_session_that_ends_takes_the_nodes_along": "ephemeral_outlives_its_session",
    },
)
class TestEmbeddedSessions(OnEmbedded, Sessions):
    pass


@proves(
    "core.M1",
    "embedded",
    {"test_number_is_not_given_out_again_after_a_delete": "sequences_count_children"},
)
@proves(
    "core.M4",
    "embedded",
    {
        "test_eight_writers_get_different_rising_numbers": "sequences_count_down",
        "test_number_is_not_given_out_again_after_a_delete": "sequences_count_children",
    },
)
class TestEmbeddedSequences(OnEmbedded, Sequences):
    pass


@proves("core.M1", "embedded", {"test_guard_that_is_gone_fences": "guards_are_not_checked"})
class TestEmbeddedGuards(OnEmbedded, Guards):
    pass


@proves("core.M1", "embedded", {"test_follow_puts_and_deletes": "old_index_keys_stay"})
class TestEmbeddedIndexes(OnEmbedded, Indexes):
    pass


@proves("core.M1", "embedded", {"test_round_trip_keeps_everything": "restored_versions_begin_anew"})
class TestEmbeddedCopies(OnEmbedded, Copies):
    pass
