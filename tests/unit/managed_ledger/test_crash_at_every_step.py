"""A managed ledger whose process dies before or after each single step that changes a store.

The steps of a whole life are counted first; then the life is lived once for every step and ends
there: that call and all later ones never return. A new owner then finds what was promised.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import AlreadyClosed, NotFound, Terminated
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import AppendDone, LedgerWriter
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, ManagedLedgers
from anabranch.managed_ledger.references import named_ledgers
from anabranch.runtime.network import Buffer

NAME = "t/ns/persistent/topic"
CONFIG = ManagedLedgerConfig(ledger_entries_max=3)
World = Any
Append = Callable[[ManagedLedger, bytes], "asyncio.Future[Position]"]


class Death:
    """Ends a process at a step: whatever it calls from then on does not return."""

    def __init__(self, at: int, after: bool) -> None:
        self._at = at
        self._after = after
        self.steps: list[str] = []
        self.reached = asyncio.Event()

    def begin(self, step: str) -> bool:
        """Whether a step takes effect at all."""
        if self.reached.is_set():
            return False
        self.steps.append(step)
        if len(self.steps) == self._at and not self._after:
            self.reached.set()
        return not self.reached.is_set()

    def ends(self) -> bool:
        """Whether nobody learns of the step that has just taken effect."""
        if len(self.steps) == self._at:
            self.reached.set()
        return self.reached.is_set()

    async def step(self, name: str, effect: Callable[[], Any]) -> Any:
        if self.begin(name):
            result = await effect()
            if not self.ends():
                return result
        return await asyncio.get_running_loop().create_future()


class MortalWriter:
    """The writer of a ledger in a process that may die."""

    def __init__(self, writer: LedgerWriter, death: Death) -> None:
        self._writer = writer
        self._death = death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def append(self, payload: Buffer, done: AppendDone) -> int:
        death = self._death
        if not death.begin("append"):
            return -1

        def completed(entry_id: int, error: Exception | None) -> None:
            if not silent and not death.reached.is_set():
                done(entry_id, error)

        number = self._writer.append(payload, completed)
        silent = death.ends()
        return number

    async def close(self) -> int:
        closed: int = await self._death.step("close", self._writer.close)
        return closed


class Mortal:
    """A store as a process sees it that may die."""

    def __init__(self, store: Any, death: Death, changes: tuple[str, ...]) -> None:
        self._store = store
        self._death = death
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in self._changes:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await self._death.step(
                f"{name} {args[0]}" if name in ("put", "delete") else name,
                lambda: real(*args, **kwargs),
            )
            return MortalWriter(result, self._death) if name == "create" else result

        return call


class Promises:
    """What the process that died had been told, and what it had asked for."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.stored: dict[bytes, Position] = {}
        self.asked: set[Position] = set()
        self.acked: set[Position] = set()
        self.mark = EARLIEST
        self.properties: dict[str, str] = {}
        self.cursor = False
        self.ended: Position | None = None
        self.ending = False
        self.deleting = False
        self.deleted = False


class Life:
    """Everything that one owner does with a topic."""

    def __init__(self, owner: ManagedLedgers, append: Append) -> None:
        self.owner = owner
        self.told = Promises()
        self._append = append

    async def append(self, topic: ManagedLedger, count: int) -> None:
        for _ in range(count):
            payload = b"entry %d" % len(self.told.sent)
            self.told.sent.append(payload)
            self.told.stored[payload] = await self._append(topic, payload)

    async def acknowledge(self, topic: ManagedLedger, positions: list[Position]) -> None:
        cursor = topic.cursors["s"]
        self.told.asked.update(positions)
        cursor.acknowledge(positions)
        mark = cursor.mark_delete
        await cursor.flushed()
        self.told.acked.update(positions)
        self.told.mark = mark

    async def live(self) -> None:
        told = self.told
        topic = await self.owner.open(NAME)
        await topic.open_cursor("s", initial="earliest")
        told.cursor = True
        await self.append(topic, 7)
        positions = list(told.stored.values())
        await topic.set_properties({"k": "v"})
        told.properties = {"k": "v"}
        await self.acknowledge(topic, [positions[0], positions[5]])
        await self.acknowledge(topic, [positions[2]])  # now it needs a ledger of its own
        await self.acknowledge(topic, [positions[4]])
        await self.acknowledge(topic, [positions[1], positions[3]])
        await topic.trim()
        await topic.close()
        topic = await self.owner.open(NAME)
        await self.append(topic, 4)
        told.ending = True
        told.ended = await topic.migrate()
        told.deleting = True
        await self.owner.delete(NAME)
        told.deleted = True


@pytest.fixture(autouse=True)
def small_cursor_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 20)
    monkeypatch.setattr(limits, "CURSOR_LEDGER_ENTRIES_MAX", 2)


async def live_until(world: World, append: Append, at: int, *, after: bool) -> tuple[Life, Death]:
    death = Death(at, after)
    owner = ManagedLedgers(
        metadata=Mortal(world.metadata, death, ("put", "delete")),  # type: ignore[arg-type]
        ledgers=Mortal(world.ledgers, death, ("create", "open", "delete")),  # type: ignore[arg-type]
        runtime=world.runtime,
        config=CONFIG,
    )
    life = Life(owner, append)
    living = asyncio.ensure_future(life.live())
    dying = asyncio.ensure_future(death.reached.wait())
    await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
    if living.done():
        living.result()
    living.cancel()
    dying.cancel()
    return life, death


async def check(world: World, append: Append, told: Promises) -> None:
    """What a new owner must find."""
    owner = world.broker(CONFIG)
    if told.deleted or (told.deleting and not await owner.exists(NAME)):
        assert not await owner.exists(NAME)
        return
    topic = await owner.open(NAME)
    found: list[tuple[bytes, Position]] = []
    start = EARLIEST
    while entries := await topic.read(start, 2, 1 << 20):
        for entry in entries:
            position = Position(entry.ledger_id, entry.entry_id)
            found.append((bytes(entry.payload), position))
            start = Position(entry.ledger_id, entry.entry_id + 1)
    payloads = [payload for payload, _ in found]
    assert payloads == [p for p in told.sent if p in payloads], "in order, once, none made up"
    first = topic.first_position()
    for payload, position in told.stored.items():
        if position >= first:
            assert (payload, position) in found, f"{payload!r} is lost"
        else:
            assert position in told.asked, f"{payload!r} was trimmed unread"
    assert told.properties.items() <= topic.properties.items()
    if told.ended is not None:
        assert topic.terminated == told.ended
    if topic.terminated is None:
        last = found[-1][1] if found else EARLIEST
        assert await append(topic, b"more") > max(last, *told.stored.values(), EARLIEST)
    else:
        assert told.ending
        assert topic.is_migrated, "ended and marked in one step"
        with pytest.raises(Terminated):
            await append(topic, b"more")
    check_cursor(topic, told, [position for _, position in found])
    stored = set(world.ledgers.ledgers)
    assert await named_ledgers(world.metadata) - {-1} <= stored, "a named ledger is missing"
    await owner.delete(NAME)
    assert not await owner.exists(NAME)
    with pytest.raises(NotFound):
        await owner.open(NAME, create=False)
    await owner.close()


def check_cursor(topic: ManagedLedger, told: Promises, found: list[Position]) -> None:
    cursor = topic.cursors.get("s")
    if told.deleting:
        return
    assert cursor is not None or not told.cursor, "a cursor is lost"
    if cursor is None:
        return
    assert cursor.mark_delete >= told.mark, "the mark went back"
    assert all(cursor.is_acknowledged(p) for p in told.acked), "an acknowledgement is lost"
    assert all(p in told.asked for p in found if cursor.is_acknowledged(p))


def forget(world: World) -> None:
    """An empty pair of stores for the next life; ids go on."""
    world.ledgers.ledgers.clear()


async def steps_of_a_life(world: World, append: Append) -> list[str]:
    life, death = await live_until(world, append, -1, after=False)
    assert life.told.deleted
    return death.steps


@pytest.mark.goal(
    "core.L6", part="crash at every step", broken_by="trimmed_ledgers_go_before_they_are_unlinked"
)
@pytest.mark.goal("core.L6", part="crash at every step", broken_by="ended_first_and_marked_later")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_death_at_every_step(world: World, append: Append, after: bool) -> None:
    steps = await steps_of_a_life(world, append)
    path = f"/managed-ledgers/{NAME}"
    for needed in ("create", "append", "close", "open", f"put {path}", f"put {path}/s"):
        assert needed in steps, steps
    assert f"delete {path}" in steps
    assert steps.count("create") >= 6, "ledgers of the log and of its cursor"
    for at in range(1, len(steps) + 1):
        life, death = await live_until(world, append, at, after=after)
        assert death.reached.is_set(), f"step {at} was not reached"
        try:
            await check(world, append, life.told)
        except (AssertionError, AlreadyClosed) as error:
            error.add_note(f"died {'after' if after else 'before'} {death.steps[-1]} ({at})")
            raise
        forget(world)
