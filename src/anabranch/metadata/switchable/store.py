"""The store that callers see, whichever store is in use: see `MetadataStore`."""

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from anabranch.errors import AlreadyClosed, AnabranchError, Unreachable
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import (
    Event,
    EventKind,
    MetadataStore,
    Node,
    Record,
    Revision,
    SessionEvent,
)
from anabranch.metadata.switchable.carried import Carried
from anabranch.metadata.switchable.route import Route
from anabranch.metadata.switchable.tokens import marked_revision
from anabranch.metadata.switchable.writing import GatedWrites
from anabranch.runtime import Clock

T = TypeVar("T")
S = TypeVar("S")
_Living = dict[int, "weakref.ref[Carried[T]]"]


class SwitchableStore(GatedWrites):
    """See `MetadataStore`."""

    def __init__(
        self,
        store: MetadataStore,
        side: MetadataStore,
        clock: Clock,
        kind: str,
        name: str,
        generation: int = 0,
    ) -> None:
        """See `Participation`."""
        super().__init__(store, side, clock, kind, name, generation)
        self.fencing = store.fencing
        self._watches: _Living[Event] = {}
        self._listeners: _Living[SessionEvent] = {}
        self._numbers = 0

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`."""
        return self.route.store.failure

    # --- the session --------------------------------------------------------------------------

    @property
    def session(self) -> int:
        """See `MetadataStore.session`; a switch does not change it."""
        return self.route.session

    @property
    def session_timeout_s(self) -> float:
        """See `MetadataStore.session_timeout_s`; the longest by which this process is known."""
        return self.known_for_s

    @property
    def session_valid_until(self) -> float:
        """See `MetadataStore.session_valid_until`."""
        return min(self.route.store.session_valid_until, self.known_until)

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`; a switch is no event."""
        carried = Carried[SessionEvent](
            self.route.store.session_events(),
            lambda event: event,
            lambda store: store.session_events(),
        )
        self._keep(self._listeners, carried)
        return carried

    # --- reading ------------------------------------------------------------------------------

    async def _read(self, read: Callable[[MetadataStore], Awaitable[T]]) -> tuple[Route, T]:
        while True:
            session, route = self.witness.session, self.route
            try:
                found = await read(route.store)
            except AlreadyClosed:
                if route is self.route:
                    raise
                continue  # it was left while it was asked
            if self.is_sure(session) or await self.is_in_use(route):
                return route, found

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        if self.is_plain:
            return await self.route.store.get(path)
        route, node = await self._read(lambda store: store.get(path))
        return None if node is None else route.shown_node(node)

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        return (await self._read(lambda store: store.exists(path)))[1]

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        return (await self._read(lambda store: store.children(path)))[1]

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        return self._shown_nodes(self.route.store.scan(prefix))

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """See `MetadataStore.scan_index`."""
        return self._shown_nodes(self.route.store.scan_index(index, first, last))

    def _shown_nodes(self, nodes: AsyncIterator[Node]) -> AsyncIterator[Node]:
        route = self.route
        shown = nodes if route.transparent else _each(nodes, route.shown_node)
        return self._while_in_use(route, shown)

    async def _while_in_use(self, route: Route, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """What a store tells bit by bit; who was told a part of it has to begin anew.

        Raises:
            Unreachable: if the store was left meanwhile.
        """
        try:
            async for item in items:
                yield item
        except AlreadyClosed:
            if route is self.route:
                raise
            raise Unreachable("the metadata store was replaced while it was read") from None

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`."""
        route = self.route
        records = route.store.export(prefix, access=access, values=values)
        return self._while_in_use(route, records)

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        return (await self._read(lambda store: store.record(path)))[1]

    async def sync(self) -> None:
        """See `MetadataStore.sync`."""
        await self._read(lambda store: store.sync())

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`."""
        route = self.route
        return marked_revision(await route.store.revision(), route.generation)

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`."""
        route = self.route
        return marked_revision(await route.store.moment(), route.generation)

    # --- watching -----------------------------------------------------------------------------

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`; a switch is a gap, after which all is told."""
        route = self.route
        own = None if since is None else route.own_since(since)
        carried = Carried[Event](
            route.store.watch(prefix, own), self._shown_event, lambda store: store.watch(prefix)
        )
        if since is not None and own is None:
            carried.say(self._gap(route.came_at))
        self._keep(self._watches, carried)
        return carried

    def _keep(self, living: "_Living[T]", carried: Carried[T]) -> None:
        """Remember an iterator for as long as somebody may read it."""
        self._numbers = number = self._numbers + 1
        living[number] = weakref.ref(carried, lambda _: living.pop(number, None))

    def _shown_event(self, event: Event) -> Event | None:
        return self.route.shown_event(event)

    def _gap(self, revision: Revision) -> Event:
        return Event(EventKind.GAP, ROOT, marked_revision(revision, self.route.generation))

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`."""
        route = self.route
        own = route.own_since(since)
        if own is None:
            return _one(self._gap(route.came_at))
        changes = route.store.changed_since(own, prefix)
        return changes if route.transparent else _each(changes, route.shown_event)

    # --- being moved --------------------------------------------------------------------------

    def turn_to(self, route: Route, *, loses_session: bool) -> None:
        """Go on with another store. No write may be under way.

        With `loses_session`, others have gone on without this process: nothing it held is its own.
        """
        assert self.gate.closed
        assert self.gate.under_way == 0
        self.stand_on(route)
        self.fencing = route.store.fencing
        gap = self._gap(route.came_at)
        for watch in _present(self._watches):
            watch.move(route.store, [gap])
        news = [SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED]
        for listener in _present(self._listeners):
            listener.move(route.store, news if loses_session else [])

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        await self.route.store.close()
        await self.side.close()


def _present(living: "_Living[T]") -> list[Carried[T]]:
    found = [reference() for reference in list(living.values())]
    return [carried for carried in found if carried is not None]


async def _each(items: AsyncIterator[T], shown: Callable[[T], S | None]) -> AsyncIterator[S]:
    async for item in items:
        if (seen := shown(item)) is not None:
            yield seen


async def _one(item: T) -> AsyncIterator[T]:
    yield item
