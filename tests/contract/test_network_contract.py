"""What every `Network` does: real TCP on the loopback and the simulated one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch.runtime import Network, Runtime
from anabranch.runtime.network import Connection
from anabranch.runtime.real import RealNetwork
from anabranch.testing.simulation import World

Work = Callable[[Network, Network, str], Awaitable[Any]]
OnNetwork = Callable[[Work], Any]


def on_real_network(work: Work) -> Any:
    return asyncio.run(_real(work))


async def _real(work: Work) -> Any:
    return await work(RealNetwork(), RealNetwork(), "127.0.0.1")


def on_simulated_network(seed: int) -> OnNetwork:
    def run(work: Work) -> Any:
        async def main(world: World) -> Any:
            server = world.process("server").runtime.network

            async def inside(runtime: Runtime) -> Any:
                return await work(server, runtime.network, "server")

            return await world.process("client").run(inside)

        return World(seed).run(main)

    return run


@pytest.fixture(params=["real", *(f"simulated-{seed}" for seed in range(6))])
def on_network(request: pytest.FixtureRequest) -> OnNetwork:
    kind, _, seed = request.param.partition("-")
    return on_simulated_network(int(seed)) if kind == "simulated" else on_real_network


class End:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.received = bytearray()
        self.events: list[str] = []
        self.lost: asyncio.Event = asyncio.Event()
        self.error: Exception | None = None

    def connection_made(self, transport: Any, /) -> None:
        self.connection = transport
        self.events.append("made")

    def data_received(self, data: bytes, /) -> None:
        assert data
        self.received += data

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        self.events.append("lost")
        self.error = exc
        self.lost.set()

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    @property
    def wire(self) -> Connection:
        assert self.connection is not None
        return self.connection


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    for _ in range(int(limit_s / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"not so after {limit_s} s")


async def pair(server: Network, client: Network, host: str) -> tuple[End, End]:
    accepted: list[End] = []

    def accept() -> End:
        accepted.append(End())
        return accepted[-1]

    listener = await server.listen(host, 0, accept)
    assert listener.port > 0
    near = await client.connect(host, listener.port, End)
    assert isinstance(near, End)
    await until(lambda: bool(accepted) and bool(accepted[0].events))
    await listener.close()
    return near, accepted[0]


def test_bytes_arrive_whole_and_in_order_both_ways(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        near, far = await pair(server, client, host)
        there = bytes(range(256)) * 4096
        back = there[::-1]
        for start in range(0, len(there), 10_000):
            near.wire.write(there[start : start + 10_000])
            far.wire.writelines([back[start : start + 5_000], back[start + 5_000 : start + 10_000]])
        await until(lambda: len(far.received) == len(near.received) == len(there))
        assert far.received == there
        assert near.received == back
        near.wire.close()
        await far.lost.wait()

    on_network(work)


def test_each_side_knows_the_other(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        near, far = await pair(server, client, host)
        assert near.events == far.events == ["made"]
        assert near.wire.get_extra_info("peername")[1] == far.wire.get_extra_info("sockname")[1]
        assert far.wire.get_extra_info("peername")[1] == near.wire.get_extra_info("sockname")[1]
        assert near.wire.get_extra_info("peername")[0] == host
        assert near.wire.get_extra_info("unheard of", 7) == 7
        near.wire.abort()
        await far.lost.wait()

    on_network(work)


def test_close_sends_what_is_queued_then_ends_both_sides(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        near, far = await pair(server, client, host)
        content = b"x" * 3_000_000
        near.wire.write(content)
        near.wire.close()
        assert near.wire.is_closing()
        await near.lost.wait()
        await far.lost.wait()
        assert far.received == content
        assert near.error is None
        assert far.error is None
        assert far.events == ["made", "eof", "lost"]
        assert near.events[-1] == "lost"
        assert far.wire.is_closing()

    on_network(work)


def test_abort_ends_both_sides_at_once_and_drops_what_is_queued(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        near, far = await pair(server, client, host)
        far.wire.pause_reading()
        content = b"x" * 20_000_000
        near.wire.write(content)
        assert near.wire.get_write_buffer_size() > 0
        near.wire.abort()
        await near.lost.wait()
        assert near.error is None
        far.wire.resume_reading()
        await far.lost.wait()
        assert len(far.received) < len(content)

    on_network(work)


def test_a_slow_reader_holds_back_the_writer(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        near, far = await pair(server, client, host)
        far.wire.pause_reading()
        written = 0
        while "pause" not in near.events:
            near.wire.write(b"y" * 100_000)
            written += 100_000
            await asyncio.sleep(0)
        assert written < 100_000_000
        assert near.wire.get_write_buffer_size() > 0
        seen = len(far.received)
        await asyncio.sleep(0.2)
        assert len(far.received) == seen
        far.wire.resume_reading()
        await until(lambda: len(far.received) == written)
        await until(lambda: near.events[-1] == "resume")
        near.wire.close()
        await far.lost.wait()

    on_network(work)


def test_writes_after_close_are_dropped(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        near, far = await pair(server, client, host)
        near.wire.close()
        await near.lost.wait()
        near.wire.write(b"too late")
        near.wire.close()
        near.wire.abort()
        await far.lost.wait()
        assert far.received == b""

    on_network(work)


def test_nobody_listening_is_refused(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        near, far = await pair(server, client, host)
        port = near.wire.get_extra_info("peername")[1]
        with pytest.raises(ConnectionRefusedError):
            await client.connect(host, port, End)
        near.wire.write(b"the open connection stays")
        await until(lambda: far.received == b"the open connection stays")
        near.wire.close()
        await far.lost.wait()

    on_network(work)


def test_a_port_in_use_cannot_be_had(on_network: OnNetwork) -> None:
    async def work(server: Network, client: Network, host: str) -> None:
        listener = await server.listen(host, 0, End)
        port = listener.port
        with pytest.raises(OSError, match="in use"):
            await server.listen(host, port, End)
        await listener.close()
        again = await server.listen(host, port, End)
        assert again.port == port
        await again.close()

    on_network(work)
