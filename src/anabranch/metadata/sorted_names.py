"""A sorted set of names, or of tuples of names, that stays cheap with a million members.

Pure. Blocks of bounded length: adding or removing moves at most one block, not the whole list.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

_BLOCK_NAMES_MAX: Final = 1024
Name = TypeVar("Name", str, tuple[str, ...])


class SortedNames(Generic[Name]):
    """Names in order, each once."""

    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[Name]] = []
        self._lasts: list[Name] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Name]:
        for block in self._blocks:
            yield from block

    def add(self, name: Name) -> None:
        """Put in a name that is not in yet."""
        self._count += 1
        if not self._blocks:
            self._blocks.append([name])
            self._lasts.append(name)
            return
        at = min(bisect_left(self._lasts, name), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, name)
        if len(block) > _BLOCK_NAMES_MAX:
            middle = len(block) // 2
            self._blocks.insert(at + 1, block[middle:])
            self._lasts.insert(at + 1, block[-1])
            del block[middle:]
        self._lasts[at] = block[-1]

    def remove(self, name: Name) -> None:
        """Take out a name that is in."""
        at = bisect_left(self._lasts, name)
        block = self._blocks[at]
        place = bisect_left(block, name)
        assert block[place] == name, f"{name!r} is not among the names"
        self._count -= 1
        del block[place]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at]
            del self._lasts[at]

    def after(self, name: Name) -> Iterator[Name]:
        """The names larger than `name`, which need not be in, in order."""
        at = bisect_right(self._lasts, name)
        if at == len(self._blocks):
            return
        block = self._blocks[at]
        yield from block[bisect_right(block, name) :]
        for block in self._blocks[at + 1 :]:
            yield from block
