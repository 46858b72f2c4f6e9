"""The catalog of storage clusters: one document, and one sequence of ledger ids over all."""

from collections.abc import AsyncIterator

import pytest

from anabranch.errors import ConfigError, ConflictError, FormatError, NotFound
from anabranch.ledgers.catalog import (
    PATH,
    CatalogDocument,
    StorageCatalog,
    StorageCluster,
    decode_catalog,
    encode_catalog,
)
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime

OTHER = StorageCluster("bookkeeper:zk://there", first_ledger_id=5000)


@pytest.fixture
async def metadata() -> AsyncIterator[MetadataStore]:
    store = await open_store("memory:", real_runtime())
    yield store
    await store.close()


async def opened(metadata: MetadataStore, url: str = "embedded:/data/ledgers") -> StorageCatalog:
    return await StorageCatalog.open(metadata, LedgerIds(metadata, real_runtime()), url)


async def test_the_first_start_writes_it_and_later_ones_keep_it(metadata: MetadataStore) -> None:
    catalog = await opened(metadata)
    assert catalog.document == CatalogDocument(
        1, "main", "main", {"main": StorageCluster("embedded:")}
    )
    stored = await metadata.get(PATH)
    again = await opened(metadata, "embedded:/moved/ledgers")
    assert again.document == catalog.document
    assert await metadata.get(PATH) == stored


async def test_a_start_with_another_store_is_refused_and_changes_nothing(
    metadata: MetadataStore,
) -> None:
    await opened(metadata)
    stored = await metadata.get(PATH)
    with pytest.raises(ConfigError, match=r"'embedded:' .* and not in 'memory:'"):
        await opened(metadata, "memory:")
    assert await metadata.get(PATH) == stored


@pytest.mark.goal("core.L13", part="several clusters", broken_by="added_cluster_raises_no_floor")
async def test_ids_rise_over_all_clusters(metadata: MetadataStore) -> None:
    catalog = await opened(metadata)
    before = await catalog.ids.next()
    await catalog.add("other", OTHER)
    assert await catalog.ids.next() >= OTHER.first_ledger_id > before
    assert catalog.document.active == "main", "adding changes no route"
    await catalog.activate("other", above=9000)
    assert (catalog.document.active, catalog.document.epoch) == ("other", 2)
    assert catalog.document.origin == "main", "the origin never changes"
    after = await catalog.ids.next()
    assert after >= 9000, "ledgers that were created there since are below"
    await catalog.activate("main")
    assert await catalog.ids.next() > after, "nor do ids fall on the way back"
    assert catalog.document.epoch == 3


async def test_two_processes_change_it_without_losing_anything(metadata: MetadataStore) -> None:
    first, second = await opened(metadata), await opened(metadata)
    await first.add("other", OTHER)
    await second.add("third", StorageCluster("bookkeeper:zk://third"))
    await second.activate("third")
    await first.add("other", OTHER)
    assert sorted(first.document.clusters) == ["main", "other", "third"]
    assert (first.document.active, first.document.epoch) == ("third", 2)
    with pytest.raises(ConflictError, match="there is a storage cluster other"):
        await second.add("other", StorageCluster("bookkeeper:zk://elsewhere"))
    with pytest.raises(NotFound, match="no storage cluster nobody"):
        await second.activate("nobody")


@pytest.mark.goal("core.L13", part="store migration", broken_by="ids_start_anew")
async def test_ids_go_on_after_the_metadata_moved_to_another_store(metadata: MetadataStore) -> None:
    catalog = await opened(metadata)
    drawn = [await catalog.ids.next() for _ in range(250)]
    target = await open_store("memory:", real_runtime())
    await target.restore(metadata.export())
    moved = await opened(target)
    assert moved.document == catalog.document
    assert await moved.ids.next() > max(drawn)
    await target.close()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"{", b"[", "is not JSON"),
        (b"anabranch.storage-catalog", b"other", "is not a document of format"),
        (b'"version": 1', b'"version": 2', "has version 2; this build knows 1"),
        (b'"epoch": 1', b'"epoch": 0', "malformed"),
        (b'"epoch": 1', b'"epoch": "1"', "malformed"),
        (b'"origin": "main"', b'"origin": "lost"', "names 'lost' as origin"),
        (b'"active": "main"', b'"active": "lost"', "names 'lost' as active"),
        (b'"first_ledger_id": 0', b'"first_ledger_id": -1', "malformed"),
        (b'"url"', b'"uri"', "malformed"),
    ],
)
async def test_an_unknown_document_is_refused_and_kept(
    metadata: MetadataStore, before: bytes, after: bytes, said: str
) -> None:
    catalog = await opened(metadata)
    wrong = encode_catalog(catalog.document).replace(before, after, 1)
    with pytest.raises(FormatError, match=said):
        decode_catalog(wrong)
    await metadata.put(PATH, wrong)
    with pytest.raises(FormatError, match=said):
        await opened(metadata)
    node = await metadata.get(PATH)
    assert node is not None
    assert node.value == wrong
