"""A real Oxia of three shards is killed and comes back under load, with locks and an election.

Once it is away for a moment, so that sessions go on, and once for longer than they last.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from anabranch.errors import AnabranchError, Fenced, OutcomeUnknown
from anabranch.metadata.election import Election
from anabranch.metadata.factory import open_store
from anabranch.metadata.locks import Lock
from anabranch.metadata.store import EventKind, SessionEvent
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.coordination import Participant
from anabranch.testing.coordination_story import check_tokens
from anabranch.testing.servers.oxia import Oxia, oxia

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(200),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.goal("core.M3", part="oxia"),
    pytest.mark.goal("core.M10", part="oxia"),
]
TIMEOUT_S = 4.0
MILL = "/mill"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Oxia]:
    with oxia(3) as server:
        yield server


class Worker:
    """Wants a lock again and again, stands for election, and writes under what it has."""

    def __init__(self, name: int, participant: Participant, taken: list[Lock]) -> None:
        self.name = name
        self.participant = participant
        self.election: Election = participant.election(str(name).encode())
        self.taken = taken
        """Every lock that anybody got."""
        self.begun = self.done = 0
        self.progress = asyncio.Event()
        self.acknowledged: set[int] = set()
        self.unknown: set[int] = set()

    async def run(self, stop: asyncio.Event) -> None:
        self.election.stand()
        while not stop.is_set():
            try:
                async with asyncio.timeout(2 * WAIT_S):
                    lock = await self.participant.locks.acquire_when_free(MILL, b"%d" % self.name)
            except AnabranchError:
                await asyncio.sleep(0.05)
                continue
            self.taken.append(lock)
            assert sum(each.held for each in self.taken) <= 1, "two hold one lock"
            for holder, folder in ((lock, "/effects"), (self.election, "/decrees")):
                await self._write(holder, folder)
            try:
                await lock.release()
            except AnabranchError:
                await asyncio.sleep(0.05)

    async def _write(self, holder: object, folder: str) -> None:
        number = 1_000_000 * self.name + self.begun
        self.begun += 1
        try:
            token, guard = holder.token, holder.guard()  # type: ignore[attr-defined]
            value = f"{token.epoch} {token.index} {self.name} {number}".encode()
            await self.participant.store.put(f"{folder}/e-", value, sequential=True, guard=guard)
        except Fenced:
            return
        except OutcomeUnknown:
            self.unknown.add(number)
        except AnabranchError:
            await asyncio.sleep(0.05)
        else:
            self.acknowledged.add(number)
            self.done += 1
            self.progress.set()


@pytest_asyncio.fixture(loop_scope="module")
async def workers(server: Oxia) -> AsyncIterator[list[Worker]]:
    stores = [
        await open_store(server.url, real_runtime(), session_timeout_s=TIMEOUT_S) for _ in range(3)
    ]
    taken: list[Lock] = []
    joined = [Worker(name, Participant(store), taken) for name, store in enumerate(stores)]
    yield joined
    for worker in joined:
        await worker.participant.close()
        await worker.participant.store.close()


async def more_is_done(workers: list[Worker]) -> None:
    """Every worker writes something more."""
    for worker in workers:
        worker.progress.clear()
    async with asyncio.timeout(WAIT_S):
        for worker in workers:
            await worker.progress.wait()
    assert sum(worker.election.leading for worker in workers) <= 1, "two lead"


async def effects(worker: Worker, folder: str) -> list[bytes]:
    return [node.value async for node in worker.participant.store.scan(folder)][1:]


async def test_locks_leaders_watches_and_unknown_outcomes_end_right(
    server: Oxia, workers: list[Worker]
) -> None:
    first = workers[0].participant.store

    async def listen() -> list[SessionEvent]:
        return [event async for event in first.session_events()]

    listening = asyncio.ensure_future(listen())
    watch = first.watch("/last")
    stop = asyncio.Event()
    runs = asyncio.gather(*(worker.run(stop) for worker in workers))
    session = first.session
    await more_is_done(workers)
    for away_s in (0.2, 2 * TIMEOUT_S):
        server.server.kill()
        await asyncio.sleep(away_s)
        await asyncio.to_thread(server.server.start)
        await more_is_done(workers)
    stop.set()
    await runs
    assert first.session != session, "it was away for longer than sessions last"
    acknowledged = {number for worker in workers for number in worker.acknowledged}
    unknown = {number for worker in workers for number in worker.unknown}
    written: list[int] = []
    for folder in ("/effects", "/decrees"):
        values = await effects(workers[0], folder)
        check_tokens(folder, values, acknowledged)
        written += [int(value.split()[-1]) for value in values]
    assert len(written) == len(set(written)), "nothing was done twice"
    assert acknowledged <= set(written) <= acknowledged | unknown
    for worker in workers:
        await worker.election.resign()
    lock = await workers[1].participant.locks.acquire_when_free(MILL, b"last")
    await lock.release()
    last = await workers[2].participant.store.put("/last", b"")
    async with asyncio.timeout(WAIT_S):
        async for event in watch:
            assert event.kind in (EventKind.CREATED, EventKind.GAP)
            if event.path == "/last" or event.revision >= last.revision:
                break
    await workers[0].participant.close()
    await first.close()
    assert SessionEvent.SESSION_LOST in await listening
