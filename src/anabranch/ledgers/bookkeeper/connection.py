"""One connection to a bookie: requests of one turn go out together, answers come in any order.

Answers are given by plain calls, never within `ask` or `store`: adding an entry needs no task and
no future.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.frames import Request, Status
from anabranch.ledgers.bookkeeper.stored_answers import stored_run
from anabranch.ledgers.bookkeeper.writer import Add
from anabranch.runtime.network import Buffer, Connection
from anabranch.telemetry import get_logger

OnReply = Callable[[Any, Status, pb.Response | None], None]
"""Called once with the request's context, how it went, and the answer if there was one.

An add that went well is told without its answer, which says no more."""

_TICKS_PER_TIMEOUT: Final = 10
_log: Final = get_logger("bookkeeper")


class Storing(Protocol):
    """Who has entries stored, and takes the answers of many at once."""

    def stored(self, adds: list[Add], /) -> None:
        """The bookie has these entries."""

    def replied(self, add: Add, status: Status, response: pb.Response | None, /) -> None:
        """See `OnReply`."""


_Waiting: TypeAlias = tuple[float, OnReply, Any, int, Storing | None]
"""Of a request: its deadline, whom to call with what, its bytes, and who is told of stored entries.

A plain tuple: one is made for each entry and bookie."""


class BookieConnection:
    """A `ConnectionHandler`."""

    def __init__(
        self, bookie: str, timeout_s: float, on_lost: Callable[["BookieConnection"], None]
    ) -> None:
        self.lost = False
        self.answered = False
        """Whether the bookie has ever said anything that could be understood."""
        self.transport: Connection | None = None
        """Replaced when the connection goes on in TLS."""
        self._bookie = bookie
        self._timeout_s = timeout_s
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._writable = True
        self._number = -1
        # By the number as it travels; in the order of asking, which is that of time running out.
        self._waiting: dict[bytes, _Waiting] = {}
        self._deadline_s = 0.0
        self._unanswered_bytes = 0
        self._pieces: list[Buffer] = []
        self._pieces_are_short = True
        self._gathered_bytes = 0
        self._flush_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s = self._loop.time()
        self._rest = bytearray()
        self._rest_bytes_wanted = 0

    # --- as the network's handler -------------------------------------------------------------

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self.transport = transport

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        if self.lost:
            return
        self._heard_s = self._loop.time()
        if self._rest:
            self._rest += data
            if len(self._rest) < self._rest_bytes_wanted:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at = 0
        try:
            while True:
                numbers, behind = stored_run(data, at)
                if numbers:
                    self._take_stored(data, at, behind, numbers)
                else:
                    behind = frames.frame_end(data, at, limits.BOOKKEEPER_ANSWER_BYTES_MAX)
                    if behind > len(data):
                        break
                    self._take(data[at + frames.LENGTH_BYTES : behind])
                at = behind
        except AnabranchError as error:
            _log.warning("bookie_broke_rules", bookie=self._bookie, reason=str(error))
            self.abort()
        if at < len(data) and not self.lost:
            self._rest += data[at:]
            self._rest_bytes_wanted = behind - at

    def eof_received(self) -> bool | None:
        """See `ConnectionHandler.eof_received`."""
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        """See `ConnectionHandler.connection_lost`."""
        self._end()

    def pause_writing(self) -> None:
        """See `ConnectionHandler.pause_writing`."""
        self._writable = False

    def resume_writing(self) -> None:
        """See `ConnectionHandler.resume_writing`."""
        self._writable = True
        self.flush()

    # --- out ----------------------------------------------------------------------------------

    def ask(self, request: Request, on_reply: OnReply, context: Any) -> None:
        """Send a request with what else is asked in this turn of the loop."""
        refused = self._refused()
        if refused is not None:
            self._loop.call_soon(on_reply, context, refused, None)
            return
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._deadline_s = self._loop.time() + self._timeout_s
            self._loop.call_soon(self.flush)
        _, _, body, _, digits, start = request
        if not digits or digits in self._waiting:  # without a number, or sent here once before
            digits, start = self._numbered(request)
        size_bytes = len(start) + len(body)
        self._waiting[digits] = (self._deadline_s, on_reply, context, size_bytes, None)
        self._pieces.append(start)
        if body:
            self._pieces.append(body)
            self._pieces_are_short = False
        self._gathered(size_bytes)

    def store(self, adds: Sequence[Add], storing: Storing) -> None:
        """Have entries stored; goes out with the next `flush`, which the caller sees to."""
        refused = self._refused()
        if refused is not None:
            for add in adds:
                self._loop.call_soon(storing.replied, add, refused, None)
            return
        self._deadline_s = deadline_s = self._loop.time() + self._timeout_s
        waiting, pieces, replied = self._waiting, self._pieces, storing.replied
        all_bytes = 0
        for add in adds:
            request = add.request
            _, _, body, _, digits, start = request
            if digits in waiting:  # sent here once before
                digits, start = self._numbered(request)
            size_bytes = len(start)
            pieces.append(start)
            if body:
                pieces.append(body)
                size_bytes += len(body)
                self._pieces_are_short = False
            waiting[digits] = (deadline_s, replied, add, size_bytes, storing)
            all_bytes += size_bytes
        self._gathered(all_bytes)

    def _refused(self) -> Status | None:
        """Why nothing more is sent here."""
        # What was sent is held until it is answered, though others may have confirmed it long ago.
        most = limits.BOOKKEEPER_UNANSWERED_BYTES_MAX
        if self.lost:
            return Status.UNREACHABLE
        if self._unanswered_bytes > most or self._gathered_bytes > most:
            return Status.TOO_SLOW
        return None

    def _numbered(self, request: Request) -> tuple[bytes, bytes]:
        """A number of this connection's own, and the start of the frame with it."""
        self._number += 2
        digits = frames.varint(self._number)
        return digits, frames.frame_start(request, digits)

    def _gathered(self, size_bytes: int) -> None:
        self._unanswered_bytes += size_bytes
        self._gathered_bytes += size_bytes
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._look_at_clock)

    def flush(self) -> None:
        """Send what was gathered, as soon as the other side reads."""
        self._flush_scheduled = False
        if not self._pieces or not self._writable or self.lost or self.transport is None:
            return
        pieces, self._pieces = self._pieces, []
        short, self._pieces_are_short = self._pieces_are_short, True
        self._gathered_bytes = 0
        if short:
            # To copy them once costs less than to hand them over one by one.
            self.transport.write(b"".join(pieces))
        else:
            self.transport.writelines(pieces)

    # --- in -----------------------------------------------------------------------------------

    def _take_stored(self, data: bytes, at: int, behind: int, numbers: Sequence[bytes]) -> None:
        """Take answers to adds that went well, all of one length."""
        self.answered = True
        whose: Storing | None = None
        adds: list[Add] = []
        for place, digits in enumerate(numbers):
            # Whoever is told may end the connection, and all that waits with it.
            waiting = self._waiting.pop(digits, None)
            storing = None if waiting is None else waiting[4]
            if storing is not whose:
                if whose is not None:
                    whose.stored(adds)
                whose, adds = storing, []
            if waiting is None:
                size = (behind - at) // len(numbers)
                start = at + place * size
                self._take(data[start + frames.LENGTH_BYTES : start + size])
                continue
            _, on_reply, context, size_bytes, _ = waiting
            self._unanswered_bytes -= size_bytes
            if storing is None:
                on_reply(context, Status.OK, None)
            else:
                adds.append(context)
        if whose is not None:
            whose.stored(adds)

    def _take(self, message: bytes) -> None:
        response = frames.parse_response(message)
        self.answered = True
        waiting = self._waiting.pop(frames.varint(response.header.txn_id), None)
        if waiting is not None:
            _, on_reply, context, size_bytes, _ = waiting
            self._unanswered_bytes -= size_bytes
            on_reply(context, frames.status_of(response), response)

    def _look_at_clock(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        late: list[bytes] = []
        for digits, asked in self._waiting.items():
            if asked[0] > now_s:
                break
            late.append(digits)
        silent = bool(late) and now_s - self._heard_s >= self._timeout_s
        for digits in late:
            waiting = self._waiting.pop(digits, None)
            if waiting is not None:
                _, on_reply, context, size_bytes, _ = waiting
                self._unanswered_bytes -= size_bytes
                on_reply(context, Status.TIMED_OUT, None)
        if silent:
            # What waits to be sent to it would wait for ever.
            _log.warning("bookie_silent", bookie=self._bookie, unanswered=len(self._waiting))
            self.abort()
        elif self._waiting and not self.lost:
            interval_s = self._timeout_s / _TICKS_PER_TIMEOUT
            self._timer = self._loop.call_later(interval_s, self._look_at_clock)

    # --- the end ------------------------------------------------------------------------------

    def abort(self) -> None:
        """End the connection at once; what is unanswered stays so."""
        if self.transport is not None:
            self.transport.abort()
        self._end()

    def _end(self) -> None:
        if self.lost:
            return
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pieces.clear()
        self._rest.clear()
        self._on_lost(self)
        waiting, self._waiting = self._waiting, {}
        for _, on_reply, context, _, _ in waiting.values():
            on_reply(context, Status.UNREACHABLE, None)
