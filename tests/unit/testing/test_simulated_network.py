"""Faults of the simulated network, each shown alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch.runtime import Runtime
from anabranch.testing.simulation import Conditions, World

CALM = Conditions(delay_s=0.001, jitter_s=0.0, split=0.0, stall_limit_s=20.0)
PORT = 6650


class Ping:
    """Counts what comes; answers if it is a server's."""

    def __init__(self, answers: bool = False) -> None:
        self.answers = answers
        self.chunks: list[bytes] = []
        self.error: BaseException | None = None
        self.lost_at_s: float | None = None
        self.wire: Any = None

    def connection_made(self, transport: Any, /) -> None:
        self.wire = transport

    def data_received(self, data: bytes, /) -> None:
        self.chunks.append(data)
        if self.answers:
            self.wire.write(data)

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        self.error = exc
        self.lost_at_s = asyncio.get_running_loop().time() - 1000.0

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    @property
    def received(self) -> bytes:
        return b"".join(self.chunks)


class Pair:
    """A client connected to an answering server, each a process on its own machine."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server = world.process("server")
        self.client = world.process("client")
        self.accepted: list[Ping] = []
        self.near = Ping()

    async def serve(self, runtime: Runtime) -> None:
        def accept() -> Ping:
            self.accepted.append(Ping(answers=True))
            return self.accepted[-1]

        await runtime.network.listen("0.0.0.0", PORT, accept)
        await asyncio.Event().wait()

    async def connect(self, runtime: Runtime) -> None:
        await runtime.network.connect("server", PORT, lambda: self.near)

    async def redial(self) -> None:
        self.near = Ping()
        await self.client.run(self.connect)

    @property
    def far(self) -> Ping:
        return self.accepted[-1]


def play(story: Callable[[Pair], Awaitable[None]], seed: int = 1, **changes: Any) -> None:
    async def main(world: World) -> None:
        pair = Pair(world)
        pair.server.start(pair.serve)
        await asyncio.sleep(0.1)
        await pair.client.run(pair.connect)
        await asyncio.sleep(0.1)
        await story(pair)

    conditions = Conditions(
        **{name: changes.get(name, getattr(CALM, name)) for name in Conditions.__slots__}
    )
    World(seed, conditions=conditions).run(main)


def test_bytes_are_cut_and_joined_anywhere_but_never_changed() -> None:
    sent = b"".join(b"%05d" % n for n in range(200))
    shapes = set()

    async def story(pair: Pair) -> None:
        for start in range(0, len(sent), 50):
            pair.near.wire.write(sent[start : start + 50])
            await asyncio.sleep(0.0003)
        await asyncio.sleep(5)
        assert pair.far.received == sent == pair.near.received
        shapes.add(tuple(map(len, pair.far.chunks)))

    for seed in range(5):
        play(story, seed, split=0.3, jitter_s=0.01)
    assert len(shapes) == 5


def test_connections_overtake_each_other() -> None:
    async def story(pair: Pair) -> None:
        first = pair.near
        order: list[str] = []
        first.data_received = lambda data: order.append("first")  # type: ignore[method-assign]
        await pair.redial()
        pair.near.data_received = lambda data: order.append("second")  # type: ignore[method-assign]
        for _ in range(30):
            first.wire.write(b"1")
            pair.near.wire.write(b"2")
            await asyncio.sleep(1)
        firsts = [order[n : n + 2] for n in range(0, 60, 2)]
        assert ["first", "second"] in firsts
        assert ["second", "first"] in firsts

    play(story, jitter_s=0.05)


def test_a_partition_holds_bytes_and_lets_them_go_when_it_heals() -> None:
    async def story(pair: Pair) -> None:
        partition = pair.world.network.partition(["client"], ["server"])
        pair.near.wire.write(b"held")
        await asyncio.sleep(15)
        assert pair.far.received == b""
        partition.heal()
        await asyncio.sleep(3)
        assert pair.far.received == b"held"
        assert pair.near.received == b"held"
        await asyncio.sleep(60)
        assert pair.near.error is None
        assert pair.near.lost_at_s is None

    play(story)


def test_bytes_under_way_when_a_partition_begins_are_held_too() -> None:
    async def story(pair: Pair) -> None:
        pair.near.wire.write(b"under way")
        pair.world.network.partition(["client"], ["server"])
        await asyncio.sleep(5)
        assert pair.far.received == b""
        pair.world.network.heal()
        await asyncio.sleep(3)
        assert pair.near.received == b"under way"

    play(story)


def test_a_long_partition_ends_the_end_that_waits_and_leaves_the_idle_one_half_open() -> None:
    async def story(pair: Pair) -> None:
        partition = pair.world.network.partition(["client"], ["server"])
        pair.near.wire.write(b"never")
        await asyncio.sleep(30)
        assert isinstance(pair.near.error, TimeoutError)
        assert pair.far.lost_at_s is None
        partition.heal()
        await asyncio.sleep(5)
        assert pair.far.lost_at_s is None
        pair.far.wire.write(b"is anybody there?")
        await asyncio.sleep(1)
        assert isinstance(pair.far.error, ConnectionResetError)

    play(story)


def test_a_one_way_partition_lets_the_other_way_through_but_starves_its_acknowledgements() -> None:
    async def story(pair: Pair) -> None:
        pair.world.network.partition(["server"], ["client"], one_way=True)
        pair.near.wire.write(b"there")
        await asyncio.sleep(5)
        assert pair.far.received == b"there"
        assert pair.near.received == b""
        await asyncio.sleep(20)
        assert isinstance(pair.near.error, TimeoutError)
        assert isinstance(pair.far.error, TimeoutError)

    play(story)


def test_connecting_across_a_partition_times_out_or_waits_for_it_to_heal() -> None:
    async def story(pair: Pair) -> None:
        partition = pair.world.network.partition(["client"], ["server"])
        before_s = pair.world.now_s()
        with pytest.raises(TimeoutError, match="server does not answer"):
            await pair.redial()
        assert pair.world.now_s() - before_s == pytest.approx(15.0)
        asyncio.get_running_loop().call_later(2, partition.heal)
        await pair.redial()
        pair.near.wire.write(b"x")
        await asyncio.sleep(1)
        assert pair.near.received == b"x"

    play(story)


def test_overlapping_partitions_heal_one_by_one() -> None:
    async def story(pair: Pair) -> None:
        first = pair.world.network.partition(["client"], ["server"])
        second = pair.world.network.partition(["server"], ["client", "other"])
        first.heal()
        first.heal()
        pair.near.wire.write(b"x")
        await asyncio.sleep(3)
        assert pair.far.received == b""
        second.heal()
        await asyncio.sleep(3)
        assert pair.far.received == b"x"

    play(story)


def test_a_reset_ends_both_ends_with_an_error() -> None:
    async def story(pair: Pair) -> None:
        pair.world.network.endpoints()[0].reset()
        await asyncio.sleep(1)
        assert isinstance(pair.near.error, ConnectionResetError)
        assert isinstance(pair.far.error, ConnectionResetError)
        assert pair.near.wire.is_closing()
        assert pair.world.network.endpoints() == []

    play(story)


def test_a_machine_may_refuse_connections() -> None:
    async def story(pair: Pair) -> None:
        pair.server.machine.refusing = True
        with pytest.raises(ConnectionRefusedError):
            await pair.redial()
        pair.server.machine.refusing = False
        await pair.redial()

    play(story)


def test_an_unknown_machine_cannot_be_reached_nor_listened_on() -> None:
    async def story(pair: Pair) -> None:
        network = pair.client.runtime.network
        with pytest.raises(OSError, match="no machine of the world is called 'nowhere'"):
            await network.connect("nowhere", PORT, Ping)
        with pytest.raises(OSError, match="'server' is not an address of client"):
            await network.listen("server", PORT, Ping)

    play(story)


def test_a_crash_cuts_the_connections_of_the_process() -> None:
    async def story(pair: Pair) -> None:
        far = pair.far
        pair.near.wire.write(b"unread")
        pair.server.crash()
        await asyncio.sleep(1)
        assert pair.near.lost_at_s is not None
        assert far.chunks == []
        assert far.lost_at_s is None
        with pytest.raises(ConnectionRefusedError):
            await pair.redial()
        pair.server.restart()
        await asyncio.sleep(0.1)
        await pair.redial()

    play(story)


def test_a_power_cut_leaves_the_peer_half_open_until_the_machine_is_back() -> None:
    async def story(pair: Pair) -> None:
        pair.server.power_cut()
        await asyncio.sleep(100)
        assert pair.near.lost_at_s is None
        pair.near.wire.write(b"hello?")
        await asyncio.sleep(5)
        assert pair.near.lost_at_s is None
        pair.server.restart()
        await asyncio.sleep(1)
        assert isinstance(pair.near.error, ConnectionResetError)
        await pair.redial()

    play(story)


def test_a_machine_without_power_does_not_answer() -> None:
    async def story(pair: Pair) -> None:
        pair.server.power_cut()
        pair.near.wire.write(b"hello?")
        with pytest.raises(TimeoutError):
            await pair.redial()
        await asyncio.sleep(10)

    play(story)


def test_a_paused_process_accepts_and_answers_when_it_goes_on() -> None:
    async def story(pair: Pair) -> None:
        pair.server.pause(10)
        pair.near.wire.write(b"a")
        await pair.redial()
        pair.near.wire.write(b"b")
        await asyncio.sleep(9)
        assert len(pair.accepted) == 1
        assert pair.near.received == b""
        await asyncio.sleep(2)
        assert len(pair.accepted) == 2
        assert pair.near.received == b"b"

    play(story)


def test_loss_shows_as_delay() -> None:
    async def story(pair: Pair) -> None:
        began_s = pair.world.now_s()
        answered = asyncio.Event()
        pair.near.data_received = lambda data: answered.set()  # type: ignore[method-assign]
        for _ in range(50):
            answered.clear()
            pair.near.wire.write(b"x")
            await answered.wait()
        assert 1 < pair.world.now_s() - began_s < 60

    play(story, loss=0.1)


def test_a_slow_network_takes_longer() -> None:
    async def story(pair: Pair) -> None:
        pair.world.network.slow_down(1000)
        pair.near.wire.write(b"x")
        await asyncio.sleep(1.5)
        assert pair.near.received == b""
        await asyncio.sleep(1)
        assert pair.near.received == b"x"

    play(story)
