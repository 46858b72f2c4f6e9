"""Writes that wait for a connection while their session ends."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from anabranch.errors import AnabranchError, SessionExpired
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import ABSENT, Put, SessionEvent, Stat
from anabranch.runtime import Runtime
from anabranch.testing.scenarios.served_metadata import SERVER, URL, serve
from anabranch.testing.simulation import World

TIMEOUT_S = 6.0


async def outcome_of(write: Awaitable[Any]) -> Any:
    try:
        return await write
    except AnabranchError as error:
        return error


def test_node_asked_for_in_one_session_is_never_made_in_the_next() -> None:
    async def story(world: World) -> None:
        world.process(SERVER).start(serve)
        process = world.process("client")

        async def client(runtime: Runtime) -> None:
            store = await ServedStore.open(runtime, URL, session_timeout_s=TIMEOUT_S)
            session, events = store.session, store.session_events()
            cut = world.network.partition(["client"], [SERVER])
            assert await anext(events) is SessionEvent.CONNECTION_LOST
            loop = asyncio.get_running_loop()
            queued = [
                loop.create_task(outcome_of(write))
                for write in (
                    store.put("/mine", b"", ABSENT, ephemeral=True),
                    store.put("/anybodys", b"", ABSENT),
                    store.batch([Put("/b/anybodys", b""), Put("/b/mine", b"", ephemeral=True)]),
                )
            ]
            assert await anext(events) is SessionEvent.SESSION_LOST
            at_once = await outcome_of(store.put("/late", b"", ABSENT, ephemeral=True))
            assert isinstance(at_once, SessionExpired), at_once
            cut.heal()
            assert await anext(events) is SessionEvent.SESSION_REESTABLISHED
            assert store.session != session
            mine, anybodys, batch = await asyncio.gather(*queued)
            assert isinstance(mine, SessionExpired), mine
            assert "was not carried out" in str(mine)
            assert isinstance(anybodys, Stat), "it does not depend on a session"
            assert [type(outcome) for outcome in batch] == [SessionExpired, SessionExpired]
            assert await store.children("/") == ["anabranch", "anybodys"]
            stat = await store.put("/mine", b"", ABSENT, ephemeral=True)
            assert stat.created_by_self
            await store.close()

        await process.run(client)

    for seed in range(3):
        World(seed).run(story)
