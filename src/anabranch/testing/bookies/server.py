"""One bookie as a simulated process: its journal, its port, its node in the metadata.

A request is answered when what it changed is durable, in whatever order the journal completes;
reads of what is not durable yet are possible, as with real bookies. A journal that fails ends the
process.
"""

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.journal import Journal, RecordPlace
from anabranch.limits import BOOKKEEPER_FRAME_BYTES_MAX
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.bookies import records
from anabranch.testing.bookies.registration import Registration
from anabranch.testing.bookies.shelves import Found, Shelves, Status, Verdict

PORT: Final = 3181
FOLDER: Final = "bookie/journal"
_LENGTH: Final = struct.Struct(">I")
_CAPACITY_BYTES: Final = 1 << 30
Answer = Callable[[Status], None]
Heard = Callable[[str, bytes, bool], None]
"""Called with the bookie's name, an entry's packet, and whether recovery sends it."""
Treat = Callable[[str, pb.Request], float]
"""Called with the bookie's name and what it is asked; says for how many seconds the request lies
in a queue of the bookie before anything is done, or `BREAKS` or `REFUSES`."""
BREAKS: Final = -1.0
"""The connection breaks before the request is carried out."""
REFUSES: Final = -2.0
"""The bookie has too much to do for this request."""


class Bookie:
    """What outlives the lives of a bookie's process besides its disk: its fate."""

    def __init__(
        self, name: str, *, heard: Heard | None = None, treat: Treat | None = None
    ) -> None:
        self.name = name
        self.bookie_id = f"{name}:{PORT}"
        self.heard = heard
        self.treat = treat
        self.server: BookieServer | None = None
        self._full = False
        self._rot: list[tuple[int, int, int]] = []

    @property
    def full(self) -> bool:
        """Whether it takes no entries."""
        return self._full

    def fill(self, *, full: bool) -> None:
        """Run out of room, or get some."""
        self._full = full
        if self.server is not None:
            self.server.fill(full=full)

    def rot(self, ledger_id: int, entry_id: int, place: int) -> None:
        """From now on a byte of an entry is wrong on this bookie's disk."""
        self._rot.append((ledger_id, entry_id, place))
        if self.server is not None:
            self._spoil(self.server.shelves, ledger_id, entry_id, place)

    def spoil(self, shelves: Shelves) -> None:
        """Make of what the journal kept what the disk makes of it."""
        for ledger_id, entry_id, place in self._rot:
            self._spoil(shelves, ledger_id, entry_id, place)

    def _spoil(self, shelves: Shelves, ledger_id: int, entry_id: int, place: int) -> None:
        shelf = shelves.ledgers.get(ledger_id)
        packet = None if shelf is None else shelf.entries.get(entry_id)
        if shelf is None or packet is None:
            return  # it was not durable yet, and is gone
        damaged = bytearray(packet)
        damaged[place % len(damaged)] ^= 1 + place % 255
        shelf.entries[entry_id] = bytes(damaged)


class Serving(Protocol):
    """What answers the requests that come through a door."""

    shelves: Shelves

    def write(self, verdict: Verdict, answer: Answer) -> None:
        """Take in what was decided; answer when it is durable."""

    def treat(self, request: pb.Request) -> float:
        """See `Treat`."""

    def heard(self, packet: bytes, recovery: bool) -> None:
        """Tell whoever looks on that an entry is taken in."""


class BookieServer:
    """One life of a bookie."""

    def __init__(self, runtime: Runtime, bookie: Bookie, metadata_url: str, timeout_s: float):
        self._runtime = runtime
        self._bookie = bookie
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks(lambda _, failure: self._end(failure))
        self._registration = Registration(runtime, self._tasks, metadata_url, timeout_s)
        self._journal: Journal
        self.shelves = Shelves()

    async def run(self) -> None:
        """Read the journal, open the port, show up, and serve until the disk fails."""
        self._journal = await Journal.open(
            self._runtime.disk, FOLDER, kind=records.KIND, replay=self._replay
        )
        self._bookie.spoil(self.shelves)
        self._bookie.server = self
        self.fill(full=self._bookie.full)
        await self._runtime.network.listen("", PORT, lambda: Door(self))
        self._tasks.spawn("registration", self._registration.keep(self._bookie.bookie_id))
        await self._failed

    def fill(self, *, full: bool) -> None:
        """See `Bookie.fill`."""
        self.shelves.read_only = full
        self._registration.changed(read_only=full)

    def _replay(self, place: RecordPlace, data: memoryview) -> None:
        self.shelves.learn(records.decode(data))

    def _end(self, failure: BaseException) -> None:
        if not self._failed.done():
            self._bookie.server = None
            self._failed.set_exception(failure)

    # --- requests -----------------------------------------------------------------------------

    def write(self, verdict: Verdict, answer: Answer) -> None:
        """Take in what was decided; answer when it is durable."""
        if self._failed.done():
            return
        for record in verdict.records:
            self.shelves.learn(record)
        if not verdict.records:
            answer(verdict.status)
            return
        *first, last = verdict.records
        for record in first:
            self._journal.append(records.encode(record), self._failure_only)
        done = partial(self._durable, verdict.status, answer)
        self._journal.append(records.encode(last), done)

    def _failure_only(self, error: Exception | None) -> None:
        if error is not None:
            self._end(error)

    def _durable(self, status: Status, answer: Answer, error: Exception | None) -> None:
        if error is None:
            answer(status)
        else:
            answer(Status.IO_ERROR)
            self._end(error)

    def treat(self, request: pb.Request) -> float:
        """See `Treat`."""
        treat = self._bookie.treat
        return 0.0 if treat is None else treat(self._bookie.name, request)

    def heard(self, packet: bytes, recovery: bool) -> None:
        """Tell whoever looks on that an entry is taken in."""
        if self._bookie.heard is not None:
            self._bookie.heard(self._bookie.name, packet, recovery)


def _code(status: Status) -> pb.StatusCode:
    return cast("pb.StatusCode", int(status))


class Door(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: "Serving") -> None:
        self._server = server
        self._received = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep our end."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take every whole frame; one that is too long ends the connection."""
        self._received += data
        start = 0
        while len(self._received) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received, start)
            if length > BOOKKEEPER_FRAME_BYTES_MAX:
                self._transport.abort()
                return
            end = start + _LENGTH.size + length
            if end > len(self._received):
                break
            request = pb.Request.FromString(bytes(self._received[start + _LENGTH.size : end]))
            wait_s = self._server.treat(request)
            if wait_s == BREAKS:
                self._transport.abort()
                return
            if wait_s == REFUSES:
                self._send(request, Status.TOO_MANY_REQUESTS)
            elif wait_s > 0:
                asyncio.get_running_loop().call_later(wait_s, self._request, request)
            else:
                self._request(request)
            start = end
        del self._received[:start]

    def _request(self, request: pb.Request) -> None:
        handlers = {
            pb.ADD_ENTRY: self._add,
            pb.READ_ENTRY: self._read,
            pb.WRITE_LAC: self._write_lac,
            pb.READ_LAC: self._read_lac,
            pb.GET_BOOKIE_INFO: self._info,
        }
        handler = handlers.get(request.header.operation)
        if handler is None:
            self._send(request, Status.BAD_REQUEST)
        else:
            handler(request)

    def _send(self, request: pb.Request, status: Status, **part: Any) -> None:
        if self._transport.is_closing():
            return
        response = pb.Response(header=request.header, status=_code(status), **part)
        content = response.SerializeToString()
        self._transport.write(_LENGTH.pack(len(content)) + content)

    def _add(self, request: pb.Request) -> None:
        add = request.add
        recovery = add.HasField("flag")  # there is only one
        verdict = self._server.shelves.add(
            add.ledger_id, add.master_key, add.body, recovery=recovery
        )
        if verdict.status is Status.OK:
            self._server.heard(add.body, recovery)

        def answer(status: Status) -> None:
            part = pb.AddResponse(
                status=_code(status), ledger_id=add.ledger_id, entry_id=add.entry_id
            )
            self._send(request, status, add=part)

        self._server.write(verdict, answer)

    def _read(self, request: pb.Request) -> None:
        read = request.read

        def answer(status: Status) -> None:
            found = Found(status)
            if status is Status.OK:
                found = self._server.shelves.read(read.ledger_id, read.entry_id)
            part = pb.ReadResponse(
                status=_code(found.status), ledger_id=read.ledger_id, entry_id=read.entry_id
            )
            if found.status is Status.OK:
                part.body = found.body
                if not fencing:
                    part.max_lac = found.confirmed
            self._send(request, found.status, read=part)

        fencing = read.HasField("flag") and read.flag == pb.ReadRequest.FENCE_LEDGER
        if fencing:
            verdict = self._server.shelves.fence(read.ledger_id, read.master_key)
            self._server.write(verdict, answer)
        else:
            answer(Status.OK)

    def _write_lac(self, request: pb.Request) -> None:
        notice = request.write_lac
        verdict = self._server.shelves.confirm(notice.ledger_id, notice.master_key, notice.body)

        def answer(status: Status) -> None:
            part = pb.WriteLacResponse(status=_code(status), ledger_id=notice.ledger_id)
            self._send(request, status, write_lac=part)

        self._server.write(verdict, answer)

    def _read_lac(self, request: pb.Request) -> None:
        ledger_id = request.read_lac.ledger_id
        status, notice, last = self._server.shelves.read_confirmed(ledger_id)
        part = pb.ReadLacResponse(status=_code(status), ledger_id=ledger_id)
        if notice:
            part.lac_body = notice
        if last:
            part.last_entry_body = last
        self._send(request, status, read_lac=part)

    def _info(self, request: pb.Request) -> None:
        free = 0 if self._server.shelves.read_only else _CAPACITY_BYTES
        part = pb.GetBookieInfoResponse(
            status=_code(Status.OK), total_disk_capacity=_CAPACITY_BYTES, free_disk_space=free
        )
        self._send(request, Status.OK, bookie_info=part)
