"""Reads whole trees: parents first, in path order, many nodes with one request.

What lies ahead in path order is read before its turn, a bounded number of nodes; the rest waits as
names. So neither wide nor deep trees cost a round trip per node.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, Generic, TypeVar

from anabranch import limits
from anabranch.errors import FrameTooLarge, ProtocolError
from anabranch.metadata.paths import ROOT
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.naming import shown
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import Acl, Code, Part, Refusal, ZStat

_NODE_BYTES: Final = 100
"""What a node takes in an answer besides its value."""
_FIRST_PAGE: Final = 64
_SHRINKS_BY: Final = 8
T = TypeVar("T", bytes, tuple[Acl, ...])
Found = tuple[str, T, ZStat]
"""A node that was read: path, value and stat. Whole trees are made of it, so it is a bare tuple."""


class _Parent(Generic[T]):
    """A node that was read, and the names of whose children were not."""

    __slots__ = ("found",)

    def __init__(self, found: Found[T]) -> None:
        self.found: Found[T] = found


_Ahead = Found[T] | _Parent[T] | str
"""A node whose children follow; one whose children are not known; one not read yet."""
_Asked = tuple[
    list[asyncio.Future[list[tuple[T, ZStat] | Refusal]]], list[asyncio.Future[list[Part]]]
]
"""Answers about nodes, and names of children."""


class Walk(Generic[T]):
    """One way through a tree; what is read of a node besides its stat is up to who extends it."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._at_top = client.chroot == ROOT
        self._page_nodes = _FIRST_PAGE
        self._ahead: list[_Ahead[T]] = []
        """What comes next, last first."""

    def _begin_nodes(
        self, paths: Sequence[str]
    ) -> list[asyncio.Future[list[tuple[T, ZStat] | Refusal]]]:
        """Ask about nodes."""
        raise NotImplementedError

    def _adapt(self, page_bytes: int) -> None:
        """Learn from how large the answers about a page of nodes are."""
        raise NotImplementedError

    async def pages(self, prefix: str) -> AsyncIterator[list[Found[T]]]:
        """Every node at or below a path that is there when its turn comes, some at a time.

        Raises:
            InputError: if access rights do not allow to read a node; names it.
        """
        self._ahead = [prefix]
        taken: list[_Ahead[T]]
        asked: _Asked[T]
        taken, asked = self._begin()
        try:
            while taken:
                try:
                    nodes = await asyncio.gather(*asked[0])
                    names = await asyncio.gather(*asked[1])
                except FrameTooLarge:
                    if not self._shrink():
                        raise
                    _cancel(asked)
                    self._ahead += reversed(taken)
                    taken, asked = self._begin()
                    continue
                page = self._finish(taken, nodes, names)
                taken, asked = self._begin()
                if page:
                    # The requests go out, and are answered while the caller deals with the page.
                    await asyncio.sleep(0)
                    yield page
        finally:
            _cancel(asked)

    def _shrink(self) -> bool:
        """Whether fewer nodes can be asked for at a time, as from now on they are.

        Nobody knows how large a node is before it is read, and small ones may be followed by such
        that are too large together. The answer ended the connection.
        """
        if self._page_nodes == 1:
            return False
        self._page_nodes = max(1, self._page_nodes // _SHRINKS_BY)
        return True

    def _begin(self) -> tuple[list[_Ahead[T]], _Asked[T]]:
        """Take some of what comes next, and read what is not known of it."""
        ahead = self._ahead
        taken: list[_Ahead[T]] = []
        room = self._page_nodes * limits.ZOOKEEPER_READ_AHEAD_PAGES
        unread, taken_max = 0, 2 * room
        while ahead and unread < room and len(taken) < taken_max:
            some: list[_Ahead[T]] = ahead[: -(room - unread) - 1 : -1]
            del ahead[-len(some) :]
            taken += some
            unread += len(some) - [*map(type, some)].count(tuple)
        return taken, self._ask(taken)

    def _ask(self, taken: list[_Ahead[T]]) -> _Asked[T]:
        client, page_nodes = self._client, self._page_nodes
        paths = [item for item in taken if type(item) is str]
        nodes = [
            answer
            for start in range(0, len(paths), page_nodes)
            for answer in self._begin_nodes(paths[start : start + page_nodes])
        ]
        names = [client.read_names(item.found[0]) for item in taken if type(item) is _Parent]
        children = [
            answer
            for start in range(0, len(names), page_nodes)
            for answer in client.begin_reads(names[start : start + page_nodes])
        ]
        return nodes, children

    def _finish(
        self,
        taken: list[_Ahead[T]],
        nodes: list[list[tuple[T, ZStat] | Refusal]],
        names: list[list[Part]],
    ) -> list[Found[T]]:
        """Put back what was taken, with what was read of it; return what may be told now."""
        parts = [part for answer in nodes for part in answer]
        fresh = self._fresh(taken, iter(parts), iter([part for some in names for part in some]))
        if nodes:
            read_bytes = sum([_NODE_BYTES + len(part[0]) for part in parts if type(part) is tuple])
            self._adapt(read_bytes // len(nodes))
        unknown = next((at for at, item in enumerate(fresh) if type(item) is not tuple), len(fresh))
        later = fresh[unknown:]
        later.reverse()
        self._ahead += later
        page: list[Found[T]] = fresh[:unknown]  # type: ignore[assignment]
        return page

    def _fresh(
        self,
        taken: list[_Ahead[T]],
        nodes: Iterator[tuple[T, ZStat] | Refusal],
        names: Iterator[Part],
    ) -> list[_Ahead[T]]:
        """What was taken, with what was read of it."""
        fresh: list[_Ahead[T]] = []
        add = fresh.append
        for item in taken:
            kind = type(item)
            if kind is str:
                part = next(nodes, None)
                if type(part) is tuple:
                    stat = part[1]
                    found = (item, part[0], stat)
                    add(_Parent(found) if stat.num_children else found)  # type: ignore[arg-type]
                else:
                    _check_gone(part, item)  # type: ignore[arg-type]
            elif kind is tuple:
                add(item)
            else:
                known: Found[T] = item.found  # type: ignore[union-attr]
                add(known)
                fresh += self._below(known[0], next(names, None))
        return fresh

    def _below(self, path: str, part: Part) -> list[str]:
        if not isinstance(part, list):
            _check_gone(part, path)
            return []
        below = path if path != ROOT else ""
        return [f"{below}/{name}" for name in shown(path, part, at_top=self._at_top)]


class ValueWalk(Walk[bytes]):
    """Reads values."""

    def _begin_nodes(
        self, paths: Sequence[str]
    ) -> list[asyncio.Future[list[tuple[bytes, ZStat] | Refusal]]]:
        return self._client.begin_values(paths)

    def _adapt(self, page_bytes: int) -> None:
        if page_bytes > limits.ZOOKEEPER_PAGE_BYTES_USUAL:
            self._page_nodes = max(1, self._page_nodes // 2)
        elif 2 * page_bytes < limits.ZOOKEEPER_PAGE_BYTES_USUAL:
            self._page_nodes = min(2 * self._page_nodes, limits.ZOOKEEPER_PAGE_NODES_MAX)


class RightsWalk(Walk[tuple[Acl, ...]]):
    """Reads access rights, one request per node, and no values."""

    def _begin_nodes(
        self, paths: Sequence[str]
    ) -> list[asyncio.Future[list[tuple[tuple[Acl, ...], ZStat] | Refusal]]]:
        return self._client.begin_acls(paths)

    def _adapt(self, page_bytes: int) -> None:
        """Answers are small, whatever the nodes are like."""
        self._page_nodes = limits.METADATA_PAGE_NODES_MAX


def _cancel(asked: _Asked[T]) -> None:
    for answers in asked:
        for answer in answers:
            answer.cancel()


def _check_gone(part: Part | tuple[tuple[Acl, ...], ZStat], path: str) -> None:
    """A node that is not there any more when its turn comes is passed over.

    Raises:
        AnabranchError: if it was refused for another reason.
        ProtocolError: if it was not refused.
    """
    if not isinstance(part, Refusal):
        raise ProtocolError("a read of a tree was answered with something else")
    if part.code != Code.NO_NODE:
        raise meaning(part, path)
