"""Connections beside a client's own, by which access rights are read side by side.

They cannot be read many at a time, and what a request costs a server is mostly that it takes one
from a connection and then waits to be told of the next: with more connections it is told of
several at once. Each has a session of its own, and one that begins is a write to ZooKeeper. So
whoever wants to know whether the tree stays as it is opens them before.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.limits import READERS_MAX, READERS_OPEN_S_MAX
from anabranch.metadata.zookeeper.link import Link
from anabranch.metadata.zookeeper.replies import Refusal
from anabranch.metadata.zookeeper.requests import Rights
from anabranch.telemetry import get_logger

_UNANSWERED_MAX: Final = limits.ZOOKEEPER_UNANSWERED_MAX // (2 * READERS_MAX)
"""Of one reader. A bundle is sent when less than this is under way, and is as long."""
_log: Final = get_logger("zookeeper")


class Readers:
    """None at first; use `open`."""

    def __init__(self, make_link: Callable[..., Link], top: str) -> None:
        """Given is what makes a link, and a path that is there."""
        self._make_link = make_link
        self._top = top
        self._links: list[Link] = []
        self._turns: Iterator[Link] = iter(())

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._links)

    async def open(self) -> None:
        """Have them, or as many as the servers allow; none is no error."""
        if self._links:
            return
        links = [self._make_link(unanswered_max=_UNANSWERED_MAX) for _ in range(READERS_MAX)]
        try:
            opened = await asyncio.gather(*map(_opens, links))
        except BaseException:
            await asyncio.gather(*(link.close() for link in links))
            raise
        self._links = [link for link, is_open in zip(links, opened, strict=True) if is_open]
        self._turns = cycle(self._links)

    async def close(self) -> None:
        """End their sessions."""
        links, self._links = self._links, []
        await asyncio.gather(*(link.close() for link in links))

    async def catch_up(self) -> None:
        """From now on they show nothing older than what the leader knows now."""
        await asyncio.gather(*(link.call(requests.sync(self._top)) for link in self._links))

    def begin_acls(self, paths: Sequence[str]) -> list[asyncio.Future[list[Rights | Refusal]]]:
        """Ask for the access rights of many nodes; answers in the order of the paths."""
        return [next(self._turns).ask(requests.get_acls(some)).answer for some in _bundles(paths)]


def _bundles(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _UNANSWERED_MAX):
        yield paths[start : start + _UNANSWERED_MAX]


async def _opens(link: Link) -> bool:
    """Servers have a limit to the connections from one address, and hang up on more."""
    try:
        async with asyncio.timeout(READERS_OPEN_S_MAX):
            await link.open()
    except (TimeoutError, AnabranchError) as error:
        _log.info("zookeeper_reader_left_out", reason=str(error))
        return False
    return True
