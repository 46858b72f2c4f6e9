"""The metadata store's contract on one tree in two stores, on either side of the border."""

from collections.abc import AsyncIterator

import pytest

from anabranch.errors import InputError, NotEmpty
from anabranch.metadata.border import Border
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.parted import PartedStore
from anabranch.metadata.store import ABSENT, Delete, EventKind, Guard, MetadataStore, Put
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import (
    Batching,
    ScanAndChildren,
    Watching,
    paths_below,
    take,
    told,
)
from anabranch.testing.contracts.proving import proves

CLUSTER, POLICY = "/admin/clusters/c", "/admin/policies/t/n"
LOCAL_POLICY, TOPIC = "/admin/local-policies/t/n", "/managed-ledgers/t/n/persistent/x"
NAMES = (
    *"abcdeknqrtx123",
    *("a!", "a-b", "ab", "abc", "counter", "d", "empty", "fence", "large", "leaf", "lock", "many"),
    *("new", "old", "owned", "top"),
)
"""Of nearly all that the contract's tests write below the root."""


Parts = tuple[LocalHandle, LocalHandle]


class OnLocal:
    """All that the tests write is on the cluster's own side."""

    border = Border()

    @pytest.fixture
    async def parts(self) -> AsyncIterator[Parts]:
        local, configuration = [await open_store("memory:", real_runtime()) for _ in range(2)]
        assert isinstance(local, LocalHandle)
        assert isinstance(configuration, LocalHandle)
        yield local, configuration
        await local.close()
        await configuration.close()

    @pytest.fixture
    async def store(self, parts: Parts) -> AsyncIterator[MetadataStore]:
        store = PartedStore(await parts[0].handle(), await parts[1].handle(), self.border)
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, parts: Parts) -> AsyncIterator[MetadataStore]:
        other = PartedStore(await parts[0].handle(), await parts[1].handle(), self.border)
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, parts: Parts) -> Kill:
        return lambda victim: parts[0].end_session(victim.session)


class OnConfiguration(OnLocal):
    """It is beyond the border; the root is not, and there are no ephemeral nodes."""

    border = Border([f"/{name}" for name in NAMES])


@proves("core.M1", "parted", {"test_put_stale_version_changes_nothing": "any_version_will_do"})
class TestConditionalWrites(OnLocal, ConditionalWrites):
    pass


class TestConditionalWritesBeyond(OnConfiguration, ConditionalWrites):
    pass


@proves("core.M1", "parted", {"test_delete_exact_version": "any_version_will_do"})
class TestDeletes(OnLocal, Deletes):
    pass


class TestDeletesBeyond(OnConfiguration, Deletes):
    pass


class TestHostileInput(OnLocal, HostileInput):
    pass


class TestHostileInputBeyond(OnConfiguration, HostileInput):
    pass


@proves("core.M1", "parted", {"test_children_are_names_in_order": "children_are_not_sorted"})
class TestScanAndChildren(OnLocal, ScanAndChildren):
    many = 500


class TestScanAndChildrenBeyond(OnConfiguration, ScanAndChildren):
    many = 500


@proves(
    "core.M1",
    "parted",
    {"test_one_refused_does_not_stop_its_neighbours": "batch_stops_at_a_refusal"},
)
class TestBatching(OnLocal, Batching):
    pass


class TestBatchingBeyond(OnConfiguration, Batching):
    pass


class OneSideAlone(Watching):
    """A revision of one side is none of the whole tree: who resumes from it is told of a gap."""

    async def test_resume_after_every_event(self, store: MetadataStore) -> None:
        watch = store.watch("/")
        await store.put("/a", b"")
        (event,) = await take(watch, 1)
        await store.put("/a", b"2")
        assert told(await take(store.watch("/a", since=event.revision), 1)) == [
            (EventKind.MODIFIED, "/a")
        ]
        resumed = store.watch("/", since=event.revision)
        assert told(await take(resumed, 1)) == [(EventKind.GAP, "/")]
        await store.put("/b", b"")
        assert told(await take(resumed, 1)) == [(EventKind.CREATED, "/b")]


@proves("core.M1", "parted", {"test_own_writes_are_seen": "modifications_are_not_told"})
class TestWatching(OnLocal, OneSideAlone):
    pass


class TestWatchingBeyond(OnConfiguration, OneSideAlone):
    async def test_revision_of_another_history_is_a_gap(self, store: MetadataStore) -> None:
        """Shown by the other side: a revision of both that is made up there is one of it."""


@proves("core.M1", "parted", {"test_stat_tells_whose_node_it_is": "everybody_is_the_owner"})
class TestSessions(OnLocal, Sessions):
    pass


class TestSequences(OnLocal, Sequences):
    pass


@proves("core.M1", "parted", {"test_guard_that_is_gone_fences": "guards_are_not_checked"})
class TestGuards(OnLocal, Guards):
    pass


class TestBothSides(OnLocal):
    """One tree, whichever store a node is in."""

    @pytest.mark.goal("core.M1", part="parted", broken_by="everything_is_local")
    async def test_each_side_has_its_own(self, store: MetadataStore, parts: Parts) -> None:
        local, configuration = parts
        for path in (CLUSTER, POLICY, LOCAL_POLICY, TOPIC):
            await store.put(path, b"x", ABSENT)
        for path in (CLUSTER, POLICY):
            assert await configuration.exists(path)
            assert not await local.exists(path)
        for path in (LOCAL_POLICY, TOPIC):
            assert await local.exists(path)
            assert not await configuration.exists(path)

    @pytest.mark.goal("core.M1", part="parted", broken_by="admin_is_local_alone")
    async def test_what_is_above_the_border_shows_both(self, store: MetadataStore) -> None:
        await store.put(POLICY, b"x")
        assert await store.exists("/admin")
        assert await store.get("/admin") is not None
        assert await store.children("/") == ["admin"]
        for path in (CLUSTER, LOCAL_POLICY, TOPIC, "/admin/clusters-of-mine"):
            await store.put(path, b"x")
        assert await store.children("/admin") == [
            *("clusters", "clusters-of-mine", "local-policies", "policies")
        ]
        assert await store.children("/") == ["admin", "managed-ledgers"]
        assert await paths_below(store, "/admin") == [
            "/admin",
            *("/admin/clusters", CLUSTER),
            "/admin/clusters-of-mine",
            *("/admin/local-policies", "/admin/local-policies/t", LOCAL_POLICY),
            *("/admin/policies", "/admin/policies/t", POLICY),
        ]
        for path in (LOCAL_POLICY, "/admin/local-policies/t", "/admin/local-policies"):
            await store.delete(path)
        await store.delete("/admin/clusters-of-mine")
        with pytest.raises(NotEmpty, match="/admin"):
            await store.delete("/admin")

    async def test_a_watch_of_all_tells_of_both(self, store: MetadataStore) -> None:
        now = await store.revision()
        watch = store.watch("/")
        await store.put("/a", b"")
        assert told(await take(watch, 1)) == [(EventKind.CREATED, "/a")]
        await store.put("/admin/policies/t", b"")
        paths = ["/admin", "/admin/policies", "/admin/policies/t"]
        assert [event.path for event in await take(watch, 3)] == paths
        resumed = await take(store.watch("/", since=now), 4)
        assert sorted(event.path for event in resumed) == ["/a", *paths]
        assert await store.moment() > now

    async def test_a_revision_of_both_is_good_for_either(self, store: MetadataStore) -> None:
        for number in range(5):
            await store.put("/a", b"%d" % number)
        now = await store.revision()
        await store.put(POLICY, b"x")
        await store.put("/a", b"")
        changed = [event.path async for event in store.changed_since(now, "/admin/policies")]
        assert changed == ["/admin/policies", "/admin/policies/t", POLICY]
        assert [event.path async for event in store.changed_since(now, "/a")] == ["/a"]
        kinds = [event.kind async for event in store.changed_since(now)]
        assert kinds == [EventKind.GAP]

    @pytest.mark.goal("core.M1", part="parted", broken_by="guards_are_asked_elsewhere")
    async def test_a_guard_is_on_the_side_of_what_it_guards(self, store: MetadataStore) -> None:
        guard = Guard("/fence", (await store.put("/fence", b"")).version)
        with pytest.raises(InputError, match="two stores"):
            await store.put(POLICY, b"", guard=guard)
        with pytest.raises(InputError, match="two stores"):
            await store.delete(POLICY, guard=guard)
        refused, _ = await store.batch([Put(POLICY, b"", guard=guard), Put("/a", b"")])
        assert isinstance(refused, InputError)
        assert await store.get("/a") is not None, "its neighbour was carried out"
        assert not await store.exists(POLICY)

    async def test_ephemeral_nodes_are_local(self, store: MetadataStore) -> None:
        with pytest.raises(InputError, match="ephemeral"):
            await store.put(POLICY, b"", ephemeral=True)
        assert (await store.put(LOCAL_POLICY, b"", ephemeral=True)).created_by_self
        assert not await store.exists(POLICY)

    async def test_what_needs_one_moment_is_refused_above_the_border(
        self, store: MetadataStore
    ) -> None:
        await store.put(POLICY, b"x")
        await store.put(TOPIC, b"y")
        for prefix in ("/", "/admin"):
            with pytest.raises(InputError, match="no moment in common"):
                store.export(prefix)
        exported = [record.path async for record in store.export("/admin/policies")]
        assert exported == ["/admin/policies", "/admin/policies/t", POLICY]
        with pytest.raises(InputError, match="copy is of one store"):
            await store.restore(store.export(TOPIC))
        with pytest.raises(InputError, match="index"):
            store.scan_index("anything")

    async def test_a_batch_over_both_keeps_its_order(self, store: MetadataStore) -> None:
        outcomes = await store.batch(
            [
                Put(POLICY, b"1", ABSENT),
                Put("/a", b"1", ABSENT),
                Delete(POLICY),
                Delete("/admin"),
                Put("/a", b"2"),
            ]
        )
        assert isinstance(outcomes[3], InputError)
        assert await store.get(POLICY) is None
        node = await store.get("/a")
        assert node is not None
        assert node.value == b"2"

    async def test_a_failure_of_either_is_one_of_both(
        self, store: MetadataStore, parts: Parts
    ) -> None:
        assert store.failure is None
        await store.sync()
        await store.close()
        for part in parts:
            assert await part.children("/") == [], "other handles go on"
