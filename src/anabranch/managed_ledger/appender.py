"""The write path of one managed ledger: plain calls, completions in order, over ledger rolls too.

No coroutine lives here. While there is no writer (a new ledger is being created) appends wait in
a queue bounded by bytes; once appending has failed or ended, every later append is refused, so
that a producer never sees a later message stored and an earlier one not.

A ledger that somebody else has opened takes no more entries, and which of those under way it has is
unknown. They are *unsettled* until it is known where the ledger ends; then those that it has are
answered, and the others go to the next ledger, in the order they came.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError, Fenced, InputError, StoreBusy
from anabranch.ids import Position
from anabranch.journal import Pressure
from anabranch.ledgers.store import LedgerWriter
from anabranch.managed_ledger.storage_figures import StorageFigures
from anabranch.runtime.network import Buffer

AppendResult = Callable[[Position | None, Exception | None], None]
"""Called with the position, or with the reason why there is none."""

_Append = tuple[bytes, AppendResult, float]
"""With when it was asked for."""
_NOBODY: Final[deque[_Append]] = deque(maxlen=0)
"""The queue of a log where nobody waits: one of its own would take half a kibibyte."""


class Appender:
    """Hands payloads to the present writer and completes them in the order they came."""

    __slots__ = (
        "_durable",
        "_error",
        "_failed",
        "_figures",
        "_full",
        "_in_flight",
        "_landed",
        "_pressure",
        "_unsettled",
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
        figures: StorageFigures,
        *,
        entries_max: int,
        bytes_max: int,
    ) -> None:
        self._durable = durable
        """Told of every durable entry before its result is; returns its position."""
        self._failed = failed
        """Told once, when an append fails by itself."""
        self._full = full
        """Told when a ledger has its fill, or was taken from its writer, and appends wait for the
        next one."""
        self._pressure = pressure
        """Of the ledger store: what waits here counts as if the store had it."""
        self._figures = figures
        self.entries_max = entries_max
        self.bytes_max = bytes_max
        self._writer: LedgerWriter | None = None
        self._error: Exception | None = None
        self._in_flight: deque[_Append] = deque()
        self._waiting = _NOBODY
        self._waiting_bytes = 0
        self._unsettled = _NOBODY
        self._landed: asyncio.Future[None] | None = None
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
        began_s = self._figures.now_s()
        # There is no writer once appends are refused.
        if self._writer is None:
            self._wait(data, result, began_s)
        else:
            self._submit(self._writer, data, result, began_s)

    def start(self, writer: LedgerWriter) -> None:
        """Write to a new, empty ledger from now on, first what waited for it."""
        assert not self._in_flight, "the ledger before still has appends in flight"
        assert not self._unsettled, "it is not known which entries the ledger before has"
        assert self._writer is None, "pause before the next writer"
        if self._error is not None:
            return
        self._writer = writer
        self.entries_submitted = self.bytes_submitted = 0
        while self._waiting and self._writer is not None:
            data, result, began_s = self._no_longer_waits()
            try:
                self._submit(writer, data, result, began_s)
            except InputError as error:
                # Its sender was not refused at once, and those behind it must not overtake it.
                self._line().appendleft((data, result, began_s))
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
        self._wait_again()
        self._fail_waiting_soon()

    async def unsettled(self) -> int:
        """Wait until nothing is in flight; return how many have an outcome only the ledger knows.

        They are the entries behind the last durable one.
        """
        while self._in_flight:
            if self._landed is None:
                self._landed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._landed)
        return len(self._unsettled)

    def settle(self, stored: range) -> None:
        """The ledger has these of the unsettled entries, from the first; the others wait."""
        assert len(stored) <= len(self._unsettled), "a ledger has what its writer was given"
        for entry_id in stored:
            data, result, began_s = self._unsettled.popleft()
            self._pressure.let_go(len(data))
            self._tell_stored(entry_id, data, result, began_s)
        self._wait_again()
        self._pressure.settle(0)

    def _wait_again(self) -> None:
        """Those that are unsettled go before all who wait."""
        unsettled, self._unsettled = self._unsettled, _NOBODY
        for append in reversed(unsettled):
            self._line().appendleft(append)
            self._waiting_bytes += len(append[0])

    def _submit(
        self, writer: LedgerWriter, data: bytes, result: AppendResult, began_s: float
    ) -> None:
        self._in_flight.append((data, result, began_s))
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
        except Fenced:
            self._line().appendleft(self._in_flight.pop())
            self._count_waiting(len(data))
            self.pause()
            self._full()
            return
        except AnabranchError as error:
            self._line().appendleft(self._in_flight.pop())
            self._count_waiting(len(data))
            self._fail(error)
            return
        if self.entries_submitted >= self.entries_max or self.bytes_submitted >= self.bytes_max:
            self.pause()
            self._full()

    def _wait(self, data: bytes, result: AppendResult, began_s: float) -> None:
        self._line().append((data, result, began_s))
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

    def _line(self) -> deque[_Append]:
        """Those who wait, to be added to."""
        if self._waiting is _NOBODY:
            self._waiting = deque()
        return self._waiting

    def _count_waiting(self, byte_count: int) -> None:
        self._waiting_bytes += byte_count
        self._pressure.hold(byte_count)

    def _no_longer_waits(self) -> _Append:
        append = self._waiting.popleft()
        self._waiting_bytes -= len(append[0])
        self._pressure.let_go(len(append[0]))
        return append

    def _completed(self, entry_id: int, error: Exception | None) -> None:
        data, result, began_s = self._in_flight.popleft()
        if error is None:
            self._tell_stored(entry_id, data, result, began_s)
        elif isinstance(error, Fenced) and self._error is None:
            self._not_known((data, result, began_s))
        else:
            self.pending_bytes -= len(data)
            self._fail(error)
            result(None, error)
        if self._landed is not None and not self._in_flight:
            self._landed.set_result(None)
            self._landed = None
        if self._error is not None and not self._in_flight:
            self._fail_waiting_soon()

    def _tell_stored(
        self, entry_id: int, data: bytes, result: AppendResult, began_s: float
    ) -> None:
        self.pending_bytes -= len(data)
        self._figures.wrote(len(data), began_s)
        result(self._durable(entry_id, data), None)

    def _not_known(self, append: _Append) -> None:
        if self._unsettled is _NOBODY:
            self._unsettled = deque()
        self._unsettled.append(append)
        self._pressure.hold(len(append[0]))
        self.pause()
        self._full()

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
            data, result, _ = self._no_longer_waits()
            self.pending_bytes -= len(data)
            result(None, self._error)
        self._pressure.settle(0)
