"""The write path of one managed ledger: plain calls, completions in order, over ledger rolls too.

No coroutine lives here. While there is no writer (a new ledger is being created) appends wait in
a queue bounded by bytes; once appending has failed or ended, every later append is refused, so
that a producer never sees a later message stored and an earlier one not.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from anabranch import limits
from anabranch.errors import AnabranchError, InputError, StoreBusy
from anabranch.ids import Position
from anabranch.journal import Pressure
from anabranch.ledgers.store import LedgerWriter
from anabranch.runtime.network import Buffer

AppendResult = Callable[[Position | None, Exception | None], None]
"""Called with the position, or with the reason why there is none."""


class Appender:
    """Hands payloads to the present writer and completes them in the order they came."""

    __slots__ = (
        "_durable",
        "_error",
        "_failed",
        "_full",
        "_in_flight",
        "_pressure",
        "_waiting",
        "_waiting_bytes",
        "_writer",
        "bytes_max",
        "bytes_submitted",
        "entries_max",
        "entries_submitted",
        "pending_bytes",
    )

    def __init__(
        self,
        durable: Callable[[int, bytes], Position],
        failed: Callable[[Exception], None],
        full: Callable[[], None],
        pressure: Pressure,
        *,
        entries_max: int,
        bytes_max: int,
    ) -> None:
        self._durable = durable
        """Told of every durable entry before its result is; returns its position."""
        self._failed = failed
        """Told once, when an append fails by itself."""
        self._full = full
        """Told when a ledger has its fill and appends wait for the next one."""
        self._pressure = pressure
        """Of the ledger store: what waits here counts as if the store had it."""
        self.entries_max = entries_max
        self.bytes_max = bytes_max
        self._writer: LedgerWriter | None = None
        self._error: Exception | None = None
        self._in_flight: deque[tuple[bytes, AppendResult]] = deque()
        self._waiting: deque[tuple[bytes, AppendResult]] = deque()
        self._waiting_bytes = 0
        self.pending_bytes = 0
        self.entries_submitted = 0
        """To the present ledger; so are the bytes."""
        self.bytes_submitted = 0

    @property
    def error(self) -> Exception | None:
        """Why appends are refused; None while they are not."""
        return self._error

    def append(self, payload: Buffer, result: AppendResult) -> None:
        """Add an entry; the result follows, never during this call.

        Raises:
            InputError: if the entry is too large; nothing was changed.
        """
        if len(payload) > limits.ENTRY_BYTES_MAX:
            raise InputError(
                f"an entry of {len(payload)} bytes is too large; "
                f"at most {limits.ENTRY_BYTES_MAX} are allowed"
            )
        # A copy of anything that may change or that pins a larger receive buffer.
        data = payload if type(payload) is bytes else bytes(payload)
        self.pending_bytes += len(data)
        # There is no writer once appends are refused.
        if self._writer is None:
            self._wait(data, result)
        else:
            self._submit(self._writer, data, result)

    def start(self, writer: LedgerWriter) -> None:
        """Write to a new, empty ledger from now on, first what waited for it."""
        assert not self._in_flight, "the ledger before still has appends in flight"
        assert self._writer is None, "pause before the next writer"
        if self._error is not None:
            return
        self._writer = writer
        self.entries_submitted = self.bytes_submitted = 0
        while self._waiting and self._writer is not None:
            data, result = self._no_longer_waits()
            try:
                self._submit(writer, data, result)
            except InputError as error:
                # Its sender was not refused at once, and those behind it must not overtake it.
                self._waiting.appendleft((data, result))
                self._count_waiting(len(data))
                self.pending_bytes += len(data)
                self._fail(error)
        self._pressure.settle(0)

    def pause(self) -> None:
        """Let appends wait for the next writer; those in flight go on."""
        self._writer = None

    def refuse(self, error: Exception) -> None:
        """Fail everything that waits or comes later; what is in flight still completes first."""
        if self._error is None:
            self._error = error
        self._writer = None
        self._fail_waiting_soon()

    def _submit(self, writer: LedgerWriter, data: bytes, result: AppendResult) -> None:
        self._in_flight.append((data, result))
        self.entries_submitted += 1
        self.bytes_submitted += len(data)
        try:
            writer.append(data, self._completed)
        except InputError:
            # Larger than this store takes: nothing was changed.
            self._in_flight.pop()
            self.pending_bytes -= len(data)
            self.entries_submitted -= 1
            self.bytes_submitted -= len(data)
            raise
        except AnabranchError as error:
            self._waiting.appendleft(self._in_flight.pop())
            self._count_waiting(len(data))
            self._fail(error)
            return
        if self.entries_submitted >= self.entries_max or self.bytes_submitted >= self.bytes_max:
            self.pause()
            self._full()

    def _wait(self, data: bytes, result: AppendResult) -> None:
        self._waiting.append((data, result))
        self._count_waiting(len(data))
        if self._error is not None:
            self._fail_waiting_soon()
        elif (
            self._waiting_bytes > limits.APPENDS_WAITING_BYTES_MAX
            or self._pressure.pending_bytes > limits.STORE_PENDING_BYTES_MAX
        ):
            self._fail(
                StoreBusy(
                    f"{self._waiting_bytes} bytes wait for a new ledger, and with those of all "
                    f"others {self._pressure.pending_bytes}: the ledger store does not keep up"
                )
            )

    def _count_waiting(self, byte_count: int) -> None:
        self._waiting_bytes += byte_count
        self._pressure.hold(byte_count)

    def _no_longer_waits(self) -> tuple[bytes, AppendResult]:
        data, result = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        self._pressure.let_go(len(data))
        return data, result

    def _completed(self, entry_id: int, error: Exception | None) -> None:
        data, result = self._in_flight.popleft()
        self.pending_bytes -= len(data)
        if error is None:
            result(self._durable(entry_id, data), None)
        else:
            self._fail(error)
            result(None, error)
        if self._error is not None and not self._in_flight:
            self._fail_waiting_soon()

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self.refuse(error)
            self._failed(error)

    def _fail_waiting_soon(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._fail_waiting)

    def _fail_waiting(self) -> None:
        assert self._error is not None, "waiting appends fail only once appending has ended"
        while self._waiting and not self._in_flight:
            data, result = self._no_longer_waits()
            self.pending_bytes -= len(data)
            result(None, self._error)
        self._pressure.settle(0)
