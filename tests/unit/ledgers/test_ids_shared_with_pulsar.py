"""Where bookies share the metadata store, ledger ids come from the generator that Pulsar uses."""

from collections.abc import AsyncIterator

import pytest

from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.catalog import StorageCatalog, StorageCluster
from anabranch.ledgers.ledger_ids import LedgerIds, SharedAuthority
from anabranch.metadata.counters import Numbering
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime

RUNTIME = real_runtime()


@pytest.fixture
async def metadata() -> AsyncIterator[MetadataStore]:
    store = await open_store("memory:", RUNTIME)
    yield store
    await store.close()


def pulsar(metadata: MetadataStore) -> SharedLedgerIds:
    """A Pulsar broker: it draws from its generator, and knows nothing of us."""
    return SharedLedgerIds(metadata, RUNTIME, numbering=Numbering.BY_CHILDREN)


async def opened(metadata: MetadataStore, url: str) -> StorageCatalog:
    ids = SharedAuthority(LedgerIds(metadata, RUNTIME), pulsar(metadata))
    return await StorageCatalog.open(metadata, ids, url)


@pytest.mark.goal("core.L13", part="shared with Pulsar", broken_by="ids_are_not_shared_with_pulsar")
async def test_pulsar_and_we_never_get_the_same_id(metadata: MetadataStore) -> None:
    theirs = pulsar(metadata)
    drawn = [await theirs.next() for _ in range(5)]
    catalogs = [await opened(metadata, "bookkeeper:?ensemble=1") for _ in range(2)]
    for _ in range(20):
        drawn += [await ids.next() for ids in (catalogs[0].ids, catalogs[1].ids, theirs)]
    assert len(set(drawn)) == len(drawn)
    assert drawn == sorted(drawn), "one after the other, whoever asks"
    assert await catalogs[0].ids.issued_below() > max(drawn)


@pytest.mark.goal("core.L13", part="shared with Pulsar", broken_by="ids_are_not_shared_with_pulsar")
async def test_bookies_that_are_added_go_on_above_all_ids(metadata: MetadataStore) -> None:
    catalog, late = await opened(metadata, "embedded:"), await opened(metadata, "embedded:")
    theirs = pulsar(metadata)
    ours = [await catalog.ids.next() for _ in range(120)] + [await late.ids.next()]
    drawn = [await theirs.next() for _ in range(3)]
    await catalog.add("bookies", StorageCluster("bookkeeper:?ensemble=1", 700))
    floor = max([*ours, *drawn, 699])
    assert await catalog.ids.next() > floor
    assert await theirs.next() > floor, "Pulsar too goes on above"
    await late.refresh()
    after = await late.ids.next()
    assert after > floor
    await catalog.activate("bookies", above=after + 50)
    assert await late.ids.next() >= after + 50
    assert await theirs.next() > after + 50


async def test_bookies_with_other_metadata_leave_the_document_in_charge(
    metadata: MetadataStore,
) -> None:
    catalog = await opened(metadata, "bookkeeper:zk:elsewhere:2181")
    assert await catalog.ids.next() == 1
    assert await pulsar(metadata).issued_below() == 0
