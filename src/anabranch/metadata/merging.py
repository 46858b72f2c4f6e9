"""Several streams from stores as one."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence

from anabranch.metadata.paths import order_key
from anabranch.metadata.store import Event, Node


async def merged(first: AsyncIterator[Node], second: AsyncIterator[Node]) -> AsyncIterator[Node]:
    """The nodes of two scans in path order; of two with one path, that of `first`."""
    streams = (first, second)
    heads = [await anext(stream, None) for stream in streams]
    while True:
        keys = [None if head is None else order_key(head.stat.path) for head in heads]
        known = [key for key in keys if key is not None]
        if not known:
            return
        lowest = min(known)
        node = next(head for head, key in zip(heads, keys, strict=True) if key == lowest)
        assert node is not None
        yield node
        for number, key in enumerate(keys):
            if key == lowest:
                heads[number] = await anext(streams[number], None)


class MergedWatch:
    """Events of several watches as they come; ends when all have ended. One reader at a time.

    The watches must bear that a reader gives up and comes back.
    """

    def __init__(
        self, watches: Sequence[AsyncIterator[Event]], first: Iterable[Event] = ()
    ) -> None:
        """`first` is told before all else."""
        self._watches = list(watches)
        self._ready = deque(first)

    def __aiter__(self) -> "MergedWatch":
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if not self._watches:
                raise StopAsyncIteration
            await self._wait()
        return self._ready.popleft()

    async def _wait(self) -> None:
        """Take what comes first, and leave no reader behind."""
        readers: list[asyncio.Task[None]] = []

        async def read(watch: AsyncIterator[Event]) -> None:
            try:
                self._ready.append(await anext(watch))
            except StopAsyncIteration:
                self._watches.remove(watch)
            for reader in readers:
                reader.cancel()

        async with asyncio.TaskGroup() as group:
            readers += [group.create_task(read(watch)) for watch in self._watches]
