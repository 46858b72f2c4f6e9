"""What every `BulkEngine` must do, with any two stores.

Subclasses give the fixtures `engine`, and `left` and `right`: the URLs of two empty stores that
nobody has open.
"""

import pytest

from anabranch.errors import ConflictError, NotFound
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.migrations.engine.bulk import (
    BulkEngine,
    CompareWishes,
    CopyWishes,
    Mismatch,
    StorePlace,
)
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each, made_tree

NODES = 200
TOPIC = "/namespace-00000/topic-0003"
BY_DIGEST = CompareWishes(by_digest=True)


async def store_at(url: str) -> MetadataStore:
    """A store that was left by others."""
    return await open_store(url, real_runtime())


async def fill(url: str, records: list[Record]) -> None:
    """Put some nodes where nothing was."""
    store = await store_at(url)
    await store.restore(each(iter(records)))
    await store.close()


def tree() -> list[Record]:
    """Nodes as they are met in practice, but for the root, which every store has."""
    return list(made_tree(NODES + 1, 40))[1:]


class BulkEngineContract:
    """The suite."""

    @pytest.fixture
    def places(self, left: str, right: str) -> tuple[StorePlace, StorePlace]:
        return StorePlace(left), StorePlace(right)

    async def test_a_copy_is_the_same_and_a_second_one_copies_nothing(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await fill(places[0].url, tree())
        told: list[int] = []
        done = await engine.copy(*places, on_nodes=told.append)
        assert done.copied >= NODES, "every node was written"
        assert told, "and somebody was told how far it is"
        assert told[-1] == done.nodes
        compared = await engine.compare(*places)
        assert compared.is_same, compared.mismatches
        assert compared.nodes_left == compared.nodes_right >= NODES
        again = await engine.copy(*places)
        assert (again.nodes, again.copied) == (done.nodes, 0)

    async def test_an_interrupted_copy_goes_on_where_it_was(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await fill(places[0].url, tree())
        await fill(places[1].url, tree()[: NODES // 2])
        done = await engine.copy(*places)
        assert done.copied == NODES - NODES // 2
        assert (await engine.compare(*places)).is_same

    async def test_another_node_in_the_way_is_refused_or_overwritten(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await fill(places[0].url, tree())
        await fill(places[1].url, [tree()[0], Record(TOPIC, b"another", 0, 0, 0)])
        with pytest.raises(ConflictError, match=TOPIC):
            await engine.copy(*places)
        done = await engine.copy(*places, wishes=CopyWishes(overwrite=True))
        assert done.overwritten >= 1
        target = await store_at(places[1].url)
        node = await target.get(TOPIC)
        await target.close()
        assert node is not None
        assert node.value != b"another"

    async def test_only_the_part_that_was_asked_for_is_copied_and_compared(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await fill(places[0].url, tree())
        done = await engine.copy(*places, TOPIC)
        assert (done.nodes, done.copied) == (4, 4)
        assert (await engine.compare(*places, TOPIC)).is_same
        assert not (await engine.compare(*places)).is_same

    async def test_exactly_what_is_not_the_same_is_found(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await _find_exactly(engine, places, CompareWishes())

    async def test_digests_find_exactly_the_same(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await _find_exactly(engine, places, BY_DIGEST)

    async def test_what_the_target_cannot_keep_is_no_difference(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await fill(places[0].url, [Record("/high", b"", 1_000_000, 7, 9)])
        done = await engine.copy(*places)
        kept = keeping_of(places[1].url).keeps_version(Record("/high", b"", 1_000_000, 7, 9))
        assert done.versions_changed == (not kept)
        for wishes in (CompareWishes(), BY_DIGEST):
            found = await engine.compare(*places, wishes=wishes)
            assert found.mismatches == ()

    async def test_nothing_to_copy_is_said(
        self, engine: BulkEngine, places: tuple[StorePlace, StorePlace]
    ) -> None:
        await fill(places[0].url, tree()[:1])
        await fill(places[1].url, tree()[:1])
        with pytest.raises(NotFound, match="/nowhere"):
            await engine.copy(*places, "/nowhere")
        assert (await engine.compare(*places, "/nowhere")).is_same


async def _find_exactly(
    engine: BulkEngine, places: tuple[StorePlace, StorePlace], wishes: CompareWishes
) -> None:
    await fill(places[0].url, tree())
    await engine.copy(*places)
    target = await store_at(places[1].url)
    await target.put(TOPIC, b"changed")
    await target.delete("/namespace-00000/topic-0005/cursor-1")
    await target.put("/namespace-00000/topic-0007/stray", b"")
    await target.close()
    found = await engine.compare(*places, wishes=wishes)
    missing, extra = "/namespace-00000/topic-0005/cursor-1", "/namespace-00000/topic-0007/stray"
    # A store may count changed children of a node, which is then another one, too.
    seen = {(one.path, one.kind) for one in found.mismatches if one.fields != ("sequence",)}
    wanted = {(TOPIC, Mismatch.DIFFERS), (missing, Mismatch.MISSING), (extra, Mismatch.EXTRA)}
    assert seen == wanted
    assert found.counts[Mismatch.MISSING] == found.counts[Mismatch.EXTRA] == 1
    assert found.buckets_read_again <= 3
