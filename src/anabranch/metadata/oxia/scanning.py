"""Reading many nodes: in path order page by page, by index, and all of them for a copy."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from anabranch import limits
from anabranch.errors import ProtocolError, Unreachable
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.exported_details import ExportedCounts, ExportedIndexes
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
        indexes, counts = ExportedIndexes(self._client), ExportedCounts(self._client)
        await indexes.begin()
        page: list[tuple[pb.GetResponse, tuple[IndexKey, ...]]] = []
        root_told = prefix != ROOT
        streams = [link.records(("", "")) for link in self._client.links]
        async with aclosing(_merged(streams, _record_order)) as records:  # type: ignore[type-var]
            async for _, record in records:
                key = record.key
                if not keys.is_path(key):
                    parent = keys.parent_of_sequence_key(key)
                    if parent is not None and is_within(prefix, parent):
                        counts.add(parent, record.version.modifications_count)
                    continue
                if not root_told and key != ROOT:
                    yield Record(ROOT, b"", 0, 0, 0, counts.take(ROOT))
                root_told = True
                if not is_within(prefix, key):
                    continue
                if not indexes.all_known:
                    await indexes.reach(key)
                known = counts.knows(key)
                if page and (known or len(page) >= limits.METADATA_PAGE_NODES_MAX):
                    for told in await _counted(page, counts):
                        yield told
                    page = []
                if known:
                    yield _record(key, record, counts.take(key), indexes.take(key))
                else:
                    page.append((record, indexes.take(key)))
        for told in await _counted(page, counts):
            yield told
        if not root_told:
            yield Record(ROOT, b"", 0, 0, 0, counts.take(ROOT))

    async def record(self, path: str) -> Record | None:
        """One node, by looking it and its count up: an export reads everything there is."""
        indexes, count, answer = await asyncio.gather(
            self._indexes_of(path),
            self._client.get(keys.sequence_key(path), value=False),
            self._client.get(path),
        )
        number = count.version.modifications_count + 1 if count.status == pb.OK else 0
        if answer.status == pb.OK:
            return _record(path, answer, number, indexes)
        return Record(ROOT, b"", 0, 0, 0, number) if path == ROOT else None

    async def _indexes_of(self, path: str) -> tuple[IndexKey, ...]:
        """The index keys of one node.

        Entries are in the order of indexes and keys, not of nodes, so all of its shard are passed,
        and those of others are not kept.
        """
        link = self._client.links[self._client.place_of(path)]

        async def attempt() -> list[IndexKey]:
            stream = link.key_stream(keys.INDEX_ENTRIES, internal=True)
            async with aclosing(stream) as listed:  # type: ignore[type-var]
                return [
                    entry[1]
                    async for key in listed
                    if (entry := keys.index_entry(key)) is not None and entry[0] == path
                ]

        found: list[IndexKey] = await link.again("listing", attempt)
        return tuple(sorted(found, key=lambda key: (key.index, key.key)))


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
        heads = await _heads(streams)
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


async def _heads(streams: Sequence[AsyncIterator[T]]) -> list[T | None]:
    """The first item of each stream; a failure of one waits for the others, which are to be ended.

    Raises:
        CallFailed: if one of them broke off.
    """
    first = (anext(stream, None) for stream in streams)
    heads: list[T | None] = []
    for head in await asyncio.gather(*first, return_exceptions=True):
        if isinstance(head, BaseException):
            raise head
        heads.append(head)
    return heads


def _record(key: str, record: pb.GetResponse, number: int, indexes: tuple[IndexKey, ...]) -> Record:
    version, value = record.version, record.value
    native = version.modifications_count
    if native and not value:
        # Pulsar draws numbers from the changes of an empty parent.
        number = max(number, native + 1)
    session = session_of(version) or None
    created_ms, modified_ms = version.created_timestamp, version.modified_timestamp
    return Record(key, value, native, created_ms, modified_ms, number, session, indexes)


async def _counted(
    page: Sequence[tuple[pb.GetResponse, tuple[IndexKey, ...]]], counts: ExportedCounts
) -> list[Record]:
    """Records whose counts are looked up together."""
    numbers = await counts.look_up([record.key for record, _ in page])
    return [
        _record(record.key, record, number, own)
        for (record, own), number in zip(page, numbers, strict=True)
    ]
