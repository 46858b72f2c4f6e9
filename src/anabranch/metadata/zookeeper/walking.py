"""Reads whole trees: parents first, in path order, many nodes with one request.

What lies ahead in path order is read before its turn, a bounded number of nodes; the rest waits as
names. So neither wide nor deep trees cost a round trip per node.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from anabranch import limits
from anabranch.errors import ProtocolError
from anabranch.metadata.paths import ROOT
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.naming import shown
from anabranch.metadata.zookeeper.replies import Code, Part, Refusal, ZStat, data_of

_NODE_BYTES: Final = 100
"""What a node takes in an answer besides its value."""
_FIRST_PAGE: Final = 64

Found = tuple[str, bytes, ZStat]
"""A node that was read: path, value and stat. Whole trees are made of it, so it is a bare tuple."""


@dataclass(frozen=True, slots=True)
class _Parent:
    """A node that was read, and the names of whose children were not."""

    found: Found


_Ahead = Found | _Parent | str
"""A node whose children follow; one whose children are not known; one not read yet."""


class Walk:
    """One way through a tree."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._at_top = client.chroot == ROOT
        self._page_nodes = _FIRST_PAGE
        self._ahead: list[_Ahead] = []
        """What comes next, last first."""

    async def pages(self, prefix: str) -> AsyncIterator[list[Found]]:
        """Every node at or below a path that is there when its turn comes, some at a time."""
        self._ahead = [prefix]
        taken, reading = self._begin()
        try:
            while taken:
                page = self._finish(taken, await asyncio.gather(*reading))
                taken, reading = self._begin()
                if page:
                    # The requests go out, and are answered while the caller deals with the page.
                    await asyncio.sleep(0)
                    yield page
        finally:
            for answer in reading:
                answer.cancel()

    def _begin(self) -> tuple[list[_Ahead], list[asyncio.Future[list[Part]]]]:
        """Take some of what comes next, and read what is not known of it."""
        ahead = self._ahead
        taken: list[_Ahead] = []
        unread = 0
        room = self._page_nodes * limits.ZOOKEEPER_READ_AHEAD_PAGES
        while ahead and unread < room and len(taken) < 2 * room:
            item = ahead.pop()
            taken.append(item)
            if type(item) is not tuple:
                unread += 1
        return taken, self._read(taken)

    def _finish(self, taken: list[_Ahead], answers: list[list[Part]]) -> list[Found]:
        """Put back what was taken, with what was read of it; return what may be told now."""
        parts = [part for answer in answers for part in answer]
        fresh, size_bytes = self._fresh(taken, parts)
        self._adapt(size_bytes // max(1, len(answers)))
        unknown = next((at for at, item in enumerate(fresh) if type(item) is not tuple), len(fresh))
        later = fresh[unknown:]
        later.reverse()
        self._ahead += later
        page: list[Found] = fresh[:unknown]  # type: ignore[assignment]
        return page

    def _fresh(self, taken: list[_Ahead], parts: list[Part]) -> tuple[list[_Ahead], int]:
        """What was taken, with what was read of it, and how many bytes that was."""
        fresh: list[_Ahead] = []
        add = fresh.append
        asked = iter(parts)
        size_bytes = 0
        for item in taken:
            if type(item) is str:
                part = next(asked, None)
                if isinstance(part, tuple):
                    value, stat = data_of(part)
                    size_bytes += _NODE_BYTES + len(value)
                    found = (item, value, stat)
                    add(_Parent(found) if stat.num_children else found)
                else:
                    _check_gone(part)
            elif isinstance(item, _Parent):
                add(item.found)
                fresh += self._below(item.found[0], next(asked, None))
            else:
                add(item)
        return fresh, size_bytes

    def _below(self, path: str, part: Part) -> list[str]:
        if not isinstance(part, list):
            _check_gone(part)
            return []
        below = path if path != ROOT else ""
        return [f"{below}/{name}" for name in shown(path, part, at_top=self._at_top)]

    def _read(self, taken: list[_Ahead]) -> list[asyncio.Future[list[Part]]]:
        """Ask for values and stats, and for names of children, in order."""
        client = self._client
        if all(type(item) is not _Parent for item in taken):
            reads = client.read_values([item for item in taken if type(item) is str])
        else:
            reads = [
                client.read_value(item) if type(item) is str else client.read_names(item.found[0])  # type: ignore[union-attr]
                for item in taken
                if type(item) is not tuple
            ]
        return [
            answer
            for start in range(0, len(reads), self._page_nodes)
            for answer in client.begin_reads(reads[start : start + self._page_nodes])
        ]

    def _adapt(self, page_bytes: int) -> None:
        if page_bytes > limits.ZOOKEEPER_PAGE_BYTES_USUAL:
            self._page_nodes = max(1, self._page_nodes // 2)
        elif 2 * page_bytes < limits.ZOOKEEPER_PAGE_BYTES_USUAL:
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
