"""The relay that cuts connections, and the load whose judgement must notice what is wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.relay import Relay, relay_to
from anabranch.testing.shared_load import COUNTS, OWNED, SHARED, Client, Findings, judge, look

Damage = Callable[[MetadataStore, list[Client]], Awaitable[object]]


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with relay_to(server.sockets[0].getsockname()[1]) as relay:
        yield relay
    server.close()
    await server.wait_closed()


async def echoes(relay: Relay) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    try:
        writer.write(b"hello")
        return await reader.read(5) == b"hello"
    except ConnectionError:
        return False
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.001)


async def test_relay_passes_bytes_cuts_refuses_and_accepts(relay: Relay) -> None:
    assert await echoes(relay)
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    relay.cut()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    assert relay.cuts >= 1
    assert await echoes(relay)
    relay.refuse()
    assert not await echoes(relay)
    relay.accept()
    assert await echoes(relay)


async def test_relay_holds_what_comes_and_passes_it_late(relay: Relay) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    relay.hold()
    writer.write(b"hello")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.2)
    relay.accept()
    assert await reader.readexactly(5) == b"hello"
    assert relay.cuts == 0
    writer.close()


async def test_relay_holds_answers_alone() -> None:
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            heard.extend(data)
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with relay_to(server.sockets[0].getsockname()[1]) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        relay.hold_answers()
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.2)
        assert heard == b"hello"
        relay.accept()
        assert await reader.readexactly(5) == b"hello"
        writer.close()
    server.close()
    await server.wait_closed()


async def test_relay_cuts_at_random_and_accepts_afterwards(relay: Relay) -> None:
    cutting = asyncio.ensure_future(relay.cut_at_random(Random(1)))

    async def cut() -> bool:
        return not await echoes(relay)

    await until(cut)
    cutting.cancel()
    await asyncio.gather(cutting, return_exceptions=True)
    assert await echoes(relay)


async def run_load(damage: Damage) -> Findings:
    runtime, found = real_runtime(), Findings()
    store = await open_store("memory:", runtime)
    assert isinstance(store, LocalHandle)
    clients = [
        Client(await store.handle(), f"c{i}", runtime.clock, found, counters=2) for i in range(3)
    ]
    for client in clients:
        await client.listen()
    for client in clients:
        client.begin()
    looking = asyncio.ensure_future(look(clients, found))

    async def worked() -> bool:
        return found.locks >= 6 and found.acknowledged >= 30

    await until(worked)
    for client in clients:
        await client.stop()
    await damage(store, clients)
    await judge(clients, store, found)
    looking.cancel()
    for client in clients:
        await client.close()
    await store.close()
    return found


async def nothing(store: MetadataStore, clients: list[Client]) -> None:
    pass


async def test_load_on_a_good_store_finds_nothing() -> None:
    found = await run_load(nothing)
    assert found.wrong == []
    assert (found.unknown, found.gaps, found.sessions_lost) == (0, 0, 0)
    assert found.guarded >= 6
    assert found.events == 3 * (found.acknowledged + 2), "all counts, their parent and the end"


async def untold(store: MetadataStore, clients: list[Client]) -> None:
    clients[1].heard._told[clients[0].counters[0].path].popitem()


async def two_holders(store: MetadataStore, clients: list[Client]) -> None:
    class Held:
        held = True

    clients[0].lock = clients[1].lock = Held()  # type: ignore[assignment]
    await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda store, _: store.put(f"{COUNTS}/c0-1", b"0"), "acknowledged was"),
        (lambda store, _: store.put(SHARED, b"1"), "under the lock"),
        (lambda store, _: store.delete(f"{OWNED}/c1"), "its node exists: False"),
        (untold, "c1 was told"),
        (two_holders, "held by"),
    ],
)
async def test_load_notices(damage: Damage, said: str) -> None:
    found = await run_load(damage)
    assert any(said in wrong for wrong in found.wrong), found
