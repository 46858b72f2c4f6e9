"""Reads whole trees: parents first, in path order, many nodes with one request.

What lies ahead in path order is read before its turn, a bounded number of nodes; the rest waits as
names. So neither wide nor deep trees cost a round trip per node.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.metadata.paths import ROOT, join
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.naming import shown
from anabranch.metadata.zookeeper.replies import Code, Part, Refusal, ZStat, data_of, names_of
from anabranch.metadata.zookeeper.requests import Request

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

    async def nodes(self, prefix: str) -> AsyncIterator[Found]:
        """Every node at or below a path that is there when its turn comes."""
        self._ahead = [prefix]
        while self._ahead:
            item = self._ahead[-1]
            if isinstance(item, Found) and item.complete:
                yield item
                self._ahead.pop()
            else:
                await self._read_ahead()

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
            if isinstance(item, Found) and item.complete:
                fresh.append(item)
            else:
                self._take(item, next(parts), fresh)
        self._ahead += reversed(fresh)

    def _take(self, item: Found | str, part: Part, fresh: list[Found | str]) -> None:
        if isinstance(part, Refusal):
            if part.code != Code.NO_NODE:
                raise part
            # Gone since its name was read, or, if it was read itself, since then.
            if isinstance(item, Found):
                fresh.append(item._replace(complete=True))
        elif isinstance(item, str):
            value, stat = data_of(part)
            fresh.append(Found(item, value, stat, stat.num_children == 0))
        else:
            fresh.append(item._replace(complete=True))
            names = shown(item.path, names_of(part), at_top=self._at_top)
            fresh += [join(item.path, name) for name in names]

    async def _read(self, unread: list[Found | str]) -> list[Part]:
        pages: list[list[Request[object]]] = [[]]
        size_bytes = 0
        for item in unread:
            if isinstance(item, str):
                operation: Request[object] = self._client.op_get(item)
            else:
                operation = self._client.op_children(item.path)
            size_bytes += len(operation.body) + 16
            if (
                len(pages[-1]) >= self._page_nodes
                or size_bytes > self._client.request_bytes_max // 2
            ):
                pages.append([])
                size_bytes = len(operation.body) + 16
            pages[-1].append(operation)
        answers = await asyncio.gather(*(self._client.multi_read(page) for page in pages))
        for page in answers:
            self._adapt(page)
        return [part for page in answers for part in page]

    def _adapt(self, page: list[Part]) -> None:
        size_bytes = 0
        for part in page:
            if isinstance(part, tuple) and isinstance(part[0], bytes):
                size_bytes += _NODE_BYTES + len(part[0])
        if size_bytes > limits.ZOOKEEPER_PAGE_BYTES_USUAL:
            self._page_nodes = max(1, self._page_nodes // 2)
        elif 2 * size_bytes < limits.ZOOKEEPER_PAGE_BYTES_USUAL:
            self._page_nodes = min(2 * self._page_nodes, limits.ZOOKEEPER_PAGE_NODES_MAX)
