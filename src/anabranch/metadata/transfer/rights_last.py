"""Access rights in a copy: they come last, after the last span.

The rights of a node may shut out whoever copies it, and children of it may come in a later span, or
in a later run after a crash. So where a target holds rights, nodes stay open to the copy until all
are there, and then a second pass over the source closes them. A copy that goes on after a crash
does all of that pass, whatever the run before it had done. One that fails and cannot go
on closes what it made; one that can go on says that it is open. One that was killed says nothing,
but left word in the target (`open_copies`): the same copy made again closes what it finds open.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from anabranch import limits
from anabranch.errors import ConflictError
from anabranch.metadata.access_rights import tell_open
from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.digest import Summing
from anabranch.metadata.transfer.open_copies import Announcement, NotePlace
from anabranch.metadata.transfer.sources import RecordSource

Rights = tuple[AccessRight, ...]


@runtime_checkable
class HoldsRights(Protocol):
    """A store with access rights that can shut out whoever restores."""

    @property
    def open_notes(self) -> NotePlace:
        """Where copies leave word that nodes are open."""
        ...

    async def why_no_rights(self, path: str, rights: Rights, *, may_be_there: bool) -> str | None:
        """Why a node could not be given these rights; None if nothing speaks against it.

        Nothing is written. With `may_be_there` the node may be somebody else's already.
        """
        ...

    async def restore_open(self, records: AsyncIterator[Record]) -> int:
        """As `MetadataStore.restore`; nodes with rights stay open to this session besides."""
        ...

    async def set_rights(self, rights: Sequence[tuple[str, Rights]], *, again: bool) -> None:
        """Give nodes exactly these rights; `again` if it may have been done before.

        Raises:
            InputError: if a node does not let us.
        """
        ...

    async def close_made(self, rights: Sequence[tuple[str, Rights]]) -> None:
        """Give these rights to those nodes that `restore_open` left open, and to no others.

        Raises:
            InputError: if a node does not let us.
        """
        ...


@runtime_checkable
class RestoresAlone(Protocol):
    """A store that is faster where it need not look for what is in the way."""

    async def restore_alone(self, records: AsyncIterator[Record]) -> int:
        """As `restore`, and as `restore_open` where there is one; nodes come span by span.

        Nothing was there when the first span was begun, and nobody else writes. If somebody does,
        nodes behind the one that was in the way may be there, too.
        """
        ...


class RightsLast:
    """The rights of one copy: noted while nodes are copied, set by `set_all`."""

    def __init__(
        self, source: RecordSource, target: HoldsRights, announcement: Announcement
    ) -> None:
        self._source = source
        self._target = target
        self._announcement = announcement
        self._noted = Summing()
        self.all_set = False
        """Whether all nodes have their own rights by now."""

    async def begin(self, *, goes_on: bool) -> None:
        """See to what an earlier run left open; one that goes on does that at its own end.

        Raises:
            InputError: if somebody else made that run.
        """
        if await self._announcement.take_over() and not goes_on:
            await self._close_made()

    async def note(self, record: Record) -> None:
        """A node with rights was read, and is about to be written."""
        await self._announcement.make()
        self._noted.add(_outline(record))

    async def set_all(self, *, again: bool) -> None:
        """Give every node the rights that it has in the source.

        Raises:
            ConflictError: if they are not the ones that were noted.
        """
        if not self._noted.nodes:
            return
        found = Summing()
        async for page in self._pages(found):
            await self._target.set_rights(page, again=again)
        self.all_set = True
        if found.digest != self._noted.digest:
            raise ConflictError(
                f"access rights in {self._source.identity} have changed while it was copied, and "
                "nodes that it has no more may be open still in the target: delete what was "
                "copied, keep others from writing to the source and begin anew"
            )
        await self._announcement.withdraw()

    async def after_failure(self, error: BaseException, checkpoint: str) -> None:
        """Close what was made, or let the error say that it is open.

        A copy that can go on stays open, since its own rights may shut it out for good.
        """
        if not self._noted.nodes or self.all_set:
            return
        if checkpoint:
            remedy = (
                f"the same copy with the same checkpoint, {checkpoint}, goes on and closes them"
            )
            tell_open(error, self._source.prefix, remedy)
            return
        try:
            await self._close_made()
        except (Exception, asyncio.CancelledError) as reason:
            why = str(reason) or type(reason).__name__
            remedy = (
                f"they could not be closed ({why}): the same copy made again closes them, or "
                "delete them, or set their rights"
            )
            tell_open(error, self._source.prefix, remedy)
            if isinstance(reason, asyncio.CancelledError):
                tell_open(reason, self._source.prefix, remedy)
                raise

    async def _close_made(self) -> None:
        async for page in self._pages(Summing()):
            await self._target.close_made(page)
        await self._announcement.withdraw()

    async def _pages(self, found: Summing) -> AsyncIterator[list[tuple[str, Rights]]]:
        page: list[tuple[str, Rights]] = []
        async for record in self._source.outlines():
            if record.access and record.session is None:
                found.add(_outline(record))
                page.append((record.path, record.access))
                if len(page) >= limits.METADATA_PAGE_NODES_MAX:
                    yield page
                    page = []
        yield page


def _outline(record: Record) -> Record:
    return Record(record.path, b"", 0, 0, 0, access=record.access)
