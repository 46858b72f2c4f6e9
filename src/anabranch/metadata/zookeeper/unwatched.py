"""Writing a large tree without being told of each of its nodes.

A server tells a watch of every change, and that costs both sides more than the change itself. So
once a restore has written many nodes, and if nobody on this handle reads along, or ever did, the
watch is given up until all is written; whoever asks then what happened finds a gap.
"""

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

    async def counted(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        """The same records; there is no watch while many more are taken."""
        count = 0
        async for record in records:
            yield record
            count += 1
            if count >= WATCHED_RESTORE_NODES_MAX:
                break
        else:
            return
        async with self._restoring():
            async for record in records:
                yield record

    @asynccontextmanager
    async def _restoring(self) -> AsyncIterator[None]:
        if self._history.watched and not self._restores:
            yield
            return
        self._restores += 1
        try:
            if self._restores == 1:
                await self._client.unwatch(ROOT)
            yield
        finally:
            self._restores -= 1
            if not self._restores:
                self._history.forget(revision_of(await self._client.watch(ROOT)))
