"""Iterators over news of a store that go on when the store is replaced."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, TypeVar

from anabranch.metadata.store import MetadataStore

T = TypeVar("T")


class Carried(Generic[T]):
    """News of the store in use. One reader at a time."""

    def __init__(
        self,
        news: AsyncIterator[T],
        shown: Callable[[T], T | None],
        begin: Callable[[MetadataStore], AsyncIterator[T]],
    ) -> None:
        """`shown` is how callers see something, `begin` gives the news of another store."""
        self._news = news
        self._shown = shown
        self._begin = begin
        self._first: list[T] = []

    def move(self, store: MetadataStore, first: Sequence[T]) -> None:
        """From now on tell of another store, and before all else `first`.

        A reader that waits for the old one does so until that is closed, and misses nothing.
        """
        self._news, self._first = self._begin(store), list(first)

    def say(self, first: T) -> None:
        """Tell something before all else."""
        self._first.append(first)

    def __aiter__(self) -> "Carried[T]":
        return self

    async def __anext__(self) -> T:
        while True:
            if self._first:
                return self._first.pop(0)
            news = self._news
            try:
                found = await anext(news)
            except StopAsyncIteration:
                if news is self._news:
                    raise
                continue
            if news is self._news and (shown := self._shown(found)) is not None:
                return shown
