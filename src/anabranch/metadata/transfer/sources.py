"""Where the nodes of a copy come from: a store, or an export file."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Protocol, runtime_checkable

from anabranch.errors import NotFound
from anabranch.metadata.paths import check_path, is_within
from anabranch.metadata.store import EventKind, MetadataStore, Record, Revision
from anabranch.metadata.transfer.export_file import ExportFile
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.ordering import SortedPieces, Sorting

_CREDENTIALS = re.compile(r"^(\w+:(?://)?)[^/@]*@")
_PARAMETER = re.compile(r"(?<=[?&])([^=&]*(?:token|password|secret)[^=&]*=)[^&]*", re.IGNORECASE)


def shown(url: str) -> str:
    """A URL without what only its owner may know."""
    return _PARAMETER.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", url))


class RecordSource(Protocol):
    """A tree that can be read again and again, in path order."""

    @property
    def identity(self) -> str:
        """What it is, without secrets."""
        ...

    @property
    def prefix(self) -> str:
        """Nodes at or below this path are meant."""
        ...

    @property
    def may_have_acls(self) -> bool:
        """Whether nodes may come with access rights."""
        ...

    @property
    def may_be_damaged(self) -> bool:
        """Whether all of it should be read before anything is done with it."""
        ...

    @property
    def is_of_one_moment(self) -> bool:
        """Whether whatever `records` gives was there at one moment, whoever writes to it."""
        ...

    def records(self) -> AsyncIterator[Record]:
        """The nodes."""
        ...

    def outlines(self) -> AsyncIterator[Record]:
        """The nodes, but values and indexes may be missing: which are there, and who may what."""
        ...

    def read_access(self, wanted: bool) -> None:
        """Whether access rights are to be read from now on; in the beginning they are."""
        ...

    def read_twice(self) -> None:
        """The next two readings by `records` may be one: nothing may be written in between."""
        ...

    async def forget(self) -> None:
        """There is no second reading, or it is done: let go of what was kept for it."""
        ...

    async def moment(self) -> Revision | None:
        """Comes again only if nobody wrote to the source in between; None if nobody can."""
        ...

    async def changed_since(self, moment: Revision | None) -> str | None:
        """A path that was written to; None if none was or nobody knows any more."""
        ...


@runtime_checkable
class ReadsSideBySide(Protocol):
    """A store that reads access rights of whole trees faster with more connections."""

    async def open_readers(self) -> None:
        """Have them; that may count as a write."""
        ...

    async def close_readers(self) -> None:
        """Have them no more."""
        ...


class StoreSource:
    """Nodes of a store."""

    may_be_damaged = False

    def __init__(
        self,
        store: MetadataStore,
        url: str,
        prefix: str,
        keeping: Keeping,
        sorting: Sorting | None = None,
    ) -> None:
        assert keeping.path_order or sorting is not None, "such a store needs sorting"
        self._keeping = keeping
        self._sorting = sorting
        self.identity = shown(url)
        self.prefix = check_path(prefix)
        skipped = keeping.ensemble is not None and not keeping.ensemble.exports_access
        self.may_have_acls = keeping.access and not skipped
        self.is_of_one_moment = keeping.one_moment
        self._store = store
        self._reads_access = True
        self._sorted: SortedPieces | None = None
        self._keeps_sorted = False
        self._readers: ReadsSideBySide | None = None

    def read_twice(self) -> None:
        """See `RecordSource.read_twice`; of use where sorting costs more than reading."""
        if self._sorting is not None and not self._keeping.path_order:
            self._keeps_sorted = True

    async def forget(self) -> None:
        """See `RecordSource.forget`."""
        self._keeps_sorted = False
        if self._readers is not None:
            await self._readers.close_readers()
            self._readers = None
        if self._sorted is not None:
            pieces, self._sorted = self._sorted, None
            await pieces.remove()

    async def _kept_sorted(self) -> AsyncIterator[Record]:
        """The first of two readings takes everything, and the second one finds it there."""
        assert self._sorting is not None
        if self._sorted is None:
            self._sorted = SortedPieces(self._sorting)
            await self._sorted.take(self._store.export(self.prefix, access=self._reads_access))
        else:
            self._keeps_sorted = False
        async with aclosing(self._sorted.records()) as records:
            async for record in records:
                yield record

    def records(self) -> AsyncIterator[Record]:
        """See `RecordSource.records`."""
        if self._keeps_sorted:
            return _some(self._kept_sorted(), self.prefix, self.identity)
        return self._ordered(self._store.export(self.prefix, access=self._reads_access))

    def outlines(self) -> AsyncIterator[Record]:
        """See `RecordSource.outlines`."""
        access = self._reads_access
        return self._ordered(self._store.export(self.prefix, access=access, values=False))

    def _ordered(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        if self._sorting is not None:
            records = self._sorting.in_path_order(records, self._keeping)
        return _some(records, self.prefix, self.identity)

    def read_access(self, wanted: bool) -> None:
        """See `RecordSource.read_access`."""
        self._reads_access = wanted

    async def moment(self) -> Revision:
        """See `RecordSource.moment`."""
        if (
            self._readers is None
            and self.may_have_acls
            and isinstance(self._store, ReadsSideBySide)
        ):
            # Before the first moment is noted, or they would be what changed.
            self._readers = self._store
            await self._readers.open_readers()
        return await self._store.moment()

    async def changed_since(self, moment: Revision | None) -> str | None:
        """See `RecordSource.changed_since`."""
        assert moment is not None
        async for event in self._store.changed_since(moment, self.prefix):
            return None if event.kind is EventKind.GAP else event.path
        return None


class FileSource:
    """Nodes of an export file, or of a part of it."""

    may_have_acls = True
    may_be_damaged = True
    is_of_one_moment = True

    def __init__(self, file: ExportFile, prefix: str | None = None) -> None:
        self.identity = f"file:{file.path}"
        self.prefix = check_path(file.header.prefix if prefix is None else prefix)
        self._file = file

    def records(self) -> AsyncIterator[Record]:
        """See `RecordSource.records`."""
        return _some(self._within(), self.prefix, self.identity)

    def outlines(self) -> AsyncIterator[Record]:
        """See `RecordSource.outlines`: a file is read whole."""
        return self.records()

    def read_access(self, wanted: bool) -> None:
        """See `RecordSource.read_access`: a file has them beside the rest."""

    def read_twice(self) -> None:
        """See `RecordSource.read_twice`: it is read as often as wanted."""

    async def forget(self) -> None:
        """See `RecordSource.forget`."""

    async def moment(self) -> None:
        """See `RecordSource.moment`: every reading is checked against the file's end."""
        return

    async def changed_since(self, moment: Revision | None) -> None:
        """See `RecordSource.changed_since`."""
        return

    async def _within(self) -> AsyncIterator[Record]:
        async for record in self._file.records():
            if is_within(self.prefix, record.path):
                yield record


async def _some(
    records: AsyncIterator[Record], prefix: str, identity: str
) -> AsyncIterator[Record]:
    empty = True
    async for record in records:
        empty = False
        yield record
    if empty:
        raise NotFound(f"{identity} has nothing at or below {prefix}")
