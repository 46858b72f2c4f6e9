"""A model bookie as a process: what it answered survives, and its node says how it is."""

import asyncio
import struct
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.metadata.served.client import ServedStore
from anabranch.runtime import Runtime
from anabranch.testing.bookies.registration import READ_ONLY, WRITABLE
from anabranch.testing.bookies.server import PORT, Bookie, BookieServer
from anabranch.testing.bookies.shelves import LAC_HEADER, PACKET_HEADER, Status
from anabranch.testing.scenarios.served_metadata import SERVER, URL, serve
from anabranch.testing.simulation import World

KEY = b"k" * 20
BOOKIE = "bookie-0"
LENGTH = struct.Struct(">I")


def packet(entry_id: int, content: bytes = b"content") -> bytes:
    return PACKET_HEADER.pack(7, entry_id, -1, len(content)) + content


class Caller(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: Any = None
        self._answer: asyncio.Future[pb.Response]

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) >= end:
                whole, self._received = self._received[4:end], self._received[end:]
                self._answer.set_result(pb.Response.FromString(whole))

    async def ask(self, operation: "pb.OperationType", **part: Any) -> pb.Response:
        header = pb.PacketHeader(version=pb.VERSION_THREE, operation=operation, txn_id=5)
        content = pb.Request(header=header, **part).SerializeToString()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(LENGTH.pack(len(content)) + content)
        response = await asyncio.wait_for(self._answer, 10)
        assert response.header == header
        return response

    async def add(self, body: bytes, *, key: bytes = KEY, recovery: bool = False) -> Status:
        request = pb.AddRequest(ledger_id=7, entry_id=0, master_key=key, body=body)
        if recovery:
            request.flag = pb.AddRequest.RECOVERY_ADD
        response = await self.ask(pb.ADD_ENTRY, add=request)
        assert response.add.status == response.status
        return Status(response.status)

    async def read(self, entry_id: int, *, fence: bool = False) -> tuple[Status, bytes]:
        request = pb.ReadRequest(ledger_id=7, entry_id=entry_id)
        if fence:
            request.flag, request.master_key = pb.ReadRequest.FENCE_LEDGER, KEY
        response = await self.ask(pb.READ_ENTRY, read=request)
        return Status(response.status), response.read.body


async def call(runtime: Runtime) -> Caller:
    while True:
        try:
            caller = await runtime.network.connect(BOOKIE, PORT, Caller)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        assert isinstance(caller, Caller)
        return caller


def start(world: World, bookie: Bookie) -> None:
    world.process(SERVER).start(serve)
    world.process(BOOKIE).start(
        lambda runtime: BookieServer(runtime, bookie, URL, 6.0).run(), tolerates=(AnabranchError,)
    )


def test_what_was_answered_survives_a_power_cut() -> None:
    async def before(runtime: Runtime) -> None:
        caller = await call(runtime)
        assert await caller.add(packet(0)) is Status.OK
        assert await caller.add(packet(1), key=b"x") is Status.UNAUTHORIZED
        notice = pb.WriteLacRequest(
            ledger_id=7, lac=0, master_key=KEY, body=LAC_HEADER.pack(7, 0) + b"sum"
        )
        assert (await caller.ask(pb.WRITE_LAC, write_lac=notice)).status == pb.EOK
        assert await caller.read(-1, fence=True) == (Status.OK, packet(0))

    async def after(runtime: Runtime) -> None:
        caller = await call(runtime)
        assert await caller.read(0) == (Status.OK, packet(0))
        assert await caller.add(packet(1)) is Status.FENCED
        assert await caller.add(packet(1), recovery=True) is Status.OK
        confirmed = await caller.ask(pb.READ_LAC, read_lac=pb.ReadLacRequest(ledger_id=7))
        assert confirmed.read_lac.lac_body == LAC_HEADER.pack(7, 0) + b"sum"
        assert confirmed.read_lac.last_entry_body == packet(1)
        asked = pb.GetBookieInfoRequest(requested=3)
        info = await caller.ask(pb.GET_BOOKIE_INFO, bookie_info=asked)
        assert info.bookie_info.free_disk_space > 0
        assert (await caller.ask(pb.FORCE_LEDGER)).status == pb.EBADREQ

    async def main(world: World) -> None:
        start(world, Bookie(BOOKIE))
        client = world.process("client")
        await client.run(before)
        world.process(BOOKIE).power_cut()
        world.process(BOOKIE).restart()
        await client.run(after)

    World(3).run(main)


def test_a_full_bookie_says_so_and_rot_stays_through_a_crash() -> None:
    bookie = Bookie(BOOKIE)

    async def shown(store: ServedStore, *wanted: list[str]) -> None:
        while True:
            writable = [name for name in await store.children(WRITABLE) if name != "readonly"]
            if (writable, await store.children(READ_ONLY)) == wanted:
                return
            await asyncio.sleep(0.1)

    async def main(world: World) -> None:
        start(world, bookie)

        async def look(runtime: Runtime) -> None:
            store = await ServedStore.open(runtime, URL)
            caller = await call(runtime)
            assert await caller.add(packet(0)) is Status.OK
            await shown(store, [bookie.bookie_id], [])
            bookie.fill(full=True)
            assert await caller.add(packet(1)) is Status.READ_ONLY
            await shown(store, [], [bookie.bookie_id])
            bookie.rot(7, 0, 33)
            world.process(BOOKIE).crash()
            world.process(BOOKIE).restart()
            caller = await call(runtime)
            status, found = await caller.read(0)
            assert status is Status.OK
            assert [i for i in range(len(found)) if found[i] != packet(0)[i]] == [33]
            bookie.fill(full=False)
            await shown(store, [bookie.bookie_id], [])
            assert await caller.add(packet(1)) is Status.OK

        await world.process("client").run(look)

    World(4).run(main, time_limit_s=120.0)
