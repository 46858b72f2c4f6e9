"""Reads whole trees: parents first, in path order, many nodes with one request.

What lies ahead in path order is read before its turn, a bounded number of nodes; the rest waits as
names. So neither wide nor deep trees cost a round trip per node.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.errors import ProtocolError
from anabranch.metadata.paths import ROOT
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.naming import shown
from anabranch.metadata.zookeeper.replies import Code, Part, Refusal, ZStat, data_of

_NODE_BYTES: Final = 100
"""What a node takes in an answer besides its value."""
_FIRST_PAGE: Final = 64


class Found(NamedTuple):
    """A node that was read."""

    path: str
    value: bytes
    stat: ZStat
    complete: bool
    """Whether its children are known to follow."""


class Walk:
    """One way through a tree."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._at_top = client.chroot == ROOT
        self._page_nodes = _FIRST_PAGE
        self._ahead: list[Found | str] = []
        """What comes next, last first; names are nodes not read yet."""

    async def pages(self, prefix: str) -> AsyncIterator[list[Found]]:
        """Every node at or below a path that is there when its turn comes, some at a time."""
        self._ahead = ahead = list[Found | str]([prefix])
        while ahead:
            await self._read_ahead()
            page: list[Found] = []
            while ahead and not isinstance(item := ahead[-1], str) and item.complete:
                page.append(item)
                ahead.pop()
            if page:
                yield page

    async def _read_ahead(self) -> None:
        taken: list[Found | str] = []
        unread: list[Found | str] = []
        room = self._page_nodes * limits.ZOOKEEPER_READ_AHEAD_PAGES
        while self._ahead and len(unread) < room and len(taken) < 2 * room:
            item = self._ahead.pop()
            taken.append(item)
            if isinstance(item, str) or not item.complete:
                unread.append(item)
        parts = iter(await self._read(unread))
        fresh: list[Found | str] = []
        for item in taken:
            if not isinstance(item, str):
                if item.complete:
                    fresh.append(item)
                else:
                    self._take_names(item, next(parts), fresh)
                continue
            part = next(parts)
            if isinstance(part, tuple):
                value, stat = data_of(part)
                fresh.append(Found(item, value, stat, stat.num_children == 0))
            else:
                _check_gone(part)
        fresh.reverse()
        self._ahead += fresh

    def _take_names(self, item: Found, part: Part, fresh: list[Found | str]) -> None:
        fresh.append(item._replace(complete=True))
        if isinstance(part, list):
            below = item.path if item.path != ROOT else ""
            names = shown(item.path, part, at_top=self._at_top)
            fresh += [f"{below}/{name}" for name in names]
        else:
            _check_gone(part)

    async def _read(self, unread: list[Found | str]) -> list[Part]:
        reads = [
            self._client.read_value(item)
            if isinstance(item, str)
            else self._client.read_names(item.path)
            for item in unread
        ]
        pages = [
            reads[start : start + self._page_nodes]
            for start in range(0, len(reads), self._page_nodes)
        ]
        answers = await asyncio.gather(*map(self._client.multi_read, pages))
        for answer in answers:
            self._adapt(answer)
        return [part for answer in answers for part in answer]

    def _adapt(self, page: list[Part]) -> None:
        size_bytes = 0
        for part in page:
            if isinstance(part, tuple) and isinstance(part[0], bytes):
                size_bytes += _NODE_BYTES + len(part[0])
        if size_bytes > limits.ZOOKEEPER_PAGE_BYTES_USUAL:
            self._page_nodes = max(1, self._page_nodes // 2)
        elif 2 * size_bytes < limits.ZOOKEEPER_PAGE_BYTES_USUAL:
            self._page_nodes = min(2 * self._page_nodes, limits.ZOOKEEPER_PAGE_NODES_MAX)


def _check_gone(part: Part) -> None:
    """A node that is not there any more when its turn comes is passed over.

    Raises:
        Refusal: if it is another one.
        ProtocolError: if it is none.
    """
    if not isinstance(part, Refusal):
        raise ProtocolError("a read of a tree was answered with something else")
    if part.code != Code.NO_NODE:
        raise part
