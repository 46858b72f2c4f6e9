"""Ledgers over the simulated network, for scenarios: one process has the store, others write.

    frame := length u32 | request u32 | operation or answer u8 | ledger u64 | body

Appends go straight to the store's writers and are answered when they are durable; the other
operations run as tasks. Nothing here is part of the product.
"""

import asyncio
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from anabranch.errors import (
    AlreadyClosed,
    ConflictError,
    NotFound,
    OutcomeUnknown,
    StorageError,
)
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.store import LedgerReader, LedgerWriter
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

PORT: Final = 7000
_HEADER = struct.Struct(">IIBQ")
_LENGTH = struct.Struct(">I")
_PATIENCE_S: Final = 5.0


class Op(IntEnum):
    """What is asked."""

    CREATE = 1
    APPEND = 2
    CLOSE = 3
    RECOVER = 4
    DELETE = 5


class Answer(IntEnum):
    """What came of it; a failed one may have taken effect."""

    OK = 1
    REFUSED = 2
    ABSENT = 3
    FAILED = 4


async def payloads_of(reader: LedgerReader) -> list[bytes]:
    """All entries of a ledger."""
    found: list[bytes] = []
    while len(found) <= reader.last_entry_id:
        entries = await reader.read(len(found), reader.last_entry_id, max_bytes=1 << 20)
        found += [bytes(entry.payload) for entry in entries]
    return found


def _joined(payloads: list[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(payload)) + payload for payload in payloads)


def split(body: bytes) -> list[bytes]:
    """The payloads in the answer to a RECOVER."""
    payloads = []
    at = 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size + length
        payloads.append(body[at - length : at])
    return payloads


class _Frames(asyncio.Protocol):
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._received = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep our end."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand over every whole frame."""
        self._received += data
        while len(self._received) >= _HEADER.size:
            length, request, code, ledger_id = _HEADER.unpack_from(self._received)
            if len(self._received) < length:
                return
            body = self._received[_HEADER.size : length]
            self._received = self._received[length:]
            self.frame(request, code, ledger_id, body)

    def frame(self, request: int, code: int, ledger_id: int, body: bytes) -> None:
        """One frame came."""
        raise NotImplementedError

    def send(self, request: int, code: int, ledger_id: int, body: bytes = b"") -> None:
        """Send one frame."""
        header = _HEADER.pack(_HEADER.size + len(body), request, code, ledger_id)
        self.transport.write(header + body)


class _Door(_Frames):
    """One connection to the process that has the store."""

    def __init__(self, owner: "_Owner") -> None:
        super().__init__()
        self._owner = owner

    def frame(self, request: int, code: int, ledger_id: int, body: bytes) -> None:
        """One frame came."""

        def answer(code: Answer, body: bytes = b"") -> None:
            if not self.transport.is_closing():
                self.send(request, code, ledger_id, body)

        if code == Op.APPEND:
            self._owner.append(ledger_id, body, answer)
        else:
            work = self._owner.work(Op(code), ledger_id, answer)
            self._owner.tasks.spawn(f"{Op(code).name} {ledger_id}", work)


class _Owner:
    """Does what comes through the doors."""

    def __init__(self, store: EmbeddedLedgerStore, tasks: Tasks) -> None:
        self.store = store
        self.tasks = tasks
        self._writers: dict[int, LedgerWriter] = {}

    def append(self, ledger_id: int, payload: bytes, answer: Callable[..., None]) -> None:
        def done(entry_id: int, error: Exception | None) -> None:
            if error is None:
                answer(Answer.OK, entry_id.to_bytes(8, "big"))
            else:
                answer(Answer.FAILED)

        writer = self._writers.get(ledger_id)
        try:
            if writer is None:
                answer(Answer.REFUSED)
            else:
                writer.append(payload, done)
        except (ConflictError, AlreadyClosed):
            answer(Answer.REFUSED)

    async def work(self, op: Op, ledger_id: int, answer: Callable[..., None]) -> None:
        try:
            answer(Answer.OK, await self._do(op, ledger_id))
        except NotFound:
            answer(Answer.ABSENT)
        except (ConflictError, AlreadyClosed):
            answer(Answer.REFUSED)
        except StorageError:
            answer(Answer.FAILED)

    async def _do(self, op: Op, ledger_id: int) -> bytes:
        match op:
            case Op.CREATE:
                self._writers[ledger_id] = await self.store.create(ledger_id)
            case Op.CLOSE:
                await self._writers[ledger_id].close()
            case Op.RECOVER:
                return _joined(await payloads_of(await self.store.open(ledger_id)))
            case Op.DELETE:
                await self.store.delete(ledger_id)
            case Op.APPEND:
                raise AssertionError("appends are no tasks")
        return b""


async def serve(
    runtime: Runtime,
    host: str,
    store: EmbeddedLedgerStore,
    failed: Callable[[str, BaseException], None],
) -> None:
    """Serve a store until it fails.

    Raises:
        StorageError: the store's failure.
    """
    owner = _Owner(store, Tasks(failed))
    await runtime.network.listen(host, PORT, lambda: _Door(owner))
    while store.failure is None:  # noqa: ASYNC110 - a store does not call when it fails
        await asyncio.sleep(0.05)
    raise store.failure


class LedgerClient(_Frames):
    """The other end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[int, asyncio.Future[tuple[Answer, bytes]]] = {}
        self._requests = 0

    @classmethod
    async def connect(cls, runtime: Runtime, host: str) -> "LedgerClient":
        """Connect.

        Raises:
            OSError: if nobody listens.
        """
        handler = await runtime.network.connect(host, PORT, cls)
        assert isinstance(handler, LedgerClient)
        return handler

    def ask(
        self, op: Op, ledger_id: int, body: bytes = b""
    ) -> asyncio.Future[tuple[Answer, bytes]]:
        """Send a request; its answer follows, or `OutcomeUnknown`."""
        answer: asyncio.Future[tuple[Answer, bytes]] = asyncio.get_running_loop().create_future()
        if self.transport.is_closing():
            answer.set_exception(OutcomeUnknown("the connection is lost"))
            return answer
        self._requests += 1
        self._waiting[self._requests] = answer
        self.send(self._requests, op, ledger_id, body)
        return answer

    async def call(self, op: Op, ledger_id: int) -> tuple[Answer, bytes]:
        """Ask and wait, but not for ever.

        Raises:
            OutcomeUnknown: if the connection is lost or nothing is heard.
        """
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self.ask(op, ledger_id)
        except TimeoutError:
            self.transport.abort()
            raise OutcomeUnknown(f"no answer to {op.name} {ledger_id}") from None

    def frame(self, request: int, code: int, ledger_id: int, body: bytes) -> None:
        """One frame came."""
        answer = self._waiting.pop(request)
        if not answer.done():
            answer.set_result((Answer(code), body))

    def connection_lost(self, _error: Exception | None) -> None:
        """Nothing more will be answered."""
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown("the connection is lost"))
