"""One connection to a bookie: requests of one turn go out together, answers come in any order.

Answers are given by plain calls, never within `ask`: adding an entry needs no task and no future.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.frames import Request, Status
from anabranch.runtime.network import Buffer, Connection
from anabranch.telemetry import get_logger

OnReply = Callable[[Any, Status, pb.Response | None], None]
"""Called once with the request's context, how it went, and the answer if there was one.

An add that went well is told without its answer, which says no more."""

_TICKS_PER_TIMEOUT: Final = 10
_log: Final = get_logger("bookkeeper")


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
        self._number = 0
        # In the order of asking, which is the order of time running out too.
        self._waiting: dict[int, tuple[float, OnReply, Any, int]] = {}
        self._unanswered_bytes = 0
        self._pieces: list[Buffer] = []
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
        try:
            messages, end = frames.cut_frames(data, limits.BOOKKEEPER_ANSWER_BYTES_MAX)
            if end < len(data):
                self._rest += data[end:]
                self._rest_bytes_wanted = frames.frame_bytes(self._rest)
            for message in messages:
                self._take(message)
        except AnabranchError as error:
            _log.warning("bookie_broke_rules", bookie=self._bookie, reason=str(error))
            self.abort()

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
        self._flush()

    # --- out ----------------------------------------------------------------------------------

    def ask(self, request: Request, on_reply: OnReply, context: Any) -> None:
        """Send a request with what else is asked in this turn of the loop."""
        # What was sent is held until it is answered, though others may have confirmed it long ago.
        behind_bytes = max(self._unanswered_bytes, self._gathered_bytes)
        if self.lost or behind_bytes > limits.BOOKKEEPER_UNANSWERED_BYTES_MAX:
            status = Status.UNREACHABLE if self.lost else Status.TOO_SLOW
            self._loop.call_soon(on_reply, context, status, None)
            return
        self._number = number = self._number + 1
        start = frames.frame_start(request, number)
        size_bytes = len(start) + len(request.body)
        deadline_s = self._loop.time() + self._timeout_s
        self._waiting[number] = (deadline_s, on_reply, context, size_bytes)
        self._pieces.append(start)
        if request.body:
            self._pieces.append(request.body)
        self._unanswered_bytes += size_bytes
        self._gathered_bytes += size_bytes
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._look_at_clock)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self._pieces or not self._writable or self.lost or self.transport is None:
            return
        pieces, self._pieces = self._pieces, []
        self._gathered_bytes = 0
        self.transport.writelines(pieces)

    # --- in -----------------------------------------------------------------------------------

    def _take(self, message: bytes) -> None:
        response: pb.Response | None = None
        status = Status.OK
        if not (number := frames.stored_number(message)):
            response = frames.parse_response(message)
            number, status = response.header.txn_id, frames.status_of(response)
        self.answered = True
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._unanswered_bytes -= waiting[3]
            waiting[1](waiting[2], status, response)

    def _look_at_clock(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        late: list[int] = []
        for number, (deadline_s, _, _, _) in self._waiting.items():
            if deadline_s > now_s:
                break
            late.append(number)
        silent = bool(late) and now_s - self._heard_s >= self._timeout_s
        for number in late:
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                self._unanswered_bytes -= waiting[3]
                waiting[1](waiting[2], Status.TIMED_OUT, None)
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
        for _, on_reply, context, _ in waiting.values():
            on_reply(context, Status.UNREACHABLE, None)
