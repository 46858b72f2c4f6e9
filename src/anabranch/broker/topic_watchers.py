"""Clients that want to hear of topics that come and go, by a pattern of their names.

What happens is read from the metadata store, so it does not matter which broker did it. Changes are
gathered for a moment and told together.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.broker.limits import (
    NAMES_PER_SLICE,
    TOPIC_NEWS_DELAY_S,
    TOPIC_WATCHERS_PER_CONNECTION_MAX,
    WATCHERS_PER_SLICE,
)
from anabranch.broker.mishaps import Spawns
from anabranch.broker.refusals import Refused
from anabranch.broker.topic_lists import TopicLists
from anabranch.broker.topic_patterns import TopicPattern
from anabranch.broker.watched_names import MatchedNames, News, WatchedNames
from anabranch.errors import AnabranchError, InputError
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.metadata.store import Event, EventKind, MetadataStore
from anabranch.runtime import slices
from anabranch.telemetry import get_logger
from anabranch.wire import ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_log = get_logger("broker")


@dataclass(slots=True, eq=False)
class _Watcher:
    session: "Session"
    watcher_id: int
    is_told: bool = False
    """Whether it has its list, and hears of what changes from then on."""

    def tell(self, news: News) -> None:
        """Let the client know what came and went since it was told the last time."""
        if self.is_told and not self.session.closed:
            self.session.reply(
                replies.watch_topic_update(
                    self.watcher_id,
                    new=news.new,
                    deleted=news.gone,
                    topics_hash=news.names_hash,
                )
            )


@dataclass(slots=True, eq=False)
class _Namespace:
    hearing: asyncio.Task[None]
    topics: WatchedNames[_Watcher]
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: set[str] | None = field(default_factory=set)
    """Stored names that were heard of since the last look; None if some may have been missed."""
    telling: bool = False
    """News are being gathered."""

    def watchers(self) -> list[tuple[MatchedNames[_Watcher], _Watcher]]:
        """All of them, with what they watch."""
        return [(each, w) for each in self.topics.patterns.values() for w in each.watchers]


class TopicWatchers:
    """The watchers of one broker."""

    def __init__(self, store: MetadataStore, lists: TopicLists, tasks: Spawns) -> None:
        self._store = store
        self._lists = lists
        self._tasks = tasks
        self._namespaces: dict[str, _Namespace] = {}

    async def add(
        self, session: "Session", watcher_id: int, namespace: str, pattern: str
    ) -> tuple[list[str], str]:
        """Watch a namespace for a client; return the topics it has now that match, and their hash.

        Raises:
            Refused: if the pattern is not understood, there are too many watchers, or the
                namespace is not there.
        """
        try:
            wanted = TopicPattern(pattern)
        except InputError as error:
            raise Refused(ServerError.NotAllowedError, str(error)) from error
        if len(self._of(session)) >= TOPIC_WATCHERS_PER_CONNECTION_MAX:
            raise Refused(ServerError.TooManyRequests, "too many watchers on one connection")
        entry = self._namespaces.get(namespace)
        if entry is None:
            # Before the list is made: what comes in between is heard of.
            events = self._store.watch(f"{MANAGED_LEDGERS}/{namespace}/persistent")
            hearing = self._tasks.spawn(f"watch {namespace}", self._hear(namespace, events))
            entry = self._namespaces[namespace] = _Namespace(hearing, WatchedNames(namespace))
        matched = entry.topics.patterns.setdefault(pattern, MatchedNames(wanted))
        watcher = _Watcher(session, watcher_id)
        matched.watchers.append(watcher)
        # Others are told of what it finds: that must not end with this client.
        failure = await asyncio.shield(
            self._tasks.spawn(f"topics of {namespace}", self._look(namespace, entry, whole=True))
        )
        if failure is not None:
            self._drop(watcher)
            raise failure
        watcher.is_told = True
        return matched.names or [], matched.names_hash

    def remove(self, session: "Session", watcher_id: int) -> None:
        """Tell a client no more; no error if nothing was told."""
        for watcher in self._of(session):
            if watcher.watcher_id == watcher_id:
                self._drop(watcher)

    def _of(self, session: "Session") -> list[_Watcher]:
        self._drop_lost()
        entries = self._namespaces.values()
        return [w for entry in entries for _, w in entry.watchers() if w.session is session]

    def _drop_lost(self) -> None:
        for entry in list(self._namespaces.values()):
            for _, watcher in entry.watchers():
                if watcher.session.closed:
                    self._drop(watcher)

    def _drop(self, watcher: _Watcher) -> None:
        watcher.is_told = False
        for namespace, entry in list(self._namespaces.items()):
            patterns = entry.topics.patterns
            for pattern, matched in list(patterns.items()):
                if watcher in matched.watchers:
                    matched.watchers.remove(watcher)
                if not matched.watchers:
                    del patterns[pattern]
            if not patterns:
                entry.hearing.cancel()
                del self._namespaces[namespace]

    async def _hear(self, namespace: str, events: AsyncIterator[Event]) -> None:
        parent = f"{MANAGED_LEDGERS}/{namespace}/persistent/"
        async for event in events:
            entry = self._namespaces.get(namespace)
            name = event.path.removeprefix(parent)
            is_topic = event.path.startswith(parent) and "/" not in name
            if entry is None:
                continue
            if event.kind is EventKind.GAP:
                entry.changed = None
            elif event.kind is EventKind.MODIFIED or not is_topic:
                continue
            elif entry.changed is not None:
                entry.changed.add(name)
            if not entry.telling:
                entry.telling = True
                self._tasks.spawn(f"topic news of {namespace}", self._tell(namespace, entry))

    async def _tell(self, namespace: str, entry: _Namespace) -> None:
        await asyncio.sleep(TOPIC_NEWS_DELAY_S)
        entry.telling = False
        self._drop_lost()
        error = await self._look(namespace, entry, whole=False)
        if error is not None:
            _log.warning("topic_news_not_told", namespace=namespace, error=str(error))

    async def _look(
        self, namespace: str, entry: _Namespace, *, whole: bool
    ) -> AnabranchError | None:
        """See which topics there are, all or those heard of, and tell who watches what changed."""
        async with entry.looking:
            heard, entry.changed = entry.changed, set()
            try:
                if whole or heard is None or len(heard) > NAMES_PER_SLICE:
                    changes = entry.topics.replace(await self._lists.stored(namespace))
                else:
                    is_there = {
                        name: await self._is_stored(namespace, name) for name in sorted(heard)
                    }
                    came = [name for name, there in is_there.items() if there]
                    changes = entry.topics.change(came, is_there.keys() - came)
            except AnabranchError as error:
                entry.changed = None  # whatever was heard of is looked for the next time
                return error
            async for matched, news in changes:
                told = [watcher for watcher in matched.watchers if watcher.is_told]
                async for watcher in slices.in_slices(told, WATCHERS_PER_SLICE):
                    watcher.tell(news)
        return None

    async def _is_stored(self, namespace: str, name: str) -> bool:
        return await self._store.exists(f"{MANAGED_LEDGERS}/{namespace}/persistent/{name}")
