"""Waiting for a lock that this very process holds, or tries to get."""

import asyncio

from lock_bench import LOCK, Bench, settle

from anabranch.metadata.election import Election
from anabranch.metadata.store import SessionEvent
from anabranch.testing.unanswered import Lose


async def test_who_waits_hears_of_a_release_whose_answer_comes_after_its_event(
    bench: Bench,
) -> None:
    await bench.start()
    lock = await bench.acquire()
    waiting = asyncio.get_running_loop().create_task(bench.locks.acquire_when_free(LOCK, b"oak"))
    await settle()
    gate = bench.store.hold("delete")
    releasing = asyncio.get_running_loop().create_task(lock.release())
    await settle()
    assert not await bench.base.exists(LOCK), "the event was told, the answer is not here yet"
    assert not waiting.done()
    gate.set()
    await releasing
    await settle()
    assert waiting.done(), "nobody has told it"
    assert waiting.result().held


async def test_who_waits_hears_of_an_attempt_that_was_given_up(bench: Bench) -> None:
    """1 birch holds; 2 ash looks, and is slow; 3 oak finds ash trying; 4 all give up but oak."""
    await bench.start()
    other = await bench.base.handle()
    await other.put(LOCK, b"birch", ephemeral=True)
    bench.store.hold("get")
    trying = asyncio.get_running_loop().create_task(bench.acquire())
    await settle()
    waiting = asyncio.get_running_loop().create_task(bench.locks.acquire_when_free(LOCK, b"oak"))
    await settle()
    await other.close()
    await settle()
    assert not waiting.done(), "ash may still get it"
    trying.cancel()
    await settle()
    assert waiting.done(), "the lock is free and nobody has told it"
    assert waiting.result().held


async def test_several_who_wait_for_a_foreign_lock_ask_the_store_once_each(bench: Bench) -> None:
    await bench.start()
    other = await bench.base.handle()
    await other.put(LOCK, b"birch", ephemeral=True)
    await settle()
    bench.store.calls.clear()
    loop = asyncio.get_running_loop()
    waiting = [loop.create_task(bench.locks.acquire_when_free(LOCK, b"oak")) for _ in range(3)]
    for _ in range(20):
        await settle()
    assert bench.store.calls == ["put", "get"] * 3, "they wait for a change, and not for each other"
    await other.close()
    for _ in range(3):
        await settle()
        (lock,) = [task.result() for task in waiting if task.done()]
        waiting = [task for task in waiting if not task.done()]
        assert lock.held
        await lock.release()
    assert waiting == []


async def test_a_candidate_of_the_same_process_follows_a_leader_that_resigns(bench: Bench) -> None:
    await bench.start()
    ash, oak = [Election(bench.locks, LOCK, name, bench.tasks) for name in (b"ash", b"oak")]
    ash.stand()
    await settle()
    oak.stand()
    await settle()
    gate = bench.store.hold("delete")
    resigning = asyncio.get_running_loop().create_task(ash.resign())
    await settle()
    assert not oak.leading
    gate.set()
    await resigning
    await settle()
    assert oak.leading, "it waits for news that were told already"


async def test_who_waits_goes_on_in_the_next_session(bench: Bench) -> None:
    await bench.start()
    bench.store.lose("put", Lose.SESSION)
    waiting = asyncio.get_running_loop().create_task(bench.locks.acquire_when_free(LOCK, b"oak"))
    await settle()
    assert not waiting.done(), "there is no session to hold it in"
    assert bench.store.calls == ["put"], "nothing was carried out, so nothing is looked for"
    bench.news(SessionEvent.SESSION_REESTABLISHED)
    await settle()
    assert waiting.result().held
