"""A disk that stalls under load: memory stays bounded, and everything goes on when it is back."""

import asyncio

import pytest

from anabranch.client import Client
from anabranch.runtime import Runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.simulation import World
from anabranch.testing.simulation.process import ProcessFailed
from anabranch.testing.simulation.streams import RECEIVE_BYTES_MAX

TOPIC = "persistent://public/default/stalled"
HIGH = 200_000
LOW = 100_000
PAYLOAD_BYTES = 10_000
PRODUCERS = 4
MESSAGES_EACH = 400
STALL_S = 20.0
RECEIVED_BYTES_MAX = RECEIVE_BYTES_MAX + 2 * PAYLOAD_BYTES
"""What a connection may have received when it is paused: with the rest of a frame before it."""


@pytest.mark.parametrize("seed", range(3))
def test_a_stalled_disk_bounds_what_waits_for_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_HIGH", HIGH)
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_LOW", LOW)
    receipts, highest = World(seed).run(stall_and_go_on)
    assert receipts == PRODUCERS * MESSAGES_EACH
    assert HIGH <= highest <= HIGH + PRODUCERS * RECEIVED_BYTES_MAX
    assert highest < PRODUCERS * MESSAGES_EACH * PAYLOAD_BYTES // 4


async def stall_and_go_on(world: World) -> tuple[int, int]:
    """Publish while the disk stalls: the receipts in the end, and the most bytes that waited."""
    servers: list[Standalone] = []
    receipts = 0
    stalled = asyncio.Event()

    async def serve(runtime: Runtime) -> None:
        server = Standalone(runtime, Settings(host="server", data="/data"))
        servers.append(server)
        await server.start()
        await server.serve_until(asyncio.Event())

    async def produce(runtime: Runtime) -> None:
        nonlocal receipts
        client = Client(
            "pulsar://server:6650",
            runtime,
            on_failure=lambda name, error: world.fail(ProcessFailed(name), error),
        )
        producer = await client.producer(TOPIC, batching=None, send_timeout_s=None)
        await stalled.wait()
        waiting = [await producer.send_soon(bytes(PAYLOAD_BYTES)) for _ in range(MESSAGES_EACH)]
        await asyncio.gather(*waiting)
        receipts += MESSAGES_EACH
        await client.close()

    server = world.process("server")
    server.start(serve)
    await asyncio.sleep(1)
    producers = [world.process(f"producer-{number}") for number in range(PRODUCERS)]
    for process in producers:
        process.start(produce)
    await asyncio.sleep(5)
    server.machine.disk.slow_down(1e6)
    stalled.set()
    waited = 0.0
    highest = 0
    while waited < STALL_S:
        await asyncio.sleep(0.1)
        waited += 0.1
        highest = max(highest, servers[0]._stores.ledgers.pressure.pending_bytes)
    assert not receipts
    server.machine.disk.slow_down(1.0)
    for process in producers:
        await process.wait_exit()
    assert servers[0]._stores.ledgers.pressure.pending_bytes == 0
    return receipts, highest
