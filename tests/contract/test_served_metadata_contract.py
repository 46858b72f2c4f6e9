"""The metadata store's contract, shown on a store that another event loop's client reaches by TCP.

The server stands on a memory store here, so that the suite is about the protocol; durability is
shown elsewhere. One test of each suite stands for it in the goal map, with a mistake that it must
notice.
"""

from collections.abc import AsyncIterator

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Copies, Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.contracts.proving import proves


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}")


class OnServed:
    @pytest.fixture
    async def base(self) -> AsyncIterator[MemoryStore]:
        base = MemoryStore(real_runtime().clock)
        yield base
        await base.close()

    @pytest.fixture
    async def server(self, base: MemoryStore) -> AsyncIterator[MetadataServer]:
        server = MetadataServer(real_runtime(), base, on_failure=failed)
        await server.start("127.0.0.1", 0)
        yield server
        await server.close()

    @pytest.fixture
    async def store(self, server: MetadataServer) -> AsyncIterator[MetadataStore]:
        store = await open_store(f"anabranch://127.0.0.1:{server.port}", real_runtime())
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, server: MetadataServer) -> AsyncIterator[MetadataStore]:
        other = await open_store(f"anabranch://127.0.0.1:{server.port}", real_runtime())
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, store: MetadataStore) -> Kill:
        return lambda victim: store.end_session(victim.session)  # type: ignore[attr-defined]

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


@proves("core.M1", "served", {"test_put_stale_version_changes_nothing": "any_version_will_do"})
@proves(
    "core.M2",
    "served",
    {
        "test_put_stale_version_changes_nothing": "any_version_will_do",
        "test_put_version_where_nothing_is": "any_version_will_do",
        "test_version_of_an_earlier_life_does_not_match": "any_version_will_do",
        "test_put_absent_creates_once": "absent_is_not_checked",
    },
)
class TestServedConditionalWrites(OnServed, ConditionalWrites):
    pass


@proves("core.M1", "served", {"test_delete_exact_version": "any_version_will_do"})
class TestServedDeletes(OnServed, Deletes):
    pass


@proves("core.M1", "served", {"test_value_above_the_limit_is_refused": "values_of_any_size"})
class TestServedHostileInput(OnServed, HostileInput):
    pass


@proves("core.M1", "served", {"test_children_are_names_in_order": "children_are_not_sorted"})
@proves(
    "core.M7",
    "served",
    {
        "test_children_are_names_in_order": "children_are_not_sorted",
        "test_many_children_of_one_node": "children_are_cut_short",
    },
)
class TestServedScanAndChildren(OnServed, ScanAndChildren):
    pass


@proves(
    "core.M1",
    "served",
    {"test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal"},
)
@proves(
    "core.M6",
    "served",
    {
        "test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal",
    },
)
class TestServedBatching(OnServed, Batching):
    pass


@proves("core.M1", "served", {"test_own_writes_are_seen": "modifications_are_not_told"})
@proves(
    "core.M5",
    "served",
    {
        "test_own_writes_are_seen": "modifications_are_not_told",
        "test_resume_after_every_event": "watch_resumes_one_late",
        "test_concurrent_writes_are_told_in_the_order_of_history": "modifications_are_not_told",
        "test_revision_of_another_history_is_a_gap": "gap_is_passed_over",
        "test_resume_from_now_tells_only_what_follows": "served_watch_tells_all",
    },
)
class TestServedWatching(OnServed, Watching):
    pass


@proves("core.M1", "served", {"test_stat_tells_whose_node_it_is": "everybody_is_the_owner"})
@proves(
    "core.M3",
    "served",
    {
        "test_stat_tells_whose_node_it_is": "everybody_is_the_owner",
        "test_session_that_ends_takes_the_nodes_along": "ephemeral_outlives_its_session",
    },
)
class TestServedSessions(OnServed, Sessions):
    pass


@proves(
    "core.M1",
    "served",
    {"test_number_is_not_given_out_again_after_a_delete": "sequences_count_children"},
)
@proves(
    "core.M4",
    "served",
    {
        "test_eight_writers_get_different_rising_numbers": "sequences_count_down",
        "test_number_is_not_given_out_again_after_a_delete": "sequences_count_children",
    },
)
class TestServedSequences(OnServed, Sequences):
    pass


@proves("core.M1", "served", {"test_guard_that_is_gone_fences": "guards_are_not_checked"})
class TestServedGuards(OnServed, Guards):
    pass


@proves("core.M1", "served", {"test_follow_puts_and_deletes": "old_index_keys_stay"})
class TestServedIndexes(OnServed, Indexes):
    pass


@proves("core.M1", "served", {"test_round_trip_keeps_everything": "restored_versions_begin_anew"})
class TestServedCopies(OnServed, Copies):
    pass
