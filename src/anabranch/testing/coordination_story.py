"""Four processes that share locks, a leader, counters and a document, and what they never do.

At no moment may two of them think that they hold one lock or lead. What they write under a lock
carries its token, and tokens rise in the order in which the store took the writes. Counters never
repeat, and a process never reads a document older than what it wrote itself. Who resigns leaves
the place to others, and nobody goes before having led: whoever stands is elected one day. After the
faults all of them finish their work. Where they meet is a parameter.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from anabranch.errors import Fenced, LockBusy, OutcomeUnknown, SessionExpired, Unreachable
from anabranch.metadata import election, election_machine
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.counters import BlockCounter, SequentialCounter
from anabranch.metadata.election import Election
from anabranch.metadata.election_machine import TURNS, Happened, Standing, Turn
from anabranch.metadata.lock_machine import NEXT, LockMachine, LockState
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.store import Fencing, Guard, MetadataStore, Revision
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.simulation.loop import OWNER
from anabranch.testing.simulation.metadata_service import DriftingClock
from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.process import ProcessFailed
from anabranch.testing.simulation.scenario import Taken
from anabranch.testing.simulation.world import World

PARTICIPANTS: Final = ("ash", "birch", "cedar", "doum")
RESOURCES: Final = ("mill", "weir")
LEADER: Final = "/locks/leader"
TALLY: Final = "/tally/count"
ROUNDS: Final = 20
IDS_PER_ROUND: Final = 10
READS_PER_ROUND: Final = 10
FAULTS: Final = 12
LOOK_S: Final = 5.0
DRIFT: Final = 0.02
"""How much faster or slower a participant's clock may run; the store's has another hundredth."""
NOT_NOW: Final = (OutcomeUnknown, Unreachable, SessionExpired)
"""What a participant may be told at any time; it tries again."""
LOCKS_TABLE, ELECTION_TABLE = "locks", "election"
TABLES: Final = {
    LOCKS_TABLE: [
        f"{old.value} to {new.value}" for old in NEXT for new in LockState if new in NEXT[old]
    ],
    ELECTION_TABLE: [f"{old.value}: {happened.value}" for old in TURNS for happened in TURNS[old]],
}


class Backend(Protocol):
    """Where the participants meet."""

    timeout_s: float
    fencing: Fencing

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """Open the store for one life of one participant."""
        ...

    async def effects(self, path: str) -> list[bytes]:
        """The values of the sequential nodes below a path, in their order."""
        ...


class Story:
    """What the participants did, and what they must never do."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rounds = dict.fromkeys(PARTICIPANTS, 0)
        self.numbers: dict[str, dict[int, str]] = {}
        """Who got each number of each counter."""
        self.counted = 0
        self.perhaps_counted = 0
        self.effects = 0
        """How many writes under a lock were begun; each carries its number."""
        self.acknowledged: set[int] = set()
        """Those that were answered."""
        self._claims: dict[str, dict[str, tuple[object, Callable[[], bool]]]] = {}

    def operation(self) -> None:
        """Count one thing a client did."""
        self.world.reach("operations")

    def claim(self, path: str, name: str, held: Callable[[], bool]) -> None:
        """A participant may from now on act as the holder of a path, while `held()` is true."""
        self._claims.setdefault(path, {})[name] = (OWNER.get(), held)

    def check(self, path: str) -> None:
        """At most one of those who live, stopped or not, believes to hold a path."""
        holders = [
            name
            for name, (life, held) in self._claims.get(path, {}).items()
            if self.world.process(name).incarnation is life and held()
        ]
        assert len(holders) <= 1, f"{path} is held by {' and '.join(holders)}"

    def number(self, counter: str, name: str, number: int) -> None:
        """A participant got a number."""
        owners = self.numbers.setdefault(counter, {})
        assert number not in owners, f"{counter} gave {number} to {owners[number]} and {name}"
        owners[number] = name

    def fail(self, name: str, error: BaseException) -> None:
        """A background task of a participant failed: that is never part of the story."""
        self.world.fail(ProcessFailed(f"{name}: {error!r}"), error)


class Participant:
    """One life of one process."""

    def __init__(self, story: Story, store: MetadataStore, runtime: Runtime, name: str) -> None:
        self.story = story
        self.store = store
        self.name = name
        self.value = name.encode()
        self.entropy = runtime.entropy
        self.tasks = Tasks(story.fail)
        self.locks = Locks(store, runtime.clock, self.tasks, prefix="/locks")
        self.tally: MetadataCache[int] = MetadataCache(
            store, runtime, decode=int, encode=lambda n: str(n).encode(), prefix="/tally"
        )
        self.election = Election(self.locks, LEADER, self.value, self.tasks)
        self.tickets = SequentialCounter(store, "/tickets")
        self.ids = BlockCounter(
            store, runtime, "/ids", document_format="ids", block=1 + self.entropy.below(30)
        )
        self.stands_anew = asyncio.Event()
        self.last: dict[str, int] = {}
        self.tally_seen = 0

    async def run(self) -> None:
        """Work until all rounds of this participant are done, in this life and earlier ones."""
        self.locks.start()
        self.tally.start(self.tasks)
        self.story.claim(LEADER, self.name, lambda: self.election.leading)
        self.election.listen(self._stands)
        self.election.stand()
        rounds = self.story.rounds
        while rounds[self.name] < ROUNDS:
            try:
                await self._round()
                rounds[self.name] += 1
            except NOT_NOW:
                await asyncio.sleep(self.entropy.uniform(0.0, 0.2))
        if self.entropy.below(3) == 0:
            await self._resign()
            self.election.stand()
        await self._until_leading()
        await self._resign()
        await self.locks.close()
        await self.tasks.close()

    async def _until_leading(self) -> None:
        while not self.election.leading:
            self.stands_anew.clear()
            # A lease that was in doubt when this one was told that it leads can run on untold.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.stands_anew.wait()

    async def _resign(self) -> None:
        """Lead no more; somebody else may, also while this process lives on."""
        session, led = self.store.session, self.election.leading
        try:
            await self.election.resign()
            node = await self.store.get(LEADER)
        except NOT_NOW:
            self.story.world.reach("resignation in doubt")
            return
        if led and self.store.session == session and self.locks.lease.runs(session):
            assert node is None or not node.stat.created_by_self, f"{self.name} did not resign"

    def _stands(self, standing: Standing) -> None:
        self.stands_anew.set()
        self.story.world.reach(standing.value)
        self.story.check(LEADER)

    async def _round(self) -> None:
        resource = RESOURCES[self.entropy.below(len(RESOURCES))]
        path = f"/locks/{resource}"
        await self._count()
        if self.entropy.below(4) == 0:
            lock = await self._take_if_free(path)
        else:
            lock = await self.locks.acquire_when_free(path, self.value)
        self.story.operation()
        if lock is not None:
            self.story.claim(path, self.name, lambda: lock.held)
            self.story.check(path)
            lock.expired.add_done_callback(lambda _: self._lost(lock))
            await self._use(lock, resource)
        if self.election.leading:
            await self._lead()

    def _lost(self, lock: Lock) -> None:
        """Nobody takes a lock away from a holder that may still act."""
        reason = lock.expired.result()
        self.story.world.reach(f"lost: {reason}")
        assert not self.locks.lease.runs(lock.session), f"{lock.path} of {self.name}: {reason}"

    async def _lead(self) -> None:
        try:
            await self._effect("/decrees", self.election.token, self.election.guard)
        except Fenced:
            self.story.world.reach("fenced")
        if self.entropy.below(30) == 0:
            await self._resign()
            self.election.stand()

    async def _take_if_free(self, path: str) -> Lock | None:
        try:
            return await self.locks.acquire(path, self.value)
        except LockBusy:
            self.story.world.reach("busy")
            return None

    async def _use(self, lock: Lock, resource: str) -> None:
        try:
            for _ in range(1 + self.entropy.below(5)):
                self.story.check(lock.path)
                try:
                    await self._effect(f"/effects/{resource}", lock.token, lock.guard)
                except NOT_NOW:
                    await asyncio.sleep(self.entropy.uniform(0.0, 0.3))
                if self.entropy.below(8) == 0:
                    await asyncio.sleep(self.entropy.uniform(0.0, self.store.session_timeout_s))
            if self.entropy.below(10) == 0 and lock.held:
                await lock.update_value(self.value)
                self.story.world.reach("value updated")
        except Fenced:
            self.story.world.reach("fenced")
        finally:
            await lock.release()
            self.story.operation()

    async def _effect(self, folder: str, token: Revision, guard: Callable[[], Guard]) -> None:
        self.story.effects += 1
        number = self.story.effects
        value = f"{token.epoch} {token.index} {self.name} {number}".encode()
        self.story.operation()
        await self.store.put(f"{folder}/e", value, sequential=True, guard=guard())
        self.story.acknowledged.add(number)

    async def _count(self) -> None:
        """Use what needs no lock."""
        self._got("tickets", await self.tickets.next())
        for _ in range(IDS_PER_ROUND):
            self._got("ids", await self.ids.next())
        self.story.perhaps_counted += 1
        count = await self.tally.read_modify_update_or_create(TALLY, lambda n: (n or 0) + 1)
        self.story.operation()
        self.story.counted += 1
        self._saw(count)
        await self._read_tally()

    def _got(self, counter: str, number: int) -> None:
        self.story.operation()
        self.story.number(counter, self.name, number)
        assert number > self.last.get(counter, -1), f"{counter} fell back to {number}"
        self.last[counter] = number

    async def _read_tally(self) -> None:
        for _ in range(READS_PER_ROUND):
            self.story.operation()
            self._saw(await self.tally.get(TALLY) or 0)

    def _saw(self, count: int) -> None:
        assert count >= self.tally_seen, f"saw {count} after {self.tally_seen}"
        self.tally_seen = count


async def play(world: World, backend: Backend, nemesis: Nemesis, story: Story) -> Taken:
    """Start the participants, hurt them, wait until they are done, and judge what they did."""
    taken: dict[tuple[str, str], None] = {}
    with transitions(taken):
        await work(world, backend, nemesis, story)
    # A store that trusts leases may take a write late; its writer is not told that it did.
    counted = None if backend.fencing is Fencing.SERVER else story.acknowledged
    for resource in RESOURCES:
        check_tokens(resource, await backend.effects(f"/effects/{resource}"), counted)
    check_tokens("decrees", await backend.effects("/decrees"), counted)
    check_tally(story, int((await backend.effects("/tally"))[0]))
    return taken


async def work(world: World, backend: Backend, nemesis: Nemesis, story: Story) -> None:
    """Let the participants work through the faults until they are done."""
    rng = world.rng("drift")
    rates = {name: rng.uniform(1 - DRIFT, 1 + DRIFT) for name in PARTICIPANTS}

    async def participate(runtime: Runtime, name: str) -> None:
        runtime = replace(runtime, clock=DriftingClock(runtime.clock, rates[name]))
        store = await backend.open(runtime, name)
        await Participant(story, store, runtime, name).run()

    processes = [world.process(name) for name in PARTICIPANTS]
    for process in processes:
        process.start(lambda runtime, name=process.name: participate(runtime, name))  # type: ignore[misc]
    await nemesis.run(FAULTS)
    for process in processes:
        await process.wait_exit()


def check_tokens(what: str, effects: list[bytes], counted: set[int] | None = None) -> None:
    """Tokens rise from holder to holder, in the order in which the store took the writes.

    Of all writes, or of those with the numbers that are `counted`.
    """
    newest, writer = Revision(0, 0), ""
    for effect in effects:
        epoch, index, name, number = effect.decode().split()
        if counted is not None and int(number) not in counted:
            continue
        token = Revision(int(epoch), int(index))
        assert token >= newest, f"{what}: {name} wrote with {token} after {writer} with {newest}"
        assert token > newest or name == writer, f"{what}: {name} and {writer} share {token}"
        newest, writer = token, name


def check_tally(story: Story, tally: int) -> None:
    """Every answered increment counts, once."""
    assert story.counted <= tally <= story.perhaps_counted, (
        f"{tally} for {story.counted} answered of {story.perhaps_counted} increments"
    )


@contextmanager
def transitions(taken: dict[tuple[str, str], None]) -> Iterator[None]:
    """Note every transition that locks and candidates take."""
    go, turn = LockMachine._go, election_machine.turn

    def noted_go(self: LockMachine, state: LockState) -> None:
        taken[LOCKS_TABLE, f"{self.state.value} to {state.value}"] = None
        go(self, state)

    def noted_turn(standing: Standing, happened: Happened) -> Turn:
        taken[ELECTION_TABLE, f"{standing.value}: {happened.value}"] = None
        return turn(standing, happened)

    places: list[tuple[Any, str, Any, Any]] = [
        (LockMachine, "_go", noted_go, go),
        (election, "turn", noted_turn, turn),
    ]
    for place, name, noted, _ in places:
        setattr(place, name, noted)
    try:
        yield
    finally:
        for place, name, _, plain in places:
            setattr(place, name, plain)
