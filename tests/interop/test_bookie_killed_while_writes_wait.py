"""A real bookie is killed while writes of metadata wait: publishing goes on, hardly slower."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anabranch.client import Client, Producer
from anabranch.ledgers.bookkeeper.inspection import LedgersOnBookies, Unreadable
from anabranch.ledgers.bookkeeper.ledger_metadata import State
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.metadata.factory import open_store
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.testing.held_server import HeldServer
from anabranch.testing.servers import bookkeeper, oxia
from anabranch.testing.servers.bookkeeper import BookKeeper
from anabranch.testing.servers.our_brokers import init_cluster
from anabranch.testing.staged_replacement import LONG_S

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

TOPIC = "persistent://public/default/t"
PAUSE_S = 0.005
SPAN_S = 5.0
RISE_MAX, BUSY_S = 3.0, 0.05
"""Of the 99th percentile while writes wait; up to so much it says nothing on a busy machine."""
LOST_RISE_MAX, LOST_BUSY_S = 10.0, 0.25
"""The same when a bookie is lost, and in the moment after the switch."""
LOST_S_MAX = 5.0
"""The longest wait for a receipt when a bookie is lost: another one takes its place."""


@dataclass
class Sent:
    """What became of messages, with the time that each took."""

    took_s: list[float] = field(default_factory=list)

    def p99_s(self) -> float:
        return sorted(self.took_s)[int(len(self.took_s) * 0.99)]


class Sending:
    """Sends numbers at a steady pace, and does not wait for receipts before the next one."""

    def __init__(self, producer: Producer) -> None:
        self.count = 0
        self._producer = producer

    async def during(self, span_s: float) -> Sent:
        sent = Sent()
        tasks = []
        until_s = time.monotonic() + span_s
        while time.monotonic() < until_s:
            tasks.append(asyncio.ensure_future(self._send(sent)))
            await asyncio.sleep(PAUSE_S)
        async with asyncio.timeout(LONG_S):
            await asyncio.gather(*tasks)
        return sent

    async def _send(self, sent: Sent) -> None:
        number, self.count = self.count, self.count + 1
        began_s = time.monotonic()
        await self._producer.send(b"%d" % number)
        sent.took_s.append(time.monotonic() - began_s)


async def written_to(registry: str) -> str:
    """A bookie that the open ledger is on."""
    runtime = real_runtime()
    store = await open_store(registry, runtime)
    ledgers = await LedgersOnBookies.open(runtime, store, BookKeeperSettings())
    found = [
        each.segments[-1].bookies[0]
        async for each in ledgers.list()
        if not isinstance(each, Unreadable) and each.state is State.OPEN
    ]
    await ledgers.close()
    await store.close()
    return found[-1]


@pytest.fixture
async def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[HeldServer, BookKeeper, str]]:
    plain = ReplaceableMetadata.open

    async def patient(*given: Any, **more: Any) -> ReplaceableMetadata:
        return await plain(*given, table=TABLE.holding_for(LONG_S), **more)

    monkeypatch.setattr(ReplaceableMetadata, "open", patient)
    async with AsyncExitStack() as held:
        registry = held.enter_context(oxia(folder=tmp_path / "registry")).url
        init_cluster(registry)
        bookies = held.enter_context(bookkeeper(registry, 3, folder=tmp_path / "bookies"))
        server = HeldServer(tmp_path, held)
        await server.start(registry)
        yield server, bookies, registry
        server.hold.end()


@pytest.mark.goal("454.A35", part="real bookie")
async def test_publishing_goes_on_without_a_bookie_while_writes_wait(
    running: tuple[HeldServer, BookKeeper, str],
) -> None:
    held, bookies, registry = running
    async with Client(held.server.service_url) as client:
        producer = await client.producer(TOPIC, batching=None)
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest")
        sending = Sending(producer)
        await sending.during(SPAN_S)  # until everything is warm
        steady = await sending.during(SPAN_S)
        await held.reach("freezing")
        frozen = await sending.during(SPAN_S)
        port = int((await written_to(registry)).rpartition(":")[2])
        lost = asyncio.ensure_future(sending.during(SPAN_S))
        await asyncio.sleep(SPAN_S / 5)
        bookies.members[bookies.ports.index(port)].kill()
        hurt = await lost
        held.hold.end()
        await held.until_switched()
        after = await sending.during(SPAN_S)
        async with asyncio.timeout(LONG_S):
            found = [int((await consumer.receive()).value) for _ in range(sending.count)]
    figures = {
        "steady": steady.p99_s(),
        "frozen": frozen.p99_s(),
        "hurt": hurt.p99_s(),
        "after": after.p99_s(),
    }
    print({name: f"{took_s * 1000:.1f} ms" for name, took_s in figures.items()})
    print(f"the longest wait around the kill was {max(hurt.took_s):.3f} s")
    assert found == list(range(sending.count)), "each once, in order, none refused"
    assert frozen.p99_s() <= max(RISE_MAX * steady.p99_s(), BUSY_S), figures
    lost_s = max(LOST_RISE_MAX * steady.p99_s(), LOST_BUSY_S)
    assert max(hurt.p99_s(), after.p99_s()) <= lost_s, figures
    assert max(*hurt.took_s, *after.took_s) <= LOST_S_MAX
