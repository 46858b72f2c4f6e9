"""The metadata store is replaced while clients go on writing: nothing is lost, locks stay held."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path

import pytest

from anabranch.errors import BadVersion
from anabranch.metadata.factory import open_store
from anabranch.metadata.locks import Locks
from anabranch.metadata.store import ABSENT, EventKind, IndexKey
from anabranch.migrations.engine.table import Verb
from anabranch.runtime.real import real_runtime
from anabranch.testing.live_writers import Writer, check
from anabranch.testing.model_stores import empty_store_url, model_runtime, modelled_zookeeper
from anabranch.testing.replaced_stores import Member, Shelf

LONG_S = 150.0
"""Longer than any of it takes on a machine that does much else."""


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}") from error


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    shelf = Shelf(real_runtime())
    yield shelf
    await shelf.close()


@pytest.mark.goal("454.A16", part="live", broken_by="counters_are_not_carried")
@pytest.mark.goal("454.A31", part="live", broken_by="last_changes_are_not_brought_back")
async def test_memory_to_memory_and_back_with_writers(shelf: Shelf) -> None:
    runtime = real_runtime()
    members = [
        await Member.open(runtime, f"m{n}", "memory:source", shelf.open, failed, hold_s=LONG_S)
        for n in range(3)
    ]
    writers = [Writer(member, f"w{n}") for n, member in enumerate(members)]
    locks = Locks(members[1].store, runtime.clock, members[1].tasks)
    locks.start()
    lock = await locks.acquire("/locks/one", b"me")
    token = lock.token
    watch = members[2].store.watch("/watched")
    running = [asyncio.ensure_future(writer.run()) for writer in writers]
    await asyncio.sleep(0.1)
    await members[0].start("memory:target")
    await members[0].until("switched", wait_s=LONG_S)
    await asyncio.sleep(0.2)
    target = await shelf.open("memory:target")
    for member in members:
        assert member.store.route.name == "target"
    before = writers[0].count
    assert lock.held
    assert lock.token == token
    await lock.update_value(b"still me")
    node = await target.get("/locks/one")
    assert node is not None
    assert node.value == b"still me"
    with pytest.raises(BadVersion):
        await members[0].store.put("/locks/one", b"mine", ABSENT, ephemeral=True)
    await members[0].store.put("/watched/a", b"")
    event = await anext(watch)
    assert event.kind is EventKind.GAP
    while (event := await anext(watch)).path != "/watched/a":
        pass
    await asyncio.sleep(0.1)
    assert writers[0].count > before
    await members[0].ask(Verb.ROLLBACK)
    await members[0].until("rolled back", wait_s=LONG_S)
    await asyncio.sleep(0.2)
    assert lock.held
    for writer in writers:
        writer.stop()
    await asyncio.gather(*running)
    source = await shelf.open("memory:source")
    await check(writers, source)
    assert [member.store.route.name for member in members] == ["source"] * 3
    await target.close()
    await source.close()
    for member in members:
        await member.close()


async def test_embedded_to_memory_finalized(shelf: Shelf, tmp_path: Path) -> None:
    runtime = real_runtime()
    url = f"embedded:{tmp_path}/source"
    member = await Member.open(runtime, "m", url, shelf.open, failed, hold_s=LONG_S)
    writer = Writer(member, "w")
    running = asyncio.ensure_future(writer.run())
    await asyncio.sleep(0.1)
    await member.start("memory:target")
    await member.until("switched", wait_s=LONG_S)
    await asyncio.sleep(0.1)
    await member.ask(Verb.FINALIZE)
    await member.until("finalized", wait_s=LONG_S)
    writer.stop()
    await running
    target = await shelf.open("memory:target")
    await check([writer], target)
    late = await Member.open(runtime, "late", url, shelf.open, failed, hold_s=LONG_S)
    assert late.replaceable.url == "memory:target"
    await check([writer], late.store)
    await target.close()
    await late.close()
    await member.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110 - many things may make it true
            await asyncio.sleep(0.005)


PAIRS = sorted(permutations(("memory", "embedded", "zookeeper", "oxia"), 2))
TREES = {
    "chroot to chroot": ("/deep/one", "/two"),
    "all of it to a chroot elsewhere": ("", "/two"),
    "chroot to all of it": ("/deep/one", ""),
}


@pytest.mark.goal("454.A38", part="chroots", broken_by="chroots_are_not_told_apart")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("places", TREES.values(), ids=TREES)
async def test_three_processes_go_from_one_place_of_zookeeper_to_another(
    places: tuple[str, str],
) -> None:
    runtime = model_runtime()
    shelf = Shelf(runtime)
    async with AsyncExitStack() as held:
        held.push_async_callback(shelf.close)
        first = await held.enter_async_context(modelled_zookeeper(""))
        other = first if all(places) else await held.enter_async_context(modelled_zookeeper(""))
        source, target = (
            url.replace("/?", f"{place}?")
            for url, place in zip((first, other), places, strict=True)
        )
        members = [
            await Member.open(runtime, f"m{n}", source, shelf.open, failed, hold_s=LONG_S)
            for n in range(3)
        ]
        for member in members:
            held.push_async_callback(member.close)
        writers = [Writer(member, f"w{n}") for n, member in enumerate(members)]
        running = [asyncio.ensure_future(writer.run()) for writer in writers]
        await members[0].start(target)
        await members[0].until("switched", wait_s=LONG_S)
        await until(lambda: all(m.store.route.name == "target" for m in members))
        counts = [writer.count for writer in writers]
        await until(lambda: all(w.count > count for w, count in zip(writers, counts, strict=True)))
        for writer in writers:
            writer.stop()
        await asyncio.gather(*running)
        for member in members:
            await check(writers, member.store)
        raw = await open_store(target, runtime)
        await check(writers, raw)
        await raw.close()


@pytest.mark.goal("454.A2", part="pairs", broken_by="counters_are_not_carried")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-to-".join(pair) for pair in PAIRS])
async def test_every_pair_of_stores_there_and_back(
    source: str, target: str, tmp_path: Path
) -> None:
    runtime = model_runtime()
    shelf = Shelf(runtime)
    async with AsyncExitStack() as held:
        held.push_async_callback(shelf.close)
        urls = [
            await empty_store_url(kind, f"{tmp_path}/{kind}", held) for kind in (source, target)
        ]
        member = await Member.open(runtime, "m", urls[0], shelf.open, failed, hold_s=LONG_S)
        held.push_async_callback(member.close)
        locks = Locks(member.store, runtime.clock, member.tasks)
        locks.start()
        lock = await locks.acquire("/locks/one", b"me")
        await member.store.put("/unusual/\u00e9mpty", b"")
        await member.store.put("/unusual/large", b"x" * 1_000_000)
        await member.store.put("/indexed/a", b"1", indexes=(IndexKey("by", "one"),))
        writer = Writer(member, "w")
        running = asyncio.ensure_future(writer.run())
        await member.start(urls[1])
        await member.until("switched", wait_s=LONG_S)
        await until(lambda: member.store.route.name == "target")
        assert lock.held
        assert await member.store.get("/unusual/large") is not None
        found = [node.stat.path async for node in member.store.scan_index("by", "one")]
        assert found == ["/indexed/a"]
        written = writer.count
        await until(lambda: writer.count > written + 20)
        await member.ask(Verb.ROLLBACK)
        await member.until("rolled back", wait_s=LONG_S)
        await until(lambda: member.store.route.name == "source")
        written = writer.count
        await until(lambda: writer.count > written)
        writer.stop()
        await running
        assert lock.held
        await check([writer], member.store)
