"""Three brokers that replace a model of their store while they write to it, and what must hold.

The engine is the real one: table, journal, drivers, participants. What it drives is small: numbers
that each broker counts up in nodes of its own, copied from one simulated store to another. An
acknowledged number is never lost, two drivers never act at a time, the journal never goes back,
what failed its check is never switched to, and in the end nobody waits.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, cast

from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConflictError,
    Fenced,
    OutcomeUnknown,
    Unreachable,
)
from anabranch.metadata import announced as announcements
from anabranch.metadata.announced import Announced, Report, journal_path, read_announced
from anabranch.metadata.paths import join
from anabranch.metadata.store import ABSENT, Guard, MetadataStore, Node, Operation, Put, Stat
from anabranch.migrations.engine.document import read_journal
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.steps import Plan, Progress, Turn
from anabranch.migrations.engine.table import Table
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime import Entropy
from anabranch.testing.simulation.metadata_service import MetadataService
from anabranch.testing.simulation.process import ProcessFailed
from anabranch.testing.simulation.world import World

KIND: Final = "model"
BROKERS: Final = ("ash", "birch", "cedar")
NODES: Final = 3
"""That each broker writes to."""
FENCE: Final = "/fence"
TRANSITIONS: Final = [f"{arrow.old}: {arrow.why}" for arrow in TABLE.transitions()]
_ON_TARGET: Final = (
    "switching",
    "leading",
    "switched",
    "finalizing",
    "finalized",
    "reverifying",
    "refreezing",
    "returning",
    "refencing",
)


def is_on_target(phase: str) -> bool:
    """Whether participants work with the target in a phase."""
    return phase in _ON_TARGET


class Story:
    """What happened, and what must never happen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("engine story")
        self.troubles = True
        """Whether steps still fail now and then."""
        self.over = False
        self.acknowledged: dict[str, int] = {}
        self.attempted: dict[str, int] = {}
        self.spoiled: set[str] = set()
        """Attempts whose copy was spoiled on purpose."""
        self.taken: dict[tuple[str, str], None] = {}
        self._epoch_acted = 0
        self._head: Announced | None = None

    def fail(self, name: str, error: BaseException) -> None:
        """A background task failed: that is never part of the story."""
        self.world.fail(ProcessFailed(f"{name}: {error!r}"), error)

    def acts(self, announced: Announced) -> None:
        """A driver does something that others see."""
        assert announced.epoch >= self._epoch_acted, (
            f"epoch {announced.epoch} acts after epoch {self._epoch_acted}"
        )
        self._epoch_acted = announced.epoch

    def journal_written(self, value: bytes) -> None:
        """The journal was changed: it goes forward, by the table, one line for each step."""
        state = read_journal(value, TABLE).state
        head, before = state.announced, self._head
        self._head = head
        if before is not None and before.number == head.number:
            assert (head.epoch, head.serial) >= (before.epoch, before.serial), (
                f"the journal went back from {before} to {head}"
            )
            if head.serial != before.serial:
                self._took(before, head, state.trail[-1].what)
        if head.phase == "switched":
            assert head.attempt not in self.spoiled, "switched to what failed its check"

    def _took(self, before: Announced, head: Announced, what: str) -> None:
        assert head.serial == before.serial + 1, f"{before} jumped to {head}"
        why = "failure" if what == "take over" else what
        self.world.reach(f"by {what}")
        self.taken["phases", f"{before.phase}: {why}"] = None
        self._check_arrow(before.phase, why, head.phase)

    def _check_arrow(self, old: str, why: str, new: str) -> None:
        assert getattr(TABLE[old], why) == new, f"{old} led to {new} by {why}"


class WatchedService(MetadataService):
    """The source: it shows every write of the journal to the story."""

    story: Story

    def write(self, session: int, operation: Operation) -> Stat | AnabranchError | None:
        """See `MetadataService.write`."""
        outcome = super().write(session, operation)
        if isinstance(outcome, Stat) and operation.path == journal_path(KIND):
            assert isinstance(operation, Put)
            self.story.journal_written(operation.value)
        return outcome


class Stores:
    """The two stores as one process reaches them."""

    def __init__(self, source: MetadataStore, target: MetadataStore) -> None:
        self.source = source
        self.target = target

    def of(self, phase: str) -> MetadataStore:
        """The store that is in use in a phase."""
        return self.target if is_on_target(phase) else self.source


class ModelPart:
    """A broker's gate. See `Part`."""

    def __init__(self, story: Story, stores: Stores) -> None:
        self.lag = 0
        self._story = story
        self._stores = stores
        self._phase = ""
        self._fence: Guard | None = None
        self._under_way = 0
        self._holds = True
        """A process that was told nothing yet writes nothing."""
        self._changed = asyncio.Event()

    async def registered(self) -> None:
        """See `Part.registered`."""

    async def enter(self, announced: Announced) -> None:
        """See `Part.enter`."""
        if TABLE[announced.phase].holds_writes:
            self._holds = True
            while self._under_way:
                await self._change()
        fence = await self._read_fence(announced.phase)
        self._phase, self._fence = announced.phase, fence
        self._holds = TABLE[announced.phase].holds_writes
        self._wake()

    def begin(self) -> None:
        """No operation was ever announced: go on as always."""
        self._holds = False

    async def _read_fence(self, phase: str) -> Guard | None:
        node = await self._stores.of(phase).get(FENCE)
        return None if node is None else Guard(FENCE, node.stat.version)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()

    async def write(self, path: str, number: int) -> None:
        """Write a number in the store in use; to return is to have it acknowledged."""
        self._under_way += 1
        while self._holds:
            self._under_way -= 1
            self._wake()
            await self._change()
            self._under_way += 1
        try:
            store = self._stores.of(self._phase)
            node = await store.get(path)
            if node is not None and int(node.value) >= number:
                raise AssertionError(f"{path} is {node.value!r} before {number} was written")
            expected = ABSENT if node is None else node.stat.version
            await store.put(path, str(number).encode(), expected, guard=self._fence)
        except Fenced:
            await self._fenced()
            raise
        finally:
            self._under_way -= 1
            self._wake()

    async def _fenced(self) -> None:
        """Look whether this process may go on under a newer fence."""
        phase = self._phase
        fence = await self._read_fence(phase)
        node = await self._stores.source.get(journal_path(KIND))
        now = "" if node is None else read_announced(node.value).phase
        held = bool(now) and TABLE[now].holds_writes
        if phase == self._phase and not held and is_on_target(now) == is_on_target(phase):
            self._fence = fence


class ModelSteps:
    """Copies every node from one store to the other. See `Steps`."""

    kind = KIND
    table: Table = TABLE

    def __init__(self, story: Story, stores: Stores, entropy: Entropy) -> None:
        self._story = story
        self._stores = stores
        self._entropy = entropy

    async def plan(self, parameters: Mapping[str, str]) -> Plan:
        """See `Steps.plan`."""
        return Plan(parameters)

    async def led(self, state: State) -> list[Report]:
        """See `Steps.led`."""
        del state
        return []

    async def run(self, phase: str, turn: Turn) -> None:
        """See `Steps.run`."""
        source, target = self._stores.source, self._stores.target
        await self._dawdle(phase)
        match phase:
            case "copying" | "tailing":
                await self._copy(source, target, turn)
            case "freezing":
                await self._raise_fence(source, turn, turn.guard())
                await self._copy(source, target, turn)
                await self._spoil(turn)
            case "rejoining":
                await self._compare()
            case "switched":
                while True:
                    await self._copy(target, source, turn)
                    await asyncio.sleep(self._entropy.uniform(0.05, 0.5))
            case "reverifying":
                await self._copy(target, source, turn)
            case "refreezing":
                await self._raise_fence(target, turn, None)
                await self._copy(target, source, turn)
            case "returning":
                await self._compare()
            case _:
                turn.check()

    async def _dawdle(self, phase: str) -> None:
        """Take some time, and sometimes fail, for good or for a while."""
        await asyncio.sleep(self._entropy.uniform(0.0, 0.3))
        if not self._story.troubles:
            return
        draw = self._entropy.below(40)
        if draw == 0:
            self._story.world.reach("step failed")
            raise ConflictError(f"{phase} meets something that will not pass")
        if draw < 4:
            self._story.world.reach("step tried again")
            raise Unreachable(f"{phase} meets something that will pass")

    async def _raise_fence(self, store: MetadataStore, turn: Turn, guard: Guard | None) -> None:
        turn.check()
        self._story.acts(turn.announced)
        await store.put(FENCE, str(turn.announced.epoch).encode(), guard=guard)

    async def _nodes(self, store: MetadataStore, path: str = "/") -> list[Node]:
        """Everything at or below a path that a copy has."""
        found = []
        for name in await store.children(path):
            child = join(path, name)
            if child == FENCE or announcements.stays_behind(child):
                continue
            node = await store.get(child)
            if node is not None and node.value:
                found.append(node)
            found += await self._nodes(store, child)
        return found

    async def _copy(self, here: MetadataStore, there: MetadataStore, turn: Turn) -> None:
        nodes = await self._nodes(here)
        for count, node in enumerate(nodes):
            turn.progress(Progress(done=count, total=len(nodes)))
            path = node.stat.path
            copied = await there.get(path)
            if copied is not None and copied.value == node.value:
                continue
            turn.check()
            self._story.acts(turn.announced)
            try:
                expected = ABSENT if copied is None else copied.stat.version
                await there.put(path, node.value, expected)
            except BadVersion as error:
                raise Unreachable(f"{path} was copied by somebody else: {error}") from error
        if self._entropy.below(3) == 0:
            await turn.keep({"copied": len(nodes)})

    async def _spoil(self, turn: Turn) -> None:
        """Now and then a copy is not what was copied."""
        if not self._story.troubles or self._entropy.below(3):
            return
        path = f"/data/{BROKERS[0]}/0"
        node = await self._stores.target.get(path)
        if node is not None:
            turn.check()
            self._story.spoiled.add(turn.announced.attempt)
            self._story.world.reach("copy spoiled")
            await self._stores.target.put(path, b"0", node.stat.version)

    async def _compare(self) -> None:
        source, target = self._stores.source, self._stores.target
        here = {node.stat.path: node.value for node in await self._nodes(source)}
        there = {node.stat.path: node.value for node in await self._nodes(target)}
        for path in sorted({*here, *there}):
            if here.get(path) != there.get(path):
                raise ConflictError(f"the copy differs at {path}")


class Writer:
    """Counts the numbers of one broker up, through its gate, in this life and earlier ones."""

    def __init__(self, story: Story, part: ModelPart, name: str, entropy: Entropy) -> None:
        self._story = story
        self._part = part
        self._name = name
        self._entropy = entropy

    async def run(self) -> None:
        """Write until the story is over, and then once more: nobody waits in the end."""
        written_at_last = False
        while not written_at_last:
            over = self._story.over
            written = await self._write_one()
            written_at_last = over and written
            await asyncio.sleep(self._entropy.uniform(0.0, 0.04))

    async def _write_one(self) -> bool:
        story = self._story
        path = f"/data/{self._name}/{self._entropy.below(NODES)}"
        number = story.attempted[path] = story.attempted.get(path, 0) + 1
        story.world.reach("operations", 2)
        try:
            await self._part.write(path, number)
        except Fenced:
            story.world.reach("write fenced")
            return False
        except (OutcomeUnknown, Unreachable, ConflictError):
            await asyncio.sleep(0.05)
            return False
        story.acknowledged[path] = number
        return True


def check_end(story: Story, source: MetadataService, target: MetadataService) -> None:
    """Nothing acknowledged was lost, and nothing of the engine's own was copied."""
    node = source.read(0, journal_path(KIND))
    assert node is not None
    phase = read_announced(node.value).phase
    assert TABLE[phase].ends, f"the last attempt is still {phase}"
    used = target if is_on_target(phase) else source
    for path, number in story.acknowledged.items():
        found = used.read(0, path)
        value = 0 if found is None else int(found.value)
        assert number <= value <= story.attempted[path], (
            f"{path} is {value}: {number} was acknowledged"
        )
    own = target.machine.tree.children("/anabranch")
    assert not own, f"the target has documents of the source's operations: {own}"


def as_store(store: object) -> MetadataStore:
    """A simulated handle as what it stands for; it has all of the contract that is used here."""
    return cast("MetadataStore", store)
