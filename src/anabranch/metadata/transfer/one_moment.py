"""Whether a source was, at one moment, what was read of it.

Some stores give each node as of when its turn came, and every store may be written to while it is
read. So the source is asked for its moment before anybody looks at it and again when all was read.
The same one: nobody wrote anything, and what was read is the tree of that moment. Another one: it
is read a second time. What is the same in both readings did not change from its turn in the first
to its turn in the second, so all of it was there between the two; otherwise the source changed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

from anabranch.errors import ConflictError
from anabranch.metadata.store import Record, Revision
from anabranch.metadata.transfer.digest import Digest, Summing
from anabranch.metadata.transfer.sources import RecordSource


class OneMoment:
    """The proof for one copy. Call `begin`, read by `records`, then `check`."""

    def __init__(self, source: RecordSource, *, drops_access: bool = False) -> None:
        self._source = source
        self._drops_access = drops_access
        self._began: Revision | None = None
        self._times_ms = 0

    async def begin(self) -> None:
        """Note the moment before the first look at the source."""
        self._began = await self._source.moment()

    async def records(self) -> AsyncIterator[Record]:
        """The nodes of the source."""
        async for record in self._source.records():
            if record.session is None:
                self._times_ms += record.created_ms + record.modified_ms
            yield record

    async def check(
        self, read: Digest, first_changed: Callable[[], Awaitable[str | None]] | None = None
    ) -> None:
        """After all was read: prove that it is of one moment.

        Args:
            read: of what was read, without access rights if they are dropped.
            first_changed: finds the first path that is not what was read.

        Raises:
            ConflictError: if the source has changed; names a path.
        """
        if await self._source.moment() == self._began:
            return
        self._source.read_access(not self._drops_access)
        if await self._read_again() == (read, self._times_ms):
            return
        path = await first_changed() if first_changed is not None else None
        path = path or await self._source.changed_since(self._began)
        where = f"{path} is not what was read" if path else "nobody can say where"
        raise ConflictError(
            f"{self._source.identity} has changed while it was read, {where}: "
            "keep others from writing to it and begin anew"
        )

    async def _read_again(self) -> tuple[Digest, int]:
        again, times_ms = Summing(), 0
        async for record in self._source.records():
            if record.session is None:
                # They tell a node from one with the same content that took its place.
                times_ms += record.created_ms + record.modified_ms
                again.add(record._replace(access=()) if self._drops_access else record)
        return again.digest, times_ms
