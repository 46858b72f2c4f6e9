"""The bounded history: gaps for who is too slow or too old, nothing lost for who keeps up."""

import asyncio

from anabranch.metadata.store import Event, EventKind, Revision
from anabranch.metadata.watching import EventHistory, Watch


def changes(first: int, last: int, path: str = "/a") -> list[Event]:
    return [Event(EventKind.MODIFIED, path, Revision(1, i)) for i in range(first, last + 1)]


async def drain(watch: Watch) -> list[Event]:
    found = []
    while True:
        try:
            found.append(await asyncio.wait_for(anext(watch), 0.01))
        except TimeoutError:
            return found


async def test_slow_watch_finds_a_gap_and_goes_on() -> None:
    history = EventHistory(Revision(0, 0), events_max=10)
    watch = history.watch("/", None)
    for i in range(1, 22):
        history.publish(changes(i, i))
    assert await drain(watch) == [Event(EventKind.GAP, "/", Revision(1, 21))]
    history.publish(changes(22, 23))
    assert await drain(watch) == changes(22, 23)


async def test_watch_resumes_while_the_history_reaches_back() -> None:
    history = EventHistory(Revision(0, 0), events_max=10)
    history.publish(changes(1, 20))
    assert await drain(history.watch("/", Revision(1, 5))) == changes(6, 20)
    assert await drain(history.watch("/", Revision(0, 0))) == changes(1, 20)
    history.publish(changes(21, 21))
    assert await drain(history.watch("/", Revision(1, 11))) == changes(12, 21)
    gap = [Event(EventKind.GAP, "/", Revision(1, 21))]
    assert await drain(history.watch("/", Revision(1, 10))) == gap
    assert await drain(history.watch("/", Revision(1, 22))) == gap


async def test_waiting_watch_of_a_quiet_path_never_finds_a_gap() -> None:
    history = EventHistory(Revision(0, 0), events_max=10)
    watch = history.watch("/quiet", None)
    waiting = asyncio.gather(anext(watch))
    for i in range(1, 100):
        history.publish(changes(i, i))
        await asyncio.sleep(0)
    history.publish(changes(100, 100, "/quiet/x"))
    assert await waiting == changes(100, 100, "/quiet/x")


async def test_long_history_is_read_without_holding_up_the_loop() -> None:
    history = EventHistory(Revision(0, 0))
    watch = history.watch("/", None)
    history.publish(changes(1, 10_000))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.get_running_loop().create_task(count_turns())
    assert len([await anext(watch) for _ in range(10_000)]) == 10_000
    counting.cancel()
    assert turns > 20


async def test_reader_that_gave_up_is_forgotten() -> None:
    history = EventHistory(Revision(0, 0))
    watch = history.watch("/", None)
    assert await drain(watch) == []
    assert history._parked == []
