"""After the end nobody needs the store that was left or works on it, and all find the other."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.errors import AlreadyClosed, ConfigError, ConflictError, FormatError, Unreachable
from anabranch.metadata.announced import (
    JOURNAL_MAGIC,
    Announced,
    Report,
    journal_path,
    write_document,
)
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.seal import SEAL_PATH, check_not_sealed
from anabranch.metadata.switchable.succession import SUCCEEDS_PATH, located, succeed, succession_of
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.operation import Blocked, Operation
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server import replaceable_metadata
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.server.replaced_metadata import refuse_replaced
from anabranch.testing.replaced_stores import Member, Shelf

LONG_S = 60.0
LEFT_S_MAX = 20.0
SOURCE, TARGET, THIRD = "memory:source", "memory:target", "memory:third"


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}") from error


class Stores:
    """Stores of which some can be gone."""

    def __init__(self) -> None:
        self.runtime = real_runtime()
        self.shelf = Shelf(self.runtime)
        self.gone: list[str] = []
        self.asked: list[str] = []

    async def open(self, url: str) -> MetadataStore:
        self.asked.append(url)
        if url in self.gone:
            raise Unreachable(f"{url} was switched off")
        return await self.shelf.open(url)

    async def member(self, name: str, *successors: str) -> Member:
        """A process that was told of a source."""
        tasks, me = Tasks(failed), Report(name, "broker", "localhost", "test")
        table = TABLE.holding_for(LONG_S)
        found = await ReplaceableMetadata.open(
            self.runtime, SOURCE, self.open, me, tasks, table, successors=successors
        )
        return Member(found, tasks)

    def operation(self, member: Member) -> Operation:
        found = member.replaceable
        return Operation(found.steps, found.journal, self.runtime.entropy)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    stores = Stores()
    yield stores
    await stores.shelf.close()


async def finalize(member: Member) -> None:
    await member.start(TARGET)
    await member.until("switched", wait_s=LONG_S)
    await member.ask(Verb.FINALIZE)
    await left(member)


async def left(member: Member) -> None:
    """Wait until a process has let go of the source."""
    async with asyncio.timeout(LEFT_S_MAX):
        while not member.replaceable.journal.ended:  # noqa: ASYNC110 - it says so to nobody
            await asyncio.sleep(0.01)


@pytest.mark.goal("rel.A26", part="running", broken_by="old_store_is_kept_for_ever")
async def test_a_running_process_lets_go_of_the_store_that_was_left(stores: Stores) -> None:
    member = await stores.member("m")
    await member.store.put("/x", b"1")
    operation = stores.operation(member)
    await finalize(member)
    with pytest.raises(AlreadyClosed):
        await member.store.side.get("/x")
    stores.gone.append(SOURCE)
    stores.asked.clear()
    await member.store.put("/x", b"2")
    node = await member.store.get("/x")
    assert node is not None
    assert node.value == b"2"
    status = await operation.status()
    assert status.as_json()["phase"] == "finalized"
    for refused in (
        operation.start({"target": THIRD}, "somebody"),
        operation.plan({"target": THIRD}),
        operation.ask(Verb.ROLLBACK, "somebody"),
        operation.ask(Verb.FINALIZE, "somebody"),
    ):
        with pytest.raises(Refused, match="is finalized"):
            await refused
    assert stores.asked == [], "nobody is connected to"
    await member.close()


@pytest.mark.goal("454.A29", part="unheard", broken_by="old_store_is_kept_for_ever")
async def test_a_process_that_did_not_hear_of_the_end_sees_it_at_the_target(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaceable_metadata, "LEFT_LOOK_S", 0.01)
    monkeypatch.setattr(replaceable_metadata, "LEFT_UNHEARD_S", 0.05)
    member = await stores.member("m")
    await member.start(TARGET)
    await member.until("switched", wait_s=LONG_S)
    announced = await member.replaceable._part.settled_on_target()

    async def gone(*_: object) -> None:
        raise Unreachable("it was switched off")

    for name in ("sync", "get", "put"):
        monkeypatch.setattr(member.store.side, name, gone)
    target = await stores.open(TARGET)
    await succeed(target, SOURCE, announced.attempt)
    await left(member)
    assert (await stores.operation(member).status()).as_json()["phase"] == "finalized"
    await member.store.put("/x", b"1")
    assert await target.exists("/x")
    await target.close()
    await member.close()


@pytest.mark.goal("454.A23", part="silent", broken_by="silent_source_stays_unsealed")
async def test_a_source_that_was_silent_at_the_end_is_sealed_when_it_is_back(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEFT_LOOK_S", "LEFT_UNHEARD_S", "SEAL_AGAIN_S"):
        monkeypatch.setattr(replaceable_metadata, name, 0.05)
    member = await stores.member("m")
    await member.start(TARGET)
    await member.until("switched", wait_s=LONG_S)
    announced = await member.replaceable._part.settled_on_target()
    side, silent = member.store.side, True

    def unless_silent(name: str) -> None:
        plain = getattr(side, name)

        async def asked(*rest: Any, **more: Any) -> Any:
            if silent:
                raise Unreachable("it does not answer")
            return await plain(*rest, **more)

        monkeypatch.setattr(side, name, asked)

    for name in ("sync", "get", "put"):
        unless_silent(name)
    target = await stores.open(TARGET)
    await succeed(target, SOURCE, announced.attempt)
    await left(member)
    source = await stores.open(SOURCE)
    await check_not_sealed(source)
    silent = False
    async with asyncio.timeout(LEFT_S_MAX):
        while not await source.exists(SEAL_PATH):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(ConfigError, match="was replaced by memory:target"):
        await check_not_sealed(source)
    await source.close()
    await target.close()
    await member.close()


@pytest.mark.goal("454.A29", part="restarted", broken_by="successor_is_not_looked_for")
async def test_a_process_finds_the_new_store_where_the_old_one_is_gone(stores: Stores) -> None:
    member = await stores.member("m")
    await member.store.put("/x", b"1")
    await finalize(member)
    await member.close()
    stores.gone += [SOURCE, THIRD]
    with pytest.raises(Unreachable, match="switched off"):
        await stores.member("nobody tells it where")
    late = await stores.member("late", THIRD, TARGET)
    assert late.replaceable.url == TARGET
    assert await late.store.exists("/x")
    await late.close()


@pytest.mark.goal("rel.A25", part="takes part", broken_by="successor_is_not_named")
async def test_a_process_with_the_old_configuration_works_on_the_new_store(stores: Stores) -> None:
    member = await stores.member("m")
    await finalize(member)
    await member.close()
    late = await stores.member("late")
    assert late.replaceable.url == TARGET
    await late.store.put("/x", b"1")
    source = await stores.open(SOURCE)
    assert not await source.exists("/x")
    await source.close()
    await late.start(THIRD, "b")
    await late.until("switched", wait_s=LONG_S)
    await late.ask(Verb.FINALIZE)
    await left(late)
    await late.close()
    last = await stores.member("last")
    assert last.replaceable.url == THIRD, "from one to the next"
    assert await last.store.exists("/x")
    await last.close()


async def test_stores_that_name_each_other_are_refused(stores: Stores) -> None:
    for url, other in ((SOURCE, TARGET), (TARGET, SOURCE)):
        store = await stores.open(url)
        await store.put(journal_path("metadata"), journal("finalized", other))
        await succeed(store, other, "a")
        await store.close()
    with pytest.raises(ConflictError, match="each say that the other has replaced it"):
        await located(SOURCE, "metadata", stores.open, ())


@pytest.mark.parametrize("value", [b"\xff", b"[]", b'{"magic": "x"}'])
async def test_a_document_of_others_is_no_succession(stores: Stores, value: bytes) -> None:
    store = await stores.open(TARGET)
    await store.put(SUCCEEDS_PATH, value)
    with pytest.raises(FormatError, match="succeeds"):
        await succession_of(store)
    await store.close()


@pytest.mark.goal("454.A6", part="not restarted", broken_by="plan_forgets_who_was_not_restarted")
async def test_who_came_with_the_store_blocks_the_next_replacement(stores: Stores) -> None:
    first = await stores.member("first")
    second = await stores.member("second")
    await finalize(first)
    await left(second)
    await first.close()
    restarted = await stores.member("first")
    plan = await restarted.replaceable.steps.plan({"target": THIRD})
    assert [each.who.startswith("second-") for each in plan.blockers] == [True]
    assert "restart it" in plan.blockers[0].why
    await second.close()
    plan = await restarted.replaceable.steps.plan({"target": THIRD})
    assert plan.blockers == []
    await restarted.close()


@pytest.mark.goal("454.A6", part="outsiders", broken_by="outsiders_are_overlooked")
async def test_brokers_and_bookies_that_take_no_part_are_named(stores: Stores) -> None:
    member = await stores.member("host:1")
    for name in ("host:1", "host:2"):
        await member.store.put(f"/loadbalance/brokers/{name}", b"", ephemeral=True)
    for name in ("available/b1", "available/readonly/b2"):
        await member.store.put(f"/ledgers/{name}", b"", ephemeral=True)
    await member.store.put("/ledgers/cookies/b3", b"")
    operation = stores.operation(member)
    with pytest.raises(Blocked) as refused:
        await operation.start({"target": TARGET}, "somebody")
    assert [each.who for each in refused.value.plan.blockers] == ["b1", "b2", "host:2"]
    assert (await operation.status()).as_json()["phase"] is None
    target = await stores.open(TARGET)
    assert await target.children("/") == []
    await target.close()
    await member.close()


def journal(phase: str, target: str = TARGET) -> bytes:
    """The head of one, which is all that is looked at."""
    announced = Announced("a", 1, 1, phase, {"target": target}, 1)
    fields = {name: getattr(announced, name) for name in Announced.__slots__}
    return write_document(JOURNAL_MAGIC, {"announced": fields})


@pytest.mark.goal("454.A23", part="servers", broken_by="outsiders_work_on_left_stores")
@pytest.mark.parametrize(
    ("phase", "why"),
    [
        ("finalized", "was replaced by memory:target"),
        ("copying", "is being replaced by memory:target .copying.: name that one in metadata_m"),
        ("switched", "is being replaced"),
    ],
)
async def test_a_server_that_takes_no_part_is_refused(stores: Stores, phase: str, why: str) -> None:
    store = await stores.open(SOURCE)
    await store.put(journal_path("metadata"), journal(phase))
    with pytest.raises(ConfigError, match=why):
        await refuse_replaced(store, SOURCE)
    await store.close()


@pytest.mark.parametrize("phase", ["rolled back", "aborted", "failed"])
async def test_a_store_that_was_come_back_to_is_used(stores: Stores, phase: str) -> None:
    store = await stores.open(SOURCE)
    await refuse_replaced(store, SOURCE)
    await store.put(journal_path("metadata"), journal("switched"))
    with pytest.raises(ConfigError, match="is being replaced"):
        await refuse_replaced(store, SOURCE)
    await store.put(journal_path("metadata"), journal(phase))
    await refuse_replaced(store, SOURCE)
    found = await store.get(journal_path("metadata"))
    assert found is not None
    assert found.value == journal(phase), "asking changes nothing"
    await store.close()
