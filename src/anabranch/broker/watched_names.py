"""The topics of one namespace, and which of them each pattern means that somebody watches.

A name is held against a pattern once, when it comes: with many topics nobody could afford to go
through all of them for every watcher and every piece of news. Whoever calls sees to it that only
one of the changes here is under way at a time.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from anabranch.broker.limits import (
    NAMES_MATCHED_PER_SLICE,
    NAMES_PER_SLICE,
    PATTERNS_PER_SLICE,
)
from anabranch.broker.topic_lists import hash_of, is_listed
from anabranch.broker.topic_patterns import TopicPattern
from anabranch.ids import TopicName, decode_segment
from anabranch.runtime import slices

W = TypeVar("W")


class News(NamedTuple):
    """What came and went among the names that a pattern means."""

    new: list[str]
    gone: list[str]
    names_hash: str
    """Of all names that it means now."""


@dataclass(slots=True, eq=False)
class MatchedNames(Generic[W]):
    """The names that one pattern means, and who watches them."""

    pattern: TopicPattern
    names: list[str] | None = None
    """Sorted; None until they were looked for."""
    names_hash: str = ""
    watchers: list[W] = field(default_factory=list)

    def change(self, new: Collection[str], gone: Collection[str]) -> News:
        """Take in what came and went, of which every name is one that it means."""
        before = self.names or []
        known = set(before)
        news = News(sorted(set(new) - known), sorted(known.intersection(gone)), "")
        if self.names is None or news.new or news.gone:
            left = known.difference(news.gone) if news.gone else before
            self.names = sorted([*left, *news.new])
            self.names_hash = hash_of(self.names)
        return news._replace(names_hash=self.names_hash)


class WatchedNames(Generic[W]):
    """Of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._full_names: dict[str, str] = {}
        """Of each name that is stored; empty if nobody is to know of it."""
        self.patterns: dict[str, MatchedNames[W]] = {}

    async def replace(self, stored: Collection[str]) -> AsyncIterator[tuple[MatchedNames[W], News]]:
        """Take in which topics are stored now; hand out for each pattern what that changes."""
        now = set(stored)
        before = self._full_names.keys()
        async for changed in self.change(now - before, before - now):
            yield changed

    async def change(
        self, came: Collection[str], went: Collection[str]
    ) -> AsyncIterator[tuple[MatchedNames[W], News]]:
        """Take in that some topics are stored and some are not; hand out what that changes.

        Each pattern has taken it in at the moment when it is handed out.
        """
        # In order, so that two runs of a simulation are the same.
        new, gone = await self._listed(sorted(came), sorted(went))
        patterns = list(self.patterns.values())
        async for matched in slices.in_slices(patterns, PATTERNS_PER_SLICE):
            if matched.names is None:
                yield matched, matched.change(await self._all_of(matched), ())
            elif new or gone:
                news = matched.change(await _meant(matched, new), await _meant(matched, gone))
                if news.new or news.gone:
                    yield matched, news

    async def _listed(
        self, came: Iterable[str], went: Iterable[str]
    ) -> tuple[list[str], list[str]]:
        gone = [full for name in went if (full := self._full_names.pop(name, ""))]
        new = []
        async for name in slices.in_slices(came, NAMES_PER_SLICE):
            full = f"persistent://{self._namespace}/{decode_segment(name)}"
            listed = is_listed(full)
            self._full_names[name] = full if listed else ""
            if listed:
                new.append(full)
        return new, gone

    async def _all_of(self, matched: MatchedNames[W]) -> list[str]:
        return await _meant(matched, [name for name in self._full_names.values() if name])


async def _meant(matched: MatchedNames[W], names: Iterable[str]) -> list[str]:
    found = []
    async for name in slices.in_slices(names, NAMES_MATCHED_PER_SLICE):
        topic = TopicName.parse(name)
        if matched.pattern.matches(f"{topic.namespace_name}/{topic.partitioned_local}"):
            found.append(name)
    return found
