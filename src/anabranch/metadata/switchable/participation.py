"""What a process knows as one that takes part in the replacement of its store."""

import asyncio
import math

from anabranch.errors import AnabranchError, OutcomeUnknown, Unreachable
from anabranch.metadata.announced import (
    Announced,
    journal_path,
    participants_path,
    read_announced,
)
from anabranch.metadata.lease import Lease
from anabranch.metadata.store import Guard, MetadataStore
from anabranch.metadata.switchable.fence import be_present
from anabranch.metadata.switchable.gate import Gate
from anabranch.metadata.switchable.limits import GATE_WAIT_S_MAX, TURN_LOOK_S
from anabranch.metadata.switchable.own_nodes import OwnNodes
from anabranch.metadata.switchable.postures import (
    LEFT_FOR_GOOD,
    SOURCE,
    TARGET,
    counts_still,
    posture_of,
)
from anabranch.metadata.switchable.route import Route
from anabranch.runtime import Clock


class Participation:
    """Which store is in use, what is announced, and whether this process can be sure of both."""

    def __init__(
        self,
        store: MetadataStore,
        side: MetadataStore,
        clock: Clock,
        kind: str,
        name: str,
        generation: int = 0,
    ) -> None:
        """Begin with a store.

        Args:
            store: for what callers do.
            side: another handle on it, that stays: this process takes part in a migration by it.
            clock: the process's.
            kind: of the operation that replaces this store.
            name: under which this process is registered as a participant, by `side`.
            generation: how many stores came before this one.
        """
        self.side = side
        self.route: Route
        self.gate = Gate()
        self.own = OwnNodes()
        self.announced: Announced | None = None
        """What this process obeys."""
        self.fence: Guard | None = None
        """What writes without a guard of their own carry, so that the store can refuse them."""
        self.name = name
        self._journal = journal_path(kind)
        self._registration = f"{participants_path(kind)}/{name}"
        self._clock = clock
        self.witness: MetadataStore
        """By whose session others know whether this process can still write."""
        self._held_by: int | None = None
        """The session of `side` in which this process said that its writes wait, while they do."""
        self.way_back: Route | None = None
        """How it stood on the store that it has left, while others may still be on that one."""
        self.stand_on(Route(SOURCE, store, generation, frozenset({generation})))

    def stand_on(self, route: Route) -> None:
        """Go on with another store."""
        self.route = route
        self.witness = self.side if route.name == SOURCE else route.store
        self._lease = Lease(self.witness, self._clock)
        self._leased = not math.isinf(self.witness.session_timeout_s)
        self._known_session: int | None = None

    def is_sure(self, session: int) -> bool:
        """Whether nobody can have gone on without this process since it had that session.

        That is so while others know it by a node of that session, and the session cannot be over.
        """
        return not self._leased or (session == self._known_session and self._lease.runs(session))

    def begin_hold(self) -> None:
        """Writes wait from now on, and others are told so: they go on once they do not hear of it.

        Until then they waited for a process on the target by its session there alone.
        """
        if self._held_by is None:
            self._held_by = self.side.session

    def end_hold(self) -> None:
        """Writes go on."""
        if self._held_by is not None and self.route.name == SOURCE and not self.was_missed:
            self._known_session = self._held_by  # others have waited for it all the time
        self._held_by = None

    @property
    def _is_forgotten(self) -> bool:
        """Whether others knew this process by a session that is over, and maybe do no more.

        A new session of `side` says nothing: they know it again once it is registered by that one.
        """
        return (
            self._leased
            and self.route.name == SOURCE
            and self._known_session is not None
            and self._known_session != self.side.session
        )

    async def be_known(self) -> None:
        """Take note by which session others know this process, without waiting for a write."""
        if self._leased and self.route.name == SOURCE and self._known_session != self.side.session:
            await self._reassure()

    @property
    def was_missed(self) -> bool:
        """Whether others may have gone on without this process while writes wait."""
        return self._held_by is not None and self._held_by != self.side.session

    @property
    def keeps_session(self) -> bool:
        """Whether whatever this process has on the store in use, it has on the way back, too."""
        return self.way_back is None or self.way_back.session == self.route.session

    @property
    def known_until(self) -> float:
        """Before this nobody can have gone on without this process."""
        until_s = self.witness.session_valid_until
        if self._held_by is None:
            return -math.inf if self._is_forgotten else until_s
        if self.was_missed or not self.keeps_session:
            return -math.inf
        return min(until_s, *(other.session_valid_until for other in self._held_with()))

    @property
    def known_for_s(self) -> float:
        """How long the longest session lasts that limits `known_until`, as clocks drift in it."""
        own_s = self.route.store.session_timeout_s
        if self._held_by is None:
            return own_s
        all_s = (own_s, *(other.session_timeout_s for other in self._held_with()))
        return max((each for each in all_s if not math.isinf(each)), default=own_s)

    def _held_with(self) -> list[MetadataStore]:
        """By what sessions others know, beside that of the store in use, while writes wait."""
        return [self.side] if self.way_back is None else [self.side, self.way_back.store]

    @property
    def is_plain(self) -> bool:
        """Whether calls can go to the store as they are: no attempt runs, nothing can run out."""
        return not self._leased and self.fence is None and self.route.transparent

    async def _reassure(self) -> Announced | None:
        """Read the journal, and take note if others know this process by its present session."""
        session = self.witness.session
        if self.route.name == SOURCE:
            node = await self.side.get(self._registration)
            known = node is not None and node.stat.created_by_self
        else:
            await be_present(self.route.store, self.name)
            known = True
        # Whoever lets others wait announces it first, and then looks who is known.
        announced = await self.read_journal()
        stays = counts_still(self.announced, announced, self.route.name)
        if known and stays and session == self.witness.session:
            self._known_session = session
        return announced

    async def is_in_use(self, route: Route) -> bool:
        """Whether a store is what others use, though they may not know of this process."""
        now = posture_of(await self._reassure())
        waited_s = 0.0
        while now.on != self.route.name:
            if waited_s >= GATE_WAIT_S_MAX:
                raise Unreachable("the metadata store was replaced and this process still follows")
            await asyncio.sleep(TURN_LOOK_S)
            waited_s += TURN_LOOK_S
        return self.route is route

    async def read_journal(self) -> Announced | None:
        """What the migration asks for now; None if there never was one.

        After its end nothing more is asked for, and the store that was left may be gone.
        """
        obeyed = self.announced
        if obeyed is not None and obeyed.phase == LEFT_FOR_GOOD and self.route.name == TARGET:
            return obeyed
        await self.side.sync()
        node = await self.side.get(self._journal)
        return None if node is None else read_announced(node.value)

    async def vouch(self, before: Announced | None, route: Route) -> None:
        """Make sure that what was written is in every copy of the store that others may use.

        Raises:
            OutcomeUnknown: if that is not certain.
        """
        try:
            counts = counts_still(before, await self._reassure(), route.name)
        except AnabranchError as error:
            raise OutcomeUnknown(
                f"this process was not heard of, and cannot find out whether the store it wrote to "
                f"is still in use: {error}"
            ) from error
        if not counts:
            raise OutcomeUnknown(
                "the store was replaced while this process was not heard of: what it wrote may be "
                "lost"
            )
