"""An export of Oxia holds a bounded number of index keys and counts, whatever the tree is."""

import random
from collections.abc import AsyncIterator

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia import exported_details
from anabranch.metadata.oxia.exported_details import FirstEntries
from anabranch.metadata.oxia.keys import server_order
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.store import IndexKey, MetadataStore, Record
from anabranch.testing.made_trees import each
from anabranch.testing.model_stores import model_runtime, modelled_oxia

PARENTS = [f"/p{number:02}" for number in range(30)]
TREE = [
    record
    for path in PARENTS
    for record in (
        Record(path, b"v", 0, 0, 0, 3, None, (IndexKey("i", f"k{path[::-1]}"), IndexKey("j", "k"))),
        Record(f"{path}/c", b"w", 0, 0, 0, 0, None, (IndexKey("i", path),)),
    )
]


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    async with modelled_oxia() as url:
        store = await open_store(url, model_runtime())
        await store.restore(each(TREE))
        yield store
        await store.close()


async def exported(store: MetadataStore, prefix: str = "/") -> dict[str, Record]:
    return {
        record.path: record._replace(created_ms=0, modified_ms=0)
        async for record in store.export(prefix)
        if record.path != "/"
    }


WHOLE = {record.path: record for record in TREE}


@pytest.mark.goal("core.M8", part="oxia", broken_by="export_lists_index_keys_once")
@pytest.mark.parametrize("held", [1, 7, 1000])
async def test_keys_that_do_not_fit_are_listed_again(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(exported_details, "EXPORTED_INDEX_KEYS_MAX", held)
    lists: list[int] = []
    key_stream = ShardLink.key_stream

    def noted(self: ShardLink, *range_: object, **how: bool) -> AsyncIterator[str]:
        lists.append(self.number)
        return key_stream(self, *range_, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(ShardLink, "key_stream", noted)
    assert await exported(store) == WHOLE
    assert (len(lists) > 1) == (held < 1000)


@pytest.mark.goal("core.M8", part="oxia", broken_by="export_forgets_counts")
@pytest.mark.parametrize("held", [0, 7])
async def test_counts_that_do_not_fit_are_looked_up(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(exported_details, "EXPORTED_COUNTS_MAX", held)
    assert await exported(store) == WHOLE
    assert list(await exported(store, "/p03")) == ["/p03", "/p03/c"]


def test_what_is_held_is_bounded_and_comes_first() -> None:
    choices = random.Random(7)
    paths = [f"/{choices.randrange(40)}/{choices.randrange(9)}" for _ in range(3000)]
    entries = sorted({(path, str(place % 11)) for place, path in enumerate(paths)})
    choices.shuffle(entries)
    told: list[tuple[str, str]] = []
    after = None
    while True:
        first = FirstEntries(after, 50)
        for path, key in entries:
            first.add(path, IndexKey("i", key))
            assert len(first.entries) <= 100 + 11
        first.cut()
        told += [(path, key) for _, _, key, path in first.entries]
        if first.until is None:
            break
        after = first.until
    assert told == sorted(entries, key=lambda entry: (server_order(entry[0]), entry[1]))
