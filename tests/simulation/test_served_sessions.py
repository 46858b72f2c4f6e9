"""When the sessions of a served store end, to the tenth of a second of virtual time.

The server's disk and the net are quick here, so that what is measured is the rule and not the
weather.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from anabranch import limits
from anabranch.errors import OutcomeUnknown, Unreachable
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import ABSENT, Event, EventKind, Revision, SessionEvent, Stat
from anabranch.runtime import Runtime
from anabranch.testing.scenarios.served_metadata import SERVER, URL, serve
from anabranch.testing.simulation import Process, World

T = TypeVar("T")
TIMEOUT_S = 6.0
SLACK_S = 2 * limits.METADATA_SESSION_TICK_S + 0.2
LOST, BACK = SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED
GONE, NEW = SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED


class Stage:
    """A server, a victim that owns `/e`, and somebody who looks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server = world.process(SERVER)
        self.server.start(serve)
        self.victim = world.process("victim")
        self.looker = world.process("looker")
        self.heard: list[SessionEvent] = []
        self.heard_at: dict[SessionEvent, float] = {}
        self.vanished_at: float | None = None

    async def set(self) -> tuple[ServedStore, ServedStore]:
        victim, looker = [await self.opened(p) for p in (self.victim, self.looker)]
        await self.inside(self.victim, lambda: victim.put("/e", b"", ABSENT, ephemeral=True))

        async def listen(runtime: Runtime) -> None:
            async for event in victim.session_events():
                self.heard.append(event)
                self.heard_at[event] = self.world.now_s()

        async def look(runtime: Runtime) -> None:
            async for event in looker.watch("/e", since=Revision(0, 0)):
                if event.kind is EventKind.DELETED:
                    self.vanished_at = self.world.now_s()

        self.keep(self.victim, listen)
        self.keep(self.looker, look)
        await asyncio.sleep(0.1)
        return victim, looker

    async def opened(self, process: Process) -> ServedStore:
        store: ServedStore = await process.run(
            lambda runtime: ServedStore.open(runtime, URL, session_timeout_s=TIMEOUT_S)
        )
        return store

    async def inside(self, process: Process, call: Callable[[], Awaitable[T]]) -> T:
        async def run(runtime: Runtime) -> T:
            return await call()

        result: T = await process.run(run)
        return result

    def keep(self, process: Process, work: Callable[[Runtime], Awaitable[None]]) -> None:
        async def swallow() -> None:
            await asyncio.gather(process.run(work), return_exceptions=True)  # type: ignore[arg-type]

        self.world.loop.create_task(swallow(), context=self.world.context)


def played(story: Callable[[Stage], Awaitable[None]], seed: int = 1) -> None:
    async def main(world: World) -> None:
        await story(Stage(world))

    World(seed).run(main)


@pytest.mark.goal("core.M3", part="served", broken_by="session_never_runs_out")
def test_node_of_a_killed_client_vanishes_within_the_timeout() -> None:
    async def story(stage: Stage) -> None:
        await stage.set()
        killed_at = stage.world.now_s()
        stage.victim.crash()
        await asyncio.sleep(TIMEOUT_S + SLACK_S)
        assert stage.vanished_at is not None, "it is still there"
        # The last renewal may be a third of the timeout old.
        assert TIMEOUT_S * 0.6 < stage.vanished_at - killed_at < TIMEOUT_S + SLACK_S

    played(story)


@pytest.mark.goal("core.M3", part="served", broken_by="ephemeral_outlives_its_session")
def test_node_of_a_paused_client_vanishes_and_the_client_learns_it() -> None:
    async def story(stage: Stage) -> None:
        victim, looker = await stage.set()
        session = victim.session
        stage.victim.pause(2 * TIMEOUT_S)
        await asyncio.sleep(TIMEOUT_S + SLACK_S)
        assert stage.vanished_at is not None, "it is still there"
        assert await stage.inside(stage.looker, lambda: looker.children("/")) == ["anabranch"]
        assert victim.session_valid_until < stage.world.loop.time()
        await asyncio.sleep(TIMEOUT_S)
        assert stage.heard[-2:] == [GONE, NEW]
        assert victim.session != session
        assert (
            await stage.inside(stage.victim, lambda: victim.put("/e", b"", ABSENT, ephemeral=True))
        ).created_by_self

    played(story)


@pytest.mark.goal("core.M3", part="served", broken_by="reattaching_begins_a_new_session")
def test_client_that_comes_back_in_time_keeps_its_node() -> None:
    async def story(stage: Stage) -> None:
        victim, _ = await stage.set()
        session = victim.session
        for end in list(stage.server.incarnation.endpoints):  # type: ignore[union-attr]
            end.reset()
        cut = stage.world.network.partition(["victim"], [SERVER])
        await asyncio.sleep(TIMEOUT_S / 2)
        assert stage.heard == [LOST]
        cut.heal()
        await asyncio.sleep(2 * TIMEOUT_S)
        assert stage.heard == [LOST, BACK]
        assert stage.vanished_at is None
        assert victim.session == session
        node = await stage.inside(stage.victim, lambda: victim.get("/e"))
        assert node is not None
        assert node.stat.created_by_self

    played(story)


@pytest.mark.goal("core.M3", part="served", broken_by="session_clock_starts_where_it_stood")
def test_restarted_server_gives_every_session_its_full_timeout() -> None:
    async def story(stage: Stage) -> None:
        await stage.set()
        stage.server.crash()
        cut = stage.world.network.partition(["victim"], [SERVER])
        await asyncio.sleep(2 * TIMEOUT_S)
        stage.server.restart()
        began = stage.world.now_s()
        await asyncio.sleep(TIMEOUT_S * 0.9)
        assert stage.vanished_at is None, "the server has not been there for a timeout"
        await asyncio.sleep(TIMEOUT_S * 0.1 + SLACK_S + 1.0)
        assert stage.vanished_at is not None, "it is still there"
        assert stage.vanished_at - began >= TIMEOUT_S
        cut.heal()

    played(story)


@pytest.mark.goal("core.M3", part="served", broken_by="paused_server_blames_its_clients")
def test_pause_of_the_server_does_not_count_against_its_clients() -> None:
    async def story(stage: Stage) -> None:
        await stage.set()
        cut = stage.world.network.partition(["victim"], [SERVER])
        await asyncio.sleep(TIMEOUT_S / 2)
        stage.server.pause(1.5 * TIMEOUT_S)
        await asyncio.sleep(1.5 * TIMEOUT_S + TIMEOUT_S * 0.4)
        assert stage.vanished_at is None, "the server has not been there for a timeout"
        await asyncio.sleep(TIMEOUT_S * 0.1 + SLACK_S + 1.0)
        assert stage.vanished_at is not None, "only the pause was to be forgiven"
        cut.heal()

    played(story)


@pytest.mark.goal("core.M3", part="served", broken_by="lease_is_stretched")
def test_client_gives_up_before_the_server_does() -> None:
    async def story(stage: Stage) -> None:
        await stage.set()
        await asyncio.sleep(TIMEOUT_S)  # renewals have been answered
        # The server goes on hearing renewals whose answers do not come back.
        stage.world.network.partition([SERVER], ["victim"], one_way=True)
        await asyncio.sleep(3 * TIMEOUT_S)
        assert stage.heard[:2] == [LOST, GONE]
        assert stage.vanished_at is not None
        assert stage.heard_at[GONE] <= stage.vanished_at

    played(story)


@pytest.mark.goal("core.M2", part="served", broken_by="write_sent_again_is_done_again")
def test_write_whose_answer_was_lost_is_answered_after_coming_back() -> None:
    async def story(stage: Stage) -> None:
        victim, looker = await stage.set()
        stage.world.network.partition([SERVER], ["victim"], one_way=True).heal()
        cut = stage.world.network.partition([SERVER], ["victim"], one_way=True)
        writing = stage.world.loop.create_task(
            stage.inside(stage.victim, lambda: victim.put("/w", b"1", ABSENT)),
            context=stage.world.context,
        )
        await asyncio.sleep(0.5)
        assert await stage.inside(stage.looker, lambda: looker.exists("/w")), "it was carried out"
        assert not writing.done()
        for end in list(stage.victim.incarnation.endpoints):  # type: ignore[union-attr]
            end.reset()
        cut.heal()
        stat: Stat = await writing
        node = await stage.inside(stage.looker, lambda: looker.get("/w"))
        assert node is not None
        assert node.stat == stat

    played(story)


@pytest.mark.goal("core.M2", part="served", broken_by="lost_session_calls_writes_undone")
def test_write_in_flight_when_the_session_is_lost_is_not_known_and_can_be_read_back() -> None:
    async def story(stage: Stage) -> None:
        victim, _ = await stage.set()
        cut = stage.world.network.partition([SERVER], ["victim"], one_way=True)
        with pytest.raises(OutcomeUnknown):
            await stage.inside(stage.victim, lambda: victim.put("/w", b"1", ABSENT))
        with pytest.raises(Unreachable):
            await stage.inside(stage.victim, lambda: victim.put("/later", b"", ABSENT))
        cut.heal()
        await asyncio.sleep(TIMEOUT_S)
        assert await stage.inside(stage.victim, lambda: victim.exists("/w"))
        assert not await stage.inside(stage.victim, lambda: victim.exists("/later"))

    played(story)


@pytest.mark.goal("core.M5", part="served", broken_by="watch_resumes_one_late")
def test_watch_goes_on_over_lost_connections_without_a_gap() -> None:
    async def story(stage: Stage) -> None:
        victim, looker = await stage.set()
        told: list[Event] = []

        async def watch(runtime: Runtime) -> None:
            async for event in victim.watch("/k"):
                assert event.path == "/k"
                told.append(event)

        stage.keep(stage.victim, watch)
        await asyncio.sleep(0.1)
        written: list[int] = []
        for number in range(30):
            stat = await stage.inside(stage.looker, lambda: looker.put("/k", b""))
            written.append(stat.revision.index)
            if number % 7 == 3:
                for end in list(stage.victim.incarnation.endpoints):  # type: ignore[union-attr]
                    end.reset()
            if number == 20:
                stage.server.crash()
                await asyncio.sleep(0.5)
                stage.server.restart()
        await asyncio.sleep(TIMEOUT_S)
        assert [event.revision.index for event in told] == written

    played(story)
