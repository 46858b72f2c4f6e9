"""Entries of a task, read through the broker."""

from anabranch.client.client import Client
from anabranch.ids import TopicName
from pyspark_anabranch.access import Access
from pyspark_anabranch.entry_feed import EntryFeed
from pyspark_anabranch.entry_rows import StoredEntry
from pyspark_anabranch.planning import Task


class BrokerEntries:
    """See `EntrySource`."""

    def __init__(self, access: Access, task: Task, wait_s: float) -> None:
        self._access = access
        self._task = task
        self._wait_s = wait_s
        self._client: Client | None = None
        self._feed: EntryFeed | None = None

    async def open(self) -> None:
        """See `EntrySource.open`."""
        self._client = await self._access.connect()
        self._feed = EntryFeed(self._client, TopicName.parse(self._task.topic), self._task.spans)
        await self._feed.start()

    async def entries(self, bytes_max: int) -> list[StoredEntry]:
        """See `EntrySource.entries`."""
        assert self._feed is not None, "open first"
        return await self._feed.entries(bytes_max, self._wait_s)

    async def close(self) -> None:
        """See `EntrySource.close`."""
        if self._feed is not None:
            self._feed.abandon()
        if self._client is not None:
            await self._client.close()
