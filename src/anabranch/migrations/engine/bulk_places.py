"""Trees in stores as bulk work reads them: opened by their places, in path order."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.errors import NotFound
from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.metadata.transfer.ordering import Sorting
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.runtime import Runtime


@asynccontextmanager
async def opened(
    place: StorePlace,
    runtime: Runtime,
    credentials: Credentials = NO_CREDENTIALS,
    *,
    only_look: bool = True,
) -> AsyncIterator[MetadataStore]:
    """The store of a place; closed afterwards unless somebody else had it open."""
    if place.store is not None:
        yield place.store
        return
    store = await open_store(place.url, runtime, credentials=credentials, may_make=not only_look)
    try:
        yield store
    finally:
        await store.close()


def tree_of(store: MetadataStore, place: StorePlace, prefix: str, runtime: Runtime) -> StoreSource:
    """A part of an open store that can be read again and again."""
    sorting = Sorting(runtime, tempfile.gettempdir())
    return StoreSource(store, place.url, prefix, keeping_of(place.url), sorting)


async def or_nothing(records: AsyncIterator[Record]) -> AsyncIterator[Record]:
    """The records of a tree that may be empty."""
    try:
        async for record in records:
            yield record
    except NotFound:
        return
