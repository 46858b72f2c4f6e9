"""What must not harm a cluster whose metadata store is replaced: repeats, spoiled copies, ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from anabranch.errors import AlreadyClosed, ConfigError, ConflictError, FormatError, Unreachable
from anabranch.metadata.announced import Report, journal_path, participants_path
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.seal import SEAL_PATH, check_not_sealed
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.resting import Rests
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.reservation import RESERVED_PATH
from anabranch.migrations.freeze_copy.tail import OnNodes, Tail
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.testing.replaced_stores import Member, Shelf

LONG_S = 60.0


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}") from error


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110 - many things may make it true
            await asyncio.sleep(0.005)


class Bench:
    """One process, its stores, and what can be asked of it."""

    def __init__(self, shelf: Shelf, member: Member) -> None:
        self.shelf = shelf
        self.member = member
        replaceable = member.replaceable
        self.operation = Operation(replaceable.steps, replaceable.journal, real_runtime().entropy)

    async def switch(self) -> None:
        await self.operation.start({"target": "memory:target"}, "somebody")
        await self.member.until("switched", wait_s=LONG_S)
        await until(lambda: self.member.store.route.name == "target")

    async def finalize(self) -> None:
        await self.member.ask(Verb.FINALIZE)
        await self.member.until("finalized", wait_s=LONG_S)
        await until(lambda: self.phase == "finalized")

    @property
    def phase(self) -> str:
        """What the process obeys."""
        told = self.member.store.announced
        return "" if told is None else told.phase

    @property
    def trouble(self) -> str:
        """What the driver says it is in."""
        shown = self.member.replaceable._driver.board.shown
        return "" if shown is None else shown.trouble

    async def store(self, name: str) -> MetadataStore:
        return await self.shelf.open(f"memory:{name}")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    runtime = real_runtime()
    shelf = Shelf(runtime)
    member = await Member.open(runtime, "m", "memory:source", shelf.open, failed, LONG_S)
    await member.store.put("/x/before", b"1")
    yield Bench(shelf, member)
    await member.close()
    await shelf.close()


@pytest.mark.parametrize("target", ["memory:target", "memory:third"])
async def test_a_store_that_was_left_for_good_cannot_be_replaced_again(
    bench: Bench, target: str
) -> None:
    await bench.switch()
    await bench.finalize()
    await bench.member.store.put("/x/after", b"2")
    with pytest.raises(Refused, match=r"is finalized: restart the servers with metadata_url="):
        await bench.operation.start({"target": target}, "somebody")
    state = await bench.member.replaceable.journal.read()
    assert state is not None
    assert (state.phase, state.announced.number) == ("finalized", 1)
    assert await bench.member.store.children("/x") == ["after", "before"]


@pytest.mark.goal("454.A23", part="at start", broken_by="left_store_is_not_sealed")
async def test_a_store_that_was_left_for_good_keeps_out_who_was_not_told(bench: Bench) -> None:
    source = await bench.store("source")
    await check_not_sealed(source)
    await bench.switch()
    await check_not_sealed(source)
    await bench.finalize()
    with pytest.raises(ConfigError, match="was replaced by memory:target: set metadata_url"):
        await check_not_sealed(source)
    await check_not_sealed(await bench.store("target"))
    assert bench.member.replaceable.url == "memory:target"
    await source.put(SEAL_PATH, b"{}")
    with pytest.raises(FormatError, match="sealed"):
        await check_not_sealed(source)
    await source.close()


async def test_a_copy_of_which_the_journal_does_not_know_is_not_written_over(bench: Bench) -> None:
    await bench.switch()
    await bench.finalize()
    source = await bench.store("source")
    await source.delete(journal_path("metadata"))
    await source.close()
    opener = bench.shelf.open
    other = await Member.open(real_runtime(), "o", "memory:source", opener, failed, LONG_S)
    with pytest.raises(ConflictError, match="a copy of memory:source that attempt"):
        await other.replaceable.steps.plan({"target": "memory:target"})
    await other.close()


async def test_a_copy_that_came_to_nothing_is_taken_again_unless_servers_use_it(
    bench: Bench,
) -> None:
    await bench.switch()
    await bench.member.ask(Verb.ROLLBACK)
    await bench.member.until("rolled back", wait_s=LONG_S)
    await bench.operation.plan({"target": "memory:target"})
    target = await bench.store("target")
    await target.put(f"{participants_path('metadata')}/other", b"")
    with pytest.raises(ConflictError, match="/anabranch/migrations/metadata"):
        await bench.operation.plan({"target": "memory:target"})
    await target.close()


@pytest.mark.parametrize("value", [b"\xff{", b"[]", json.dumps({"source": "x"}).encode()])
async def test_what_others_have_written_as_a_reservation_is_refused(
    bench: Bench, value: bytes
) -> None:
    target = await bench.store("target")
    await target.put(RESERVED_PATH, value)
    with pytest.raises(ConflictError, match="is not empty"):
        await bench.operation.start({"target": "memory:target"}, "somebody")
    assert await bench.member.replaceable.journal.read() is None
    await target.close()


async def test_nobody_goes_back_to_a_store_that_is_not_what_the_other_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Tail._reconcile

    async def spoil(tail: Tail, on_nodes: OnNodes, pace: Pace, rests: Rests | None) -> None:
        await real(tail, on_nodes, pace, rests)
        source = await bench.store("source")
        await source.put("/x/before", b"spoiled")
        await source.close()

    monkeypatch.setattr(Tail, "_reconcile", spoil)
    await bench.switch()
    await until(lambda: "/x/before is not the same" in bench.trouble)
    await bench.member.ask(Verb.ROLLBACK)
    state = await bench.member.until("switched", wait_s=LONG_S)
    assert "/x/before is not the same" in state.error
    monkeypatch.undo()
    await bench.member.ask(Verb.ROLLBACK)
    await bench.member.until("rolled back", wait_s=LONG_S)
    source = await bench.store("source")
    node = await source.get("/x/before")
    assert node is not None
    assert node.value == b"1"
    await source.close()


@pytest.mark.parametrize("trouble", ["second handle", "unknown phase"])
async def test_a_process_that_cannot_take_part_lets_go_of_what_it_opened(trouble: str) -> None:
    base = MemoryStore(real_runtime().clock)
    opened: list[LocalHandle] = []

    async def opener(_: str) -> MetadataStore:
        if trouble == "second handle" and opened:
            raise Unreachable("only one may connect")
        opened.append(await base.handle())
        return opened[-1]

    if trouble == "unknown phase":
        await base.put(journal_path("metadata"), b"{}")
    tasks = Tasks(failed)
    me = Report("m", "broker", "localhost", "test")
    with pytest.raises((Unreachable, FormatError)):
        await ReplaceableMetadata.open(real_runtime(), "memory:source", opener, me, tasks)
    for handle in opened:
        with pytest.raises(AlreadyClosed):
            await handle.get("/x")
    await tasks.close()
    await base.close()
