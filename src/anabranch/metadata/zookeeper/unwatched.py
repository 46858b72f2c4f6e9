"""Writing a large tree without being told of each of its nodes.

A server tells a watch of every change, and that costs both sides more than the change itself. So
once a restore has written many nodes, and if nobody on this handle ever read along, the watch is
given up until all is written, or until somebody reads along after all; whoever asks meanwhile or
then what happened finds a gap.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import Record
from anabranch.metadata.watching import EventHistory
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.limits import WATCHED_RESTORE_NODES_MAX
from anabranch.metadata.zookeeper.naming import revision_of


class Unwatched:
    """Those who restore large trees, on one handle."""

    def __init__(self, client: ZooKeeperClient, history: EventHistory) -> None:
        self._client = client
        self._history = history
        self._restores = 0
        self._again: asyncio.Future[None] | None = None

    async def counted(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        """The same records; there is no watch while many more are taken."""
        count = 0
        async for record in records:
            if count == WATCHED_RESTORE_NODES_MAX:
                break
            yield record
            count += 1
        else:
            return
        async with self._restoring():
            yield record
            async for record in records:
                yield record

    @asynccontextmanager
    async def _restoring(self) -> AsyncIterator[None]:
        if self._history.watched:
            yield
            return
        self._restores += 1
        try:
            if self._restores == 1:
                self._history.close_eyes(self._watch_again)
                await self._client.unwatch(ROOT)
            yield
        finally:
            self._restores -= 1
            if not self._restores:
                self._watch_again()
                if self._again is not None:
                    await asyncio.wait([self._again])

    def _watch_again(self) -> None:
        """At once and in one go: who is interrupted or disconnected must not stay deaf."""
        if self._history.blind and self._again is None:
            self._history.open_eyes()
            self._again = self._client.watch_soon(ROOT, self._told_from)
            self._again.add_done_callback(self._answered)

    def _told_from(self, zxid: int) -> None:
        # A change may have been told together with the answer.
        self._history.forget(max(revision_of(zxid), self._history.newest))

    def _answered(self, again: asyncio.Future[None]) -> None:
        del again
        self._again = None
