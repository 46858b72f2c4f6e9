"""Locks and elections whose store answers late, not at all, or only after the session's time."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from lock_bench import LOCK, Bench, settle

from anabranch import limits
from anabranch.errors import Fenced, OutcomeUnknown, Unreachable
from anabranch.metadata.election import Election
from anabranch.metadata.election_machine import Standing
from anabranch.metadata.store import Event, EventKind, Revision, SessionEvent
from anabranch.testing.unanswered import Lose

# --- the lease ----------------------------------------------------------------------------------


@pytest.mark.goal("core.M10", part="lock", broken_by="held_ignores_lease")
async def test_who_was_stopped_sees_that_its_time_is_over_before_it_acts(bench: Bench) -> None:
    await bench.start()
    bench.store.session_valid_until = bench.clock.now_s + 10.0
    lock = await bench.acquire()
    margin_s = limits.LEASE_DRIFT_SHARE_MAX * bench.store.session_timeout_s
    bench.clock.now_s += 10.0 - margin_s - 0.001
    assert lock.held
    bench.clock.now_s += 0.001
    assert not lock.held, "although nobody has told it anything"
    with pytest.raises(Fenced, match="has not answered in time"):
        lock.guard()
    with pytest.raises(Fenced):
        await lock.update_value(b"ash")
    bench.store.session_valid_until = bench.clock.now_s + 10.0
    assert lock.held, "the store kept the session after all, and with it the node"


@pytest.mark.goal("core.M10", part="lock", broken_by="session_loss_is_not_heard")
async def test_a_lock_does_not_survive_its_session(bench: Bench) -> None:
    bench.store.deaf = True
    await bench.start()
    lock = await bench.acquire()
    bench.news(SessionEvent.CONNECTION_LOST)
    await settle()
    assert lock.held, "nothing is known, nothing is decided"
    bench.news(SessionEvent.SESSION_LOST)
    await settle()
    assert lock.expired.done()
    assert lock.expired.result() == "its session ended"
    assert not lock.held


async def test_a_reconnect_looks_whether_the_node_is_still_there(bench: Bench) -> None:
    bench.store.deaf = True
    await bench.start()
    lock = await bench.acquire()
    bench.news(SessionEvent.RECONNECTED)
    await settle()
    assert lock.held
    await bench.base.delete(LOCK)
    bench.store.lose("get", Lose.EVERYTHING)
    bench.news(SessionEvent.RECONNECTED)
    await settle()
    assert lock.held, "nobody answered: the lease decides"
    bench.news(SessionEvent.RECONNECTED)
    await settle()
    assert lock.expired.result() == "its node is not there any more"


async def test_a_gap_looks_at_every_lock(bench: Bench) -> None:
    bench.store.deaf = True
    await bench.start()
    lock = await bench.acquire()
    await bench.base.delete(LOCK)
    bench.store.tell(Event(EventKind.GAP, "/", await bench.base.revision()))
    await settle()
    assert lock.expired.result() == "its node is not there any more"


# --- lost requests ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Lose.REQUEST, Lose.ANSWER])
async def test_a_creation_that_was_not_answered_is_read_back(bench: Bench, loss: Lose) -> None:
    await bench.start()
    bench.store.lose("put", loss)
    lock = await bench.acquire()
    assert lock.held
    node = await bench.base.get(LOCK)
    assert node is not None
    version = node.stat.version
    assert (Revision(version.epoch, version.life), version) == (lock.token, lock.guard().version)


async def test_a_removal_on_its_way_cannot_hit_the_next_holder(bench: Bench) -> None:
    """1 release, unanswered; 2 acquire again in the same session; 3 the removal arrives."""
    bench.store.deaf = True
    await bench.start()
    lock = await bench.acquire()
    late = lock.guard().version
    bench.store.lose("delete", Lose.REQUEST)
    bench.store.lose("get", Lose.EVERYTHING)
    with pytest.raises(OutcomeUnknown):
        await lock.release()
    await settle()
    again = await bench.acquire()
    assert again.token > lock.token
    assert again.guard().version != late, "the node was made anew, not adopted"


async def test_who_cannot_ask_is_told_so(bench: Bench) -> None:
    await bench.start()
    bench.store.lose("put", Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await bench.acquire()
    assert (await bench.acquire()).held


async def test_a_lock_given_up_while_it_was_asked_for_leaves_nothing(bench: Bench) -> None:
    await bench.start()
    gate = bench.store.hold("put")
    asking = asyncio.get_running_loop().create_task(bench.acquire())
    await settle()
    assert await bench.base.exists(LOCK)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    gate.set()
    await settle()
    assert not await bench.base.exists(LOCK)


async def test_a_request_that_arrives_after_all_is_swept_away(bench: Bench) -> None:
    await bench.start()
    bench.store.lose("put", Lose.REQUEST)
    bench.store.lose("get", Lose.EVERYTHING, Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await bench.acquire()
    await settle()
    await bench.base.put(LOCK, b"ash", ephemeral=True)
    await settle()
    assert not await bench.base.exists(LOCK)


async def test_a_release_that_was_not_answered_is_done_after_a_reconnect(bench: Bench) -> None:
    bench.store.deaf = True
    await bench.start()
    lock = await bench.acquire()
    bench.store.lose("delete", Lose.REQUEST, Lose.EVERYTHING)
    with pytest.raises(OutcomeUnknown):
        await lock.release()
    assert not lock.held
    await settle()
    assert await bench.base.exists(LOCK)
    bench.news(SessionEvent.RECONNECTED)
    await settle()
    assert not await bench.base.exists(LOCK)


async def test_what_others_hold_is_never_swept(bench: Bench) -> None:
    await bench.start()
    bench.store.lose("put", Lose.REQUEST)
    bench.store.lose("get", Lose.EVERYTHING, Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await bench.acquire()
    other = await bench.base.handle()
    await other.put(LOCK, b"birch", ephemeral=True)
    bench.news(SessionEvent.RECONNECTED)
    await settle()
    assert await bench.base.exists(LOCK)
    await other.close()


@pytest.mark.parametrize("loss", [Lose.REQUEST, Lose.ANSWER])
async def test_an_update_that_was_not_answered(bench: Bench, loss: Lose) -> None:
    bench.store.deaf = True
    await bench.start()
    lock = await bench.acquire()
    bench.store.lose("put", loss)
    with pytest.raises(OutcomeUnknown):
        await lock.update_value(b"ash elsewhere")
    await settle()
    assert lock.held
    node = await bench.base.get(LOCK)
    assert node is not None
    assert (lock.value, lock.guard().version) == (node.value, node.stat.version)


@pytest.mark.parametrize("requests", [False, True], ids=["created before", "created after"])
async def test_a_session_that_ends_while_the_lock_is_asked_for(
    bench: Bench, requests: bool
) -> None:
    """The node may be of the session that ended or of the next: nobody can tell from the answer."""
    await bench.start()
    gate = bench.store.hold("put", requests=requests)
    asking = asyncio.get_running_loop().create_task(bench.acquire())
    await settle()
    before = bench.base.session
    await bench.base.end_session(before)
    await settle()
    gate.set()
    lock = await asking
    assert lock.held
    assert lock.session == bench.base.session != before
    node = await bench.base.get(LOCK)
    assert node is not None
    assert node.stat.created_by_self
    assert node.stat.version == lock.guard().version


async def test_a_request_that_is_sent_in_the_next_session_is_swept_away(bench: Bench) -> None:
    bench.store.deaf = True
    await bench.start()
    bench.store.lose("put", Lose.REQUEST)
    bench.store.lose("get", Lose.EVERYTHING, Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await bench.acquire()
    await bench.base.end_session(bench.base.session)
    await settle()
    await bench.base.put(LOCK, b"ash", ephemeral=True)
    bench.news(SessionEvent.SESSION_REESTABLISHED)
    await settle()
    assert not await bench.base.exists(LOCK)


# --- elections ----------------------------------------------------------------------------------


async def test_a_candidate_that_is_not_answered_tries_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOCK_RETRY_S", 0.001)
    await bench.start()
    bench.store.lose("put", Lose.EVERYTHING, Lose.EVERYTHING)
    election = Election(bench.locks, LOCK, b"ash", bench.tasks)
    heard: list[Standing] = []
    election.listen(heard.append)
    election.stand()
    await passes(lambda: election.leading)
    assert heard == [Standing.NO_LEADER, Standing.LEADING]


async def test_a_candidate_tries_at_once_when_the_connection_is_back(bench: Bench) -> None:
    await bench.start()
    bench.store.lose("put", Lose.EVERYTHING)
    election = Election(bench.locks, LOCK, b"ash", bench.tasks)
    election.stand()
    await settle()
    assert not election.leading
    bench.news(SessionEvent.RECONNECTED)
    await settle()
    assert election.leading


async def test_a_leader_that_lost_its_session_runs_again(bench: Bench) -> None:
    await bench.start()
    election = Election(bench.locks, LOCK, b"ash", bench.tasks)
    heard: list[Standing] = []
    election.listen(heard.append)
    election.stand()
    await passes(lambda: election.leading)
    token = election.token
    bench.news(SessionEvent.SESSION_LOST)
    await passes(lambda: len(heard) == 4)
    assert heard == [Standing.NO_LEADER, Standing.LEADING, Standing.NO_LEADER, Standing.LEADING]
    assert election.token > token


async def passes(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")
