"""Reading many nodes: in path order page by page, by index, and all of them for a copy."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any, TypeVar

from anabranch import limits
from anabranch.errors import ProtocolError, Unreachable
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.occupancy import Occupancy
from anabranch.metadata.oxia.sessions import session_of
from anabranch.metadata.paths import ROOT, is_within, order_key
from anabranch.metadata.store import IndexKey, Record
from anabranch.runtime.channels import CallFailed

T = TypeVar("T")
Placed = tuple[int, pb.GetResponse]
"""A record and the place of its shard."""


class Scanner:
    """Walks over the records of all shards."""

    def __init__(self, client: OxiaClient, occupancy: Occupancy) -> None:
        self._client = client
        self._occupancy = occupancy

    # --- in path order ------------------------------------------------------------------------

    async def below(self, path: str) -> AsyncIterator[Placed]:
        """Every record below a path, each before what is below it."""
        levels = [self._children(path)]
        while levels:
            item = await anext(levels[-1], None)
            if item is None:
                levels.pop()
                continue
            placed, occupied = item
            yield placed
            if occupied:
                levels.append(self._children(placed[1].key))

    async def _children(self, path: str) -> AsyncIterator[tuple[Placed, bool]]:
        first, end = keys.children_range(path)
        whole = False
        while not whole:
            page, whole = await self._client.page((first, end))
            page = [item for item in page if item[1].key != ROOT]
            occupied = await self._occupancy.among([record.key for _, record in page])
            for item in page:
                yield item, item[1].key in occupied
            if page:
                first = f"{page[-1][1].key}\x00"

    # --- by index -----------------------------------------------------------------------------

    async def by_index(self, index: str, first: str, last: str | None) -> AsyncIterator[Placed]:
        """Records by a secondary index: by key, and for one key by path."""
        entries = keys.index_range(index, first, last)
        streams = [link.key_stream(entries, internal=True) for link in self._client.links]
        # Of one key by path: all paths of one key are held; of many keys, a page of them.
        group: list[tuple[str, str]] = []
        async with aclosing(_merged(streams, _entry_order)) as listed:  # type: ignore[type-var]
            async for _, entry in listed:
                key, path = _entry_order(entry)
                if len(group) >= limits.METADATA_PAGE_NODES_MAX and group[-1][0] != key:
                    for placed in await self._at(group):
                        yield placed
                    group = []
                group.append((key, path))
        for placed in await self._at(group):
            yield placed

    async def _at(self, group: list[tuple[str, str]]) -> list[Placed]:
        """The records of index entries that are still there."""
        group.sort(key=lambda entry: (entry[0], order_key(entry[1])))
        answers = await asyncio.gather(*(self._client.get(path) for _, path in group))
        found: list[Placed] = []
        for (_, path), answer in zip(group, answers, strict=True):
            if answer.status == pb.OK:
                answer.key = path
                found.append((self._client.place_of(path), answer))
        return found

    # --- for a copy ---------------------------------------------------------------------------

    async def export(self, prefix: str) -> AsyncIterator[Record]:
        """Every node at or below a path, level by level, each shard's as of one moment."""
        indexes = await self._indexes()
        # First by itself: many want no more than that, and the scan is of everything there is.
        top = None if prefix == ROOT else await self._single(prefix, indexes.get(prefix, ()))
        if top is not None:
            yield top
        numbers: dict[str, int] = {}
        root_told = prefix != ROOT
        told = None if top is None else prefix
        streams = [link.records(("", "")) for link in self._client.links]
        async with aclosing(_merged(streams, _record_order)) as records:  # type: ignore[type-var]
            async for _, record in records:
                key = record.key
                if not keys.is_path(key):
                    parent = keys.parent_of_sequence_key(key)
                    if parent is not None:
                        numbers[parent] = record.version.modifications_count + 1
                    continue
                if not root_told and key != ROOT:
                    yield Record(ROOT, b"", 0, 0, 0, numbers.pop(ROOT, 0))
                root_told = True
                if is_within(prefix, key) and key != told:
                    yield _record(key, record, numbers.pop(key, 0), indexes.get(key, ()))
        if not root_told:
            yield Record(ROOT, b"", 0, 0, 0, numbers.pop(ROOT, 0))

    async def _single(self, path: str, indexes: tuple[IndexKey, ...]) -> Record | None:
        """One node, by looking it and its count up."""
        answer, count = await asyncio.gather(
            self._client.get(path), self._client.get(keys.sequence_key(path), value=False)
        )
        if answer.status != pb.OK:
            return None
        number = count.version.modifications_count + 1 if count.status == pb.OK else 0
        return _record(path, answer, number, indexes)

    async def _indexes(self) -> dict[str, tuple[IndexKey, ...]]:
        listed = await asyncio.gather(
            *(link.keys_in(keys.INDEX_ENTRIES, internal=True) for link in self._client.links)
        )
        entries = [
            entry for part in listed for key in part if (entry := keys.index_entry(key)) is not None
        ]
        entries.sort(key=lambda entry: (entry[0], entry[1].index, entry[1].key))
        return {
            path: tuple(key for _, key in group)
            for path, group in groupby(entries, key=lambda entry: entry[0])
        }


def _entry_order(entry: str) -> tuple[str, str]:
    found = keys.index_entry(entry)
    if found is None:
        raise ProtocolError(f"no entry of an index: {entry[:200]!r}")
    return found[1].key, found[0]


def _record_order(record: pb.GetResponse) -> tuple[int, bytes]:
    return keys.server_order(record.key)


async def _merged(
    streams: Sequence[AsyncIterator[T]], order: Callable[[T], Any]
) -> AsyncIterator[tuple[int, T]]:
    """What several ordered streams bring, in one order, each with the place of its stream."""
    try:
        if len(streams) == 1:
            async for item in streams[0]:
                yield 0, item
            return
        heads = list(await asyncio.gather(*(anext(stream, None) for stream in streams)))
        waiting = [(order(head), place) for place, head in enumerate(heads) if head is not None]
        heapq.heapify(waiting)
        while waiting:
            place = waiting[0][1]
            head = heads[place]
            assert head is not None
            yield place, head
            head = heads[place] = await anext(streams[place], None)
            if head is None:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (order(head), place))
    except CallFailed as error:
        raise Unreachable(f"Oxia broke off: {error}") from None
    finally:
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]


def _record(key: str, record: pb.GetResponse, number: int, indexes: tuple[IndexKey, ...]) -> Record:
    version, value = record.version, record.value
    native = version.modifications_count
    if native and not value:
        # Pulsar draws numbers from the changes of an empty parent.
        number = max(number, native + 1)
    session = session_of(version) or None
    created_ms, modified_ms = version.created_timestamp, version.modified_timestamp
    return Record(key, value, native, created_ms, modified_ms, number, session, indexes)
