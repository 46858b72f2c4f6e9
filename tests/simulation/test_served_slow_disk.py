"""A metadata server whose disk is slow: its clients wait, and do not make it worse."""

import asyncio
from typing import Any

import pytest

from anabranch import limits
from anabranch.metadata.commands import Command, Write
from anabranch.metadata.embedded import EmbeddedBacking
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import SessionEvent
from anabranch.runtime import Runtime
from anabranch.testing.scenarios.served_metadata import SERVER, URL, serve
from anabranch.testing.simulation import World

TIMEOUT_S = 6.0
SLOWNESS = 8000.0
"""The disk takes 64 KiB in a second."""
WRITES = 60
VALUE = bytes(15 * limits.KIB)


@pytest.mark.parametrize("seed", range(3))
def test_more_writes_than_a_slow_disk_takes_in_a_timeout_are_all_done_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METADATA_FRAME_BYTES_USUAL", 16 * limits.KIB)
    monkeypatch.setattr(limits, "METADATA_UNANSWERED_WRITE_BYTES_MAX", 128 * limits.KIB)
    monkeypatch.setattr(limits, "METADATA_QUEUED_BYTES_PER_CONNECTION_MAX", 256 * limits.KIB)
    proposed: list[tuple[int, int]] = []
    propose = EmbeddedBacking.propose

    async def note(self: EmbeddedBacking, command: Command) -> Any:
        if isinstance(command, Write) and command.request:
            proposed.append((command.session, command.request))
        return await propose(self, command)

    monkeypatch.setattr(EmbeddedBacking, "propose", note)
    heard: list[SessionEvent] = []

    async def load(runtime: Runtime) -> None:
        store = await ServedStore.open(runtime, URL, session_timeout_s=TIMEOUT_S)
        events = store.session_events()

        async def listen() -> None:
            heard.extend([event async for event in events])

        listening = asyncio.get_running_loop().create_task(listen())
        await asyncio.gather(*(store.put(f"/k{i}", VALUE) for i in range(WRITES)))
        await store.close()
        await listening

    async def main(world: World) -> None:
        server = world.process(SERVER)
        server.start(serve)
        await asyncio.sleep(1)
        server.machine.disk.slow_down(SLOWNESS)
        began_s = world.now_s()
        async with asyncio.timeout(20 * TIMEOUT_S):
            await world.process("client").run(load)
        assert world.now_s() - began_s > 2 * TIMEOUT_S, "the disk was slow"

    World(seed).run(main)
    assert heard == [], "the connection was never given up"
    assert len(proposed) == len(set(proposed)), "nothing was written twice"
