"""What a process does when a phase of replacing its store is announced.

Whatever it did before, it takes the posture that the phase asks for: each step looks first whether
it is needed. Nothing of an attempt outlives it: another attempt connects anew.
"""

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.errors import SessionExpired, Unreachable
from anabranch.metadata.announced import Announced
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.fence import be_present, fence_of, generation_of_store
from anabranch.metadata.switchable.own_nodes import Alias, make_anew, some_at_once
from anabranch.metadata.switchable.postures import (
    PREPARING,
    SOURCE,
    TARGET,
    TURNS_BACK,
    Posture,
    posture_of,
)
from anabranch.metadata.switchable.reserved import check_prepared
from anabranch.metadata.switchable.route import Left, Route
from anabranch.metadata.switchable.store import SwitchableStore

OpenStore = Callable[[str], Awaitable[MetadataStore]]


class SwitchPart:
    """One process's part."""

    def __init__(self, store: SwitchableStore, source_url: str, open_store: OpenStore) -> None:
        """`source_url` is where the store is that `store` began with."""
        self._store = store
        self._source_url = source_url
        self._open_store = open_store
        self._attempt = ""
        self._other: MetadataStore | None = None
        """A connection to the store that is not in use."""
        self._proven: MetadataStore | None = None
        """The last one of these that is known to be to the target of the attempt."""
        self._beside: MetadataStore | None = None
        """Another one to the target, that stays when it is left, for tokens from before."""
        self._generations = {store.route.name: store.route.generations}
        self._rejoined: dict[str, Alias] = {}
        self._rejoined_by: tuple[int, int] | None = None
        """The session that callers know, and that on the other store, by which they are there."""
        self._settled: Announced | None = None
        """The phase that this process has entered last, if it works on the target in it."""
        self._is_settled = asyncio.Event()

    async def settled_on_target(self) -> Announced:
        """Wait until this process works on the target; returns what it obeys."""
        while self._settled is None:
            self._is_settled.clear()
            await self._is_settled.wait()
        return self._settled

    @property
    def lag(self) -> int:
        """Writes whose outcome is not known."""
        return self._store.gate.under_way

    async def enter(self, announced: Announced) -> None:
        """Take the posture of a phase.

        Raises:
            Unreachable: if the other store does not answer, or others have gone on.
            SessionExpired: if a session ended while it did.
            ConflictError: if a node cannot be made anew on the other store, or that is not the one
                which the attempt has prepared.
            FormatError: if nobody here knows the phase.
        """
        posture, store = posture_of(announced), self._store
        turns = posture.on != store.route.name
        if posture.holds or turns:
            store.gate.close()
        if turns and self._can_turn_back(announced):
            await self._turn_back(announced, posture)
        else:
            await self._go_on(announced, posture)
        if not posture.holds:
            store.end_hold()
            store.gate.open()
            await self._settle(posture)
            await store.be_known()
        self._settled = announced if posture.on == TARGET and not posture.holds else None
        self._is_settled.set()

    async def registered(self) -> None:
        """See `Part.registered`."""
        await self._store.be_known()

    async def close(self) -> None:
        """Let go of every connection that is not the store's own."""
        await self._let_go()
        await self._let_go_of_tokens()

    # --- back to where it came from -----------------------------------------------------------

    def _can_turn_back(self, announced: Announced) -> bool:
        """Whether all is as it was on the store that was left, and this process's nodes are there.

        So it is if others have waited for it, and nobody has written to the other store.
        """
        store = self._store
        return (
            store.way_back is not None
            and announced.attempt == self._attempt
            and announced.phase in TURNS_BACK
            and not store.was_missed
            and store.keeps_session
        )

    async def _turn_back(self, announced: Announced, posture: Posture) -> None:
        """Go on where this process was. The store that it leaves is not asked: it may be gone."""
        store, route = self._store, self._store.way_back
        assert route is not None
        fence = await fence_of(route.store) if posture.fenced else None
        if not store.keeps_session:
            raise SessionExpired("a session ended while this process turned back")
        left = store.route.store
        store.announced, store.fence, store.way_back = announced, fence, None
        store.turn_to(route, loses_session=False)
        self._other = left

    # --- wherever it is -----------------------------------------------------------------------

    async def _go_on(self, announced: Announced, posture: Posture) -> None:
        store = self._store
        turns = posture.on != store.route.name
        if store.way_back is not None and (turns or not posture.rejoins):
            # Others have gone on since; what was left then is not what is there now.
            store.way_back = None
            await self._let_go()
        if self._attempt != announced.attempt:
            await self._let_go()
            self._attempt = announced.attempt
        loses_session = turns and (store.was_missed or not posture.rejoins)
        # Of a store to which nothing is owed any more nothing is asked: it may be gone.
        if not loses_session and await self._was_left_behind():
            await self._come_anew(announced)
        # Not before it is clear that this store was not left and come back to.
        store.announced = announced
        if not loses_session:
            if posture.connects:
                await self._connect(announced)
            store.fence = await fence_of(store.route.store) if posture.fenced else None
        if posture.holds or turns:
            store.gate.close()
            await store.gate.drained()
        if posture.holds:
            store.begin_hold()
        if loses_session:
            # What was made anew may be gone, and others may have made theirs.
            await self._let_go()
            await self._open_other(posture.on, announced)
        elif posture.rejoins and store.way_back is None:
            await self._rejoin(announced)
        if turns:
            await self._turn(announced, posture, loses_session=loses_session)

    def _url_of(self, name: str, announced: Announced) -> str:
        return self._source_url if name == SOURCE else announced.parameters["target"]

    async def _was_left_behind(self) -> bool:
        """Whether others have left this process's store and come back to it without it."""
        route = self._store.route
        return await generation_of_store(route.store) > route.generation

    async def _come_anew(self, announced: Announced) -> None:
        """Go on with the same store as one that has nothing there."""
        store, name = self._store, self._store.route.name
        store.gate.close()
        await store.gate.drained()
        store.way_back = None
        await self._let_go()
        await self._open_other(name, announced)
        await self._turn(announced, Posture(on=name), loses_session=True)

    async def _connect(self, announced: Announced) -> None:
        """Have a connection to the store that is not in use."""
        leaves_target = self._store.route.name == TARGET
        await self._open_other(SOURCE if leaves_target else TARGET, announced)
        if leaves_target and self._beside is None:
            self._beside = await self._open_store(self._url_of(TARGET, announced))

    async def _open_other(self, name: str, announced: Announced) -> None:
        """Have a connection to a store, which is the right one if that can be known yet."""
        if self._other is None:
            self._other = await self._open_store(self._url_of(name, announced))
        if name == TARGET and announced.phase != PREPARING and self._other is not self._proven:
            await check_prepared(self._other, announced)
            self._proven = self._other

    async def _rejoin(self, announced: Announced) -> None:
        """Have this process's ephemeral nodes on the other store, and only those."""
        assert self._other is not None
        route, other = self._store.route, self._other
        by = (self._store.session, other.session)

        async def is_still_ours(path: str) -> bool:
            node = await route.store.get(path)
            await self._check_others_wait(announced)
            return node is not None and node.stat.created_by_self

        rejoined: dict[str, Alias] = {}
        present = await self._store.own.present(route.store)
        stats = await some_at_once(
            lambda node: make_anew(node, route.store, other, is_still_ours), present
        )
        for node, stat in zip(present, stats, strict=True):
            if stat is not None:
                shown = route.shown_stat(node.stat)
                rejoined[stat.path] = Alias(shown, stat.version, stat.revision)
        for path, alias in self._rejoined.items():
            if path not in rejoined:
                await _remove(other, path, alias)
        self._rejoined, self._rejoined_by = rejoined, by

    async def _check_others_wait(self, announced: Announced) -> None:
        """Make sure that nobody can have used the other store yet.

        Others wait for this process as long as they know it, and it may not have noticed that they
        do not any more.

        Raises:
            Unreachable: if they may have gone on.
        """
        now = await self._store.read_journal()
        if now is None or now.attempt != announced.attempt or not posture_of(now).rejoins:
            raise Unreachable(f"others have gone on while this process was {announced.phase}")

    async def _turn(self, announced: Announced, posture: Posture, *, loses_session: bool) -> None:
        """Go on with the other store."""
        assert self._other is not None
        store, old, there = self._store, self._store.route, self._other
        route = await self._new_route(posture, there, loses_session=loses_session)
        fence = await fence_of(there) if posture.fenced else None
        if not loses_session:
            # After all nodes were made: so nobody had them in between.
            await self._check_others_wait(announced)
        if loses_session:
            store.own.lose()
        elif store.was_missed or self._rejoined_by != (store.session, there.session):
            raise SessionExpired("a session ended while this process turned to another store")
        store.fence = fence
        store.way_back = None if loses_session else old
        self._other = old.store
        store.turn_to(route, loses_session=loses_session)
        if loses_session:
            self._rejoined = {}
            await self._let_go()

    async def _new_route(
        self, posture: Posture, there: MetadataStore, *, loses_session: bool
    ) -> Route:
        """A store as this process comes to it."""
        old = self._store.route
        generation = await generation_of_store(there)
        generations = self._generations.get(posture.on, frozenset()) | {generation}
        self._generations[posture.on] = generations
        route = Route(posture.on, there, generation, generations, await there.revision())
        if posture.on == TARGET:
            await be_present(there, self._store.name)
        if not loses_session:
            stays = self._store.side if old.name == SOURCE else self._beside
            assert stays is not None
            route.left = Left(stays, old.generations, await stays.revision())
            route.aliases = self._rejoined
            route.same_session = (there.session, self._store.session)
        return route

    async def _settle(self, posture: Posture) -> None:
        """Writes go on: from now on the other store is not what this one is."""
        self._rejoined = {}
        self._store.way_back = None
        if not posture.connects:
            # Whoever waits for news of the store that was left hears of the other one now.
            await self._let_go()
        left = self._store.route.left
        if left is None or left.store is not self._beside:
            await self._let_go_of_tokens()

    async def _let_go(self) -> None:
        other, self._other = self._other, None
        if other is not None:
            await other.close()

    async def _let_go_of_tokens(self) -> None:
        """Tokens of the target can be looked up there no more; they are refused from now on."""
        beside, self._beside = self._beside, None
        if beside is not None:
            await beside.close()


async def _remove(store: MetadataStore, path: str, alias: Alias) -> None:
    """Undo `make_anew` for a node that is not this process's any more."""
    node = await store.get(path)
    if node is not None and node.stat.created_by_self and node.stat.version == alias.version:
        await store.delete(path, node.stat.version)
