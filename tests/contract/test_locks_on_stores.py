"""Locks, shown on every store that needs no foreign server."""

import asyncio

import pytest

from anabranch.errors import Fenced, LockBusy
from anabranch.metadata.locks import Lock
from anabranch.testing.contracts.coordination import (
    LOCK,
    WAIT_S_MAX,
    Participant,
    Place,
    lost,
    until,
)


@pytest.mark.goal("core.M10", part="lock", broken_by="busy_lock_is_taken_over")
async def test_a_lock_has_one_holder_whose_name_others_are_told(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    assert lock.held
    with pytest.raises(LockBusy, match=r"/locks/mill is held by 'ash'") as refused:
        await birch.locks.acquire(LOCK, b"birch")
    assert refused.value.holder == b"ash"
    assert lock.held


async def test_a_process_cannot_take_a_lock_twice(place: Place) -> None:
    ash = await place.join()
    await ash.locks.acquire(LOCK, b"ash")
    with pytest.raises(LockBusy, match="this very process"):
        await ash.locks.acquire(LOCK, b"ash")


async def test_a_lasting_node_is_nobodys_leftover(place: Place) -> None:
    ash = await place.join()
    await ash.store.put(LOCK, b"ash")
    with pytest.raises(LockBusy):
        await ash.locks.acquire(LOCK, b"ash")
    assert await ash.store.exists(LOCK)


@pytest.mark.goal("core.M10", part="lock", broken_by="token_reused")
async def test_tokens_rise_from_holder_to_holder(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    tokens = []
    for participant, value in ((ash, b"ash"), (birch, b"birch"), (ash, b"ash"), (ash, b"ash")):
        lock = await participant.locks.acquire(LOCK, value)
        tokens.append(lock.token)
        await lock.update_value(value + b" again")
        assert lock.token == tokens[-1], "an update does not change who holds it"
        await lock.release()
    assert tokens == sorted(set(tokens))


@pytest.mark.goal("core.M10", part="lock", broken_by="guard_skipped")
async def test_what_a_former_holder_still_writes_is_refused(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    guard = lock.guard()
    await ash.store.put("/effect", b"ash", guard=guard)
    await place.kill(ash.store)
    taken = await birch.locks.acquire_when_free(LOCK, b"birch")
    with pytest.raises(Fenced):
        await ash.store.put("/effect", b"ash too late", guard=guard)
    await birch.store.put("/effect", b"birch", guard=taken.guard())


@pytest.mark.goal("core.M10", part="lock", broken_by="held_ignores_lease")
async def test_who_lost_its_session_never_acts_as_owner_again(place: Place) -> None:
    ash = await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    session = ash.store.session
    await place.kill(ash.store)
    assert not lock.held, "before anybody was told"
    with pytest.raises(Fenced, match="not held any more"):
        lock.guard()
    assert await lost(lock) in ("its session ended", "its node was deleted")
    await until(lambda: ash.store.session != session)
    assert not lock.held, "a new session does not bring it back"
    again = await ash.locks.acquire(LOCK, b"ash")
    assert again.held
    assert again.token > lock.token
    assert not lock.held
    await lock.release()
    assert again.held, "the old one's release has nothing to release"
    with pytest.raises(Fenced):
        await lock.update_value(b"ash")


@pytest.mark.goal("core.M10", part="lock", broken_by="deletion_is_not_heard")
async def test_a_holder_whose_node_is_deleted_hears_of_it(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    await birch.store.delete(LOCK)
    async with asyncio.timeout(1):
        assert await lost(lock) == "its node was deleted"
    assert not lock.held
    assert (await birch.locks.acquire(LOCK, b"birch")).token > lock.token


@pytest.mark.goal("core.M10", part="lock", broken_by="release_without_version")
async def test_a_late_release_does_not_free_somebody_elses_lock(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    await birch.store.delete(LOCK)
    taken = await birch.locks.acquire(LOCK, b"birch")
    # Ash has not been given a turn of the loop in which it could hear of it.
    await lock.release()
    assert await birch.store.exists(LOCK)
    assert taken.held


@pytest.mark.goal("core.M10", part="lock", broken_by="trusts_value_of_other_session")
async def test_the_node_of_an_earlier_session_is_replaced(place: Place) -> None:
    ash, again = await place.join(), await place.join()
    before = await ash.locks.acquire(LOCK, b"ash")
    after = await again.locks.acquire(LOCK, b"ash")
    assert after.token > before.token
    assert after.held
    node = await again.store.get(LOCK)
    assert node is not None
    assert node.stat.created_by_self, "it lives by the session of who holds it"
    assert await lost(before) == "its node was deleted"


async def test_release_and_update(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    before = lock.guard()
    await lock.update_value(b"ash at the weir")
    with pytest.raises(LockBusy, match="ash at the weir"):
        await birch.locks.acquire(LOCK, b"birch")
    with pytest.raises(Fenced):
        await ash.store.put("/effect", b"", guard=before)
    await ash.store.put("/effect", b"", guard=lock.guard())
    await lock.release()
    assert not lock.held
    assert not await ash.store.exists(LOCK)
    assert not lock.expired.done(), "a release is no loss"
    await lock.release()


async def test_somebody_elses_change_of_the_value_ends_it(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    await birch.store.put(LOCK, b"birch")
    assert await lost(lock) == "its node was replaced"
    with pytest.raises(Fenced):
        await lock.update_value(b"ash")


async def test_who_waits_gets_the_lock_when_it_is_free(place: Place) -> None:
    participants = [await place.join() for _ in range(4)]
    tokens = []

    async def work(participant: Participant, value: bytes) -> None:
        for _ in range(5):
            lock = await participant.locks.acquire_when_free(LOCK, value)
            assert [each for each in held if each.held] == []
            held.append(lock)
            tokens.append(lock.token)
            await asyncio.sleep(0)
            await lock.release()

    held: list[Lock] = []
    async with asyncio.timeout(WAIT_S_MAX), asyncio.TaskGroup() as group:
        for number, participant in enumerate(participants):
            group.create_task(work(participant, b"%d" % number))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 20


async def test_closing_gives_up_every_lock(place: Place) -> None:
    ash = await place.join()
    locks = [await ash.locks.acquire(f"/locks/{name}", b"ash") for name in ("mill", "weir")]
    await ash.locks.close()
    assert await ash.store.children("/locks") == []
    assert not any(lock.held for lock in locks)
