"""Small scenarios that exist to test the simulator: a server that keeps numbers, and its clients.

`kept-numbers` is correct; `forgetful-numbers` answers before it syncs and loses numbers in some
power cuts, so some of its seeds fail; `empty` reaches nothing of what it names. The doors have a
table of transitions and take some of them; the shy one fails with one seed.
"""

import asyncio
import struct
import zlib
from typing import Any

from anabranch.runtime import Runtime
from anabranch.runtime.disk import DiskFile
from anabranch.testing.simulation import World
from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.scenario import Taken, scenario

RECORD = struct.Struct(">QI")
NUMBER = struct.Struct(">Q")
PORT = 7000
NUMBERS_PER_CLIENT = 150
CLIENTS = 3


class Frames:
    """Cuts a stream into numbers."""

    def __init__(self) -> None:
        self.wire: Any = None
        self._buffer = bytearray()

    def connection_made(self, transport: Any, /) -> None:
        self.wire = transport

    def data_received(self, data: bytes, /) -> None:
        self._buffer += data
        while len(self._buffer) >= NUMBER.size:
            (number,) = NUMBER.unpack_from(self._buffer)
            del self._buffer[: NUMBER.size]
            self.number_received(number)

    def number_received(self, number: int) -> None:
        raise NotImplementedError

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class Session(Frames):
    """The server's end: keeps each number, then says it back."""

    def __init__(self, file: DiskFile, sync: bool) -> None:
        super().__init__()
        self._file = file
        self._sync = sync

    def number_received(self, number: int) -> None:
        raw = NUMBER.pack(number)

        def done(error: OSError | None) -> None:
            assert error is None
            self.wire.write(raw)

        record = RECORD.pack(number, zlib.crc32(raw))
        self._file.append([record], sync=self._sync, done=done)


class Asker(Frames):
    """A client's end: one number at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[int] | None = None

    def number_received(self, number: int) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(number)

    def connection_lost(self, exc: Exception | None, /) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionResetError("lost while waiting"))

    async def ask(self, number: int) -> None:
        if self.wire.is_closing():
            raise ConnectionResetError("lost before asking")
        self.answer = asyncio.get_running_loop().create_future()
        self.wire.write(NUMBER.pack(number))
        async with asyncio.timeout(5):
            assert await self.answer == number


def readable(content: bytes) -> list[int]:
    """The numbers up to the first record that is torn."""
    numbers = []
    for start in range(0, len(content) - RECORD.size + 1, RECORD.size):
        number, checksum = RECORD.unpack_from(content, start)
        if zlib.crc32(NUMBER.pack(number)) != checksum or number == 0:
            break
        numbers.append(number)
    return numbers


async def serve(runtime: Runtime, *, sync: bool) -> None:
    await runtime.disk.make_folder("/data")
    runtime.disk.lock_folder("/data")
    if not await runtime.disk.exists("/data/log"):
        await (await runtime.disk.open("/data/log", create=True)).close()
        await runtime.disk.sync_folder("/data")
    file = await runtime.disk.open("/data/log")
    await file.truncate(len(readable(await runtime.disk.read("/data/log"))) * RECORD.size)
    await runtime.network.listen("0.0.0.0", PORT, lambda: Session(file, sync))
    await asyncio.Event().wait()


async def ask_all(runtime: Runtime, numbers: range, kept: list[int]) -> None:
    asker: Any = None
    for number in numbers:
        while number not in kept[-1:]:
            try:
                if asker is None:
                    asker = await runtime.network.connect("server", PORT, Asker)
                await asker.ask(number)
                kept.append(number)
            except OSError:
                if asker is not None:
                    asker.wire.abort()
                asker = None
                await asyncio.sleep(runtime.entropy.uniform(0.01, 0.2))


async def keep_numbers(world: World, *, sync: bool) -> None:
    server = world.process("server")
    server.start(lambda runtime: serve(runtime, sync=sync))
    clients = [world.process(f"client{number}") for number in range(CLIENTS)]
    lists: list[list[int]] = [[] for _ in clients]
    nemesis = Nemesis(world, [server], gap_s=(0.05, 0.5), duration_s=(0.01, 2.0))
    torment = asyncio.create_task(nemesis.run(6))
    async with asyncio.TaskGroup() as group:
        for index, client in enumerate(clients):
            numbers = range(index * 1000 + 1, index * 1000 + 1 + NUMBERS_PER_CLIENT)

            def work(runtime: Runtime, numbers: range = numbers, index: int = index) -> Any:
                return ask_all(runtime, numbers, lists[index])

            group.create_task(client.run(work))
    await torment
    await asyncio.sleep(60)
    server.power_cut()
    stored = set(readable(await server.runtime.disk.read("/data/log")))
    for kept in lists:
        world.reach("operations", len(kept))
        missing = [number for number in kept if number not in stored]
        assert not missing, f"acknowledged numbers are lost: {missing[:5]}"


@scenario("kept-numbers", reaches=("operations", "fault crash", "fault power_cut"))
async def kept_numbers(world: World) -> None:
    await keep_numbers(world, sync=True)


@scenario("forgetful-numbers")
async def forgetful_numbers(world: World) -> None:
    await keep_numbers(world, sync=False)


@scenario("empty", reaches=("the moon", "the stars"))
async def empty(world: World) -> None:
    world.note("nothing happens")


OPENED, CLOSED = "closed -> open", "open -> closed"
DOOR = {"door": (OPENED, CLOSED)}


@scenario("two-doors", tables=DOOR)
async def two_doors(world: World) -> Taken:
    return {("door", world.rng("door").choice((OPENED, CLOSED)))}


@scenario("one-door", tables=DOOR)
async def one_door(_: World) -> Taken:
    return {("door", OPENED)}


@scenario("strange-door", tables=DOOR)
async def strange_door(_: World) -> Taken:
    return {("door", "open -> ajar")}


@scenario("shy-door")
async def shy_door(world: World) -> None:
    assert world.seed != 7, "the door is shy"


@scenario("small-set", set_seeds=3, reaches=("the third",), reaches_seldom=("the comet",))
async def small_set(world: World) -> None:
    if world.seed % 10 == 2:
        world.reach("the third")
