"""Clients that want to hear of topics that come and go, by a pattern of their names.

What happens is read from the metadata store, so it does not matter which broker did it. Changes are
gathered for a moment and told together.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.broker.limits import TOPIC_NEWS_DELAY_S, TOPIC_WATCHERS_PER_CONNECTION_MAX
from anabranch.broker.mishaps import Spawns
from anabranch.broker.refusals import Refused
from anabranch.broker.topic_lists import TopicLists, hash_of, is_listed
from anabranch.broker.topic_patterns import TopicPattern
from anabranch.errors import AnabranchError, InputError
from anabranch.ids import TopicName
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.metadata.store import Event, EventKind, MetadataStore
from anabranch.telemetry import get_logger
from anabranch.wire import ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_log = get_logger("broker")


@dataclass(slots=True, eq=False)
class _Watcher:
    session: "Session"
    watcher_id: int
    pattern: TopicPattern
    known: set[str] = field(default_factory=set)

    def wants(self, name: str) -> bool:
        topic = TopicName.parse(name)
        return is_listed(name) and self.pattern.matches(
            f"{topic.namespace_name}/{topic.partitioned_local}"
        )

    def tell(self, names: set[str]) -> None:
        """Bring the client up to date with the topics there are now."""
        new, gone = sorted(names - self.known), sorted(self.known - names)
        if new or gone:
            self.known = names
            self.session.reply(
                replies.watch_topic_update(
                    self.watcher_id, new=new, deleted=gone, topics_hash=hash_of(names)
                )
            )


@dataclass(slots=True, eq=False)
class _Namespace:
    hearing: asyncio.Task[None]
    watchers: list[_Watcher] = field(default_factory=list)
    telling: bool = False
    """News are being gathered."""


class TopicWatchers:
    """The watchers of one broker."""

    def __init__(self, store: MetadataStore, lists: TopicLists, tasks: Spawns) -> None:
        self._store = store
        self._lists = lists
        self._tasks = tasks
        self._namespaces: dict[str, _Namespace] = {}

    async def add(
        self, session: "Session", watcher_id: int, namespace: str, pattern: str
    ) -> set[str]:
        """Watch a namespace for a client; return the topics it has now that match.

        Raises:
            Refused: if the pattern is not understood, there are too many watchers, or the
                namespace is not there.
        """
        try:
            watcher = _Watcher(session, watcher_id, TopicPattern(pattern))
        except InputError as error:
            raise Refused(ServerError.NotAllowedError, str(error)) from error
        if len(self._of(session)) >= TOPIC_WATCHERS_PER_CONNECTION_MAX:
            raise Refused(ServerError.TooManyRequests, "too many watchers on one connection")
        entry = self._namespaces.get(namespace)
        if entry is None:
            # Before the list is made: what comes in between is heard of.
            events = self._store.watch(f"{MANAGED_LEDGERS}/{namespace}/persistent")
            hearing = self._tasks.spawn(f"watch {namespace}", self._hear(namespace, events))
            entry = self._namespaces[namespace] = _Namespace(hearing)
        entry.watchers.append(watcher)
        try:
            names = await self._lists.of_namespace(namespace)
        except AnabranchError:
            self.remove(session, watcher_id)
            raise
        watcher.known = {name for name in names if watcher.wants(name)}
        return watcher.known

    def remove(self, session: "Session", watcher_id: int) -> None:
        """Tell a client no more; no error if nothing was told."""
        for _, watcher in self._of(session):
            if watcher.watcher_id == watcher_id:
                self._drop(watcher)

    def _of(self, session: "Session") -> list[tuple[str, _Watcher]]:
        self._drop_lost()
        return [
            (namespace, watcher)
            for namespace, entry in self._namespaces.items()
            for watcher in entry.watchers
            if watcher.session is session
        ]

    def _drop_lost(self) -> None:
        for entry in list(self._namespaces.values()):
            for watcher in [each for each in entry.watchers if each.session.closed]:
                self._drop(watcher)

    def _drop(self, watcher: _Watcher) -> None:
        for namespace, entry in list(self._namespaces.items()):
            if watcher in entry.watchers:
                entry.watchers.remove(watcher)
            if not entry.watchers:
                entry.hearing.cancel()
                del self._namespaces[namespace]

    async def _hear(self, namespace: str, events: AsyncIterator[Event]) -> None:
        parent = f"{MANAGED_LEDGERS}/{namespace}/persistent/"
        async for event in events:
            entry = self._namespaces.get(namespace)
            is_topic = event.path.startswith(parent) and "/" not in event.path[len(parent) :]
            comes_or_goes = event.kind is not EventKind.MODIFIED and is_topic
            if entry is None or entry.telling or not (comes_or_goes or event.kind is EventKind.GAP):
                continue
            entry.telling = True
            self._tasks.spawn(f"topic news of {namespace}", self._tell(namespace, entry))

    async def _tell(self, namespace: str, entry: _Namespace) -> None:
        await asyncio.sleep(TOPIC_NEWS_DELAY_S)
        entry.telling = False
        self._drop_lost()
        try:
            names = await self._lists.of_namespace(namespace)
        except AnabranchError as error:
            _log.warning("topic_news_not_told", namespace=namespace, error=str(error))
            return
        for watcher in list(entry.watchers):
            if not watcher.session.closed:
                watcher.tell({name for name in names if watcher.wants(name)})
