"""What a client has asked for and was not answered yet. No input or output here.

Calls go out in the order they were made. Writes made in one turn share a request; each request has
a number of its session, so that it can be sent again without being carried out again.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum

from anabranch import limits
from anabranch.errors import AnabranchError, OutcomeUnknown, SessionExpired, Unreachable
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.served import messages
from anabranch.metadata.store import Operation, Outcome


class Repeat(Enum):
    """What to do with a call that was sent when its connection is lost."""

    READ = "ask again"
    NUMBERED = "ask again: the server knows whether it was carried out"
    ONCE = "its outcome is not known"
    BOUND = "it makes no sense on another connection"


class Call:
    """One request."""

    __slots__ = ("answer", "made_s", "repeat", "request", "sent")

    def __init__(self, request: pb.Request, repeat: Repeat, made_s: float) -> None:
        self.request = request
        self.repeat = repeat
        self.made_s = made_s
        self.sent = False
        self.answer: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()

    def fail(self, error: AnabranchError) -> None:
        """Answer with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)
            # Its caller may have given up.
            self.answer.exception()

    def unknown(self, why: str) -> AnabranchError:
        """The error for a call that will not be answered."""
        if self.sent and self.repeat in (Repeat.NUMBERED, Repeat.ONCE):
            return OutcomeUnknown(f"{why}; the write may or may not have been carried out")
        return Unreachable(why)


class WriteCall(Call):
    """Writes of several callers that go out together."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self, made_s: float) -> None:
        super().__init__(pb.Request(write=pb.Write()), Repeat.NUMBERED, made_s)
        self.parts: list[tuple[int, asyncio.Future[list[Outcome]]]] = []
        self.size_bytes = 0

    def add(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]] | None:
        """Take in the operations of one caller; None if there is no room for them."""
        encoded = [messages.operation_message(operation) for operation in operations]
        size_bytes = sum(message.ByteSize() for message in encoded)
        write = self.request.write
        if self.parts and (
            len(write.operations) + len(encoded) > limits.METADATA_COMMAND_OPERATIONS_MAX
            or self.size_bytes + size_bytes > limits.METADATA_FRAME_BYTES_USUAL
        ):
            return None
        write.operations.extend(encoded)
        self.size_bytes += size_bytes
        outcomes: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self.parts.append((len(encoded), outcomes))
        return outcomes

    def fail(self, error: AnabranchError) -> None:
        """See `Call.fail`: every caller gets the error."""
        super().fail(error)
        for _, outcomes in self.parts:
            if not outcomes.done():
                outcomes.set_exception(error)
                outcomes.exception()

    def refuse_ephemeral(self, why: SessionExpired) -> bool:
        """Answer callers that want a node of a session that is over; False if nobody is left.

        Nothing was sent yet, so none of what they asked for was carried out.
        """
        parts, self.parts = self.parts, []
        operations = list(self.request.write.operations)
        self.request.write.ClearField("operations")
        place = 0
        for count, outcomes in parts:
            wanted = operations[place : place + count]
            place += count
            if not any(operation.put.ephemeral for operation in wanted):
                self.parts.append((count, outcomes))
                self.request.write.operations.extend(wanted)
            elif not outcomes.done():
                outcomes.set_result([why] * count)
        self.size_bytes = sum(operation.ByteSize() for operation in self.request.write.operations)
        return bool(self.parts)

    def answered(self, response: pb.Response) -> None:
        """Give every caller the outcomes of its operations."""
        place = 0
        for count, outcomes in self.parts:
            mine = response.outcomes[place : place + count]
            place += count
            if not outcomes.done():
                outcomes.set_result([messages.outcome_from(outcome) for outcome in mine])


class Calls:
    """All calls of one client."""

    def __init__(self) -> None:
        self._queue: deque[Call] = deque()
        self._sent: dict[int, Call] = {}
        self._last_id = 0
        self._next_number = 1
        self._numbered: dict[int, WriteCall] = {}
        self._numbered_bytes = 0

    @property
    def writes_under_way(self) -> list[asyncio.Future[list[Outcome]]]:
        """The answers that writers wait for."""
        calls = [*self._numbered.values(), *self._queue]
        return [part[1] for call in calls if isinstance(call, WriteCall) for part in call.parts]

    def ask(
        self, request: pb.Request, repeat: Repeat, now_s: float, *, first: bool = False
    ) -> Call:
        """Queue a request; with `first`, ahead of all that wait to be sent."""
        call = Call(request, repeat, now_s)
        if first:
            self._queue.appendleft(call)
        else:
            self._queue.append(call)
        return call

    def write(
        self, operations: Sequence[Operation], now_s: float, *, join: bool = True
    ) -> asyncio.Future[list[Outcome]]:
        """Queue operations; with `join`, in the same request as others that wait to be sent."""
        last = self._queue[-1] if self._queue and join else None
        outcomes = last.add(operations) if isinstance(last, WriteCall) else None
        if outcomes is None:
            fresh = WriteCall(now_s)
            self._queue.append(fresh)
            outcomes = fresh.add(operations)
            assert outcomes is not None, "the first caller always finds room"
        return outcomes

    def take(self) -> list[pb.Request]:
        """The next requests to be sent together; [] if none is waiting or may be sent now."""
        taken: list[pb.Request] = []
        size_bytes = 0
        while self._queue and size_bytes < limits.METADATA_FRAME_BYTES_USUAL:
            call = self._queue[0]
            if isinstance(call, WriteCall):
                if self._window_is_full(call):
                    break
                call.request.write.number = self._next_number
                self._numbered[self._next_number] = call
                self._numbered_bytes += call.size_bytes
                self._next_number += 1
                call.request.write.answered_below = self._answered_below
            elif call.repeat is Repeat.BOUND and call.request.HasField("ping"):
                # Only now: what was read in one session says nothing in the next.
                call.request.ping.answered_below = self._answered_below
            self._queue.popleft()
            if call.answer.done() and not call.sent and not isinstance(call, WriteCall):
                continue  # its caller has given up
            self._last_id += 1
            call.request.id = self._last_id
            call.sent = True
            self._sent[self._last_id] = call
            taken.append(call.request)
            size_bytes += call.request.ByteSize()
        return taken

    def _window_is_full(self, call: WriteCall) -> bool:
        # What the server has no room for stays here: there it would stand in the way of renewals.
        size_bytes = self._numbered_bytes + call.size_bytes
        return bool(self._numbered) and (
            len(self._numbered) >= limits.METADATA_UNANSWERED_WRITES_MAX
            or size_bytes > limits.METADATA_UNANSWERED_WRITE_BYTES_MAX
        )

    @property
    def _answered_below(self) -> int:
        return next(iter(self._numbered), self._next_number)

    def answered(self, response: pb.Response) -> None:
        """An answer came in."""
        call = self._sent.pop(response.id, None)
        if call is None:
            return  # to a request whose caller was told that the outcome is not known
        if isinstance(call, WriteCall):
            self._numbered.pop(call.request.write.number, None)
            self._numbered_bytes -= call.size_bytes
        if response.HasField("error"):
            call.fail(messages.error_from(response.error))
        elif isinstance(call, WriteCall):
            call.answered(response)
        elif not call.answer.done():
            call.answer.set_result(response)
        else:
            self.not_read(response, call.made_s)

    def not_read(self, response: pb.Response, now_s: float) -> None:
        """Its caller has given up, and nobody else knows of the list that the server may keep."""
        if cursor := response.names.cursor or response.records.cursor:
            self.ask(pb.Request(drop=pb.Cursor(cursor=cursor)), Repeat.BOUND, now_s)

    def connection_lost(self, why: str) -> None:
        """What cannot be asked again is answered; the rest waits for the next connection."""
        for number, call in list(self._sent.items()):
            if call.repeat in (Repeat.ONCE, Repeat.BOUND):
                del self._sent[number]
                call.fail(call.unknown(why))

    def again(self) -> list[list[pb.Request]]:
        """On a new connection of the same session: what to send first, in frames."""
        frames: list[list[pb.Request]] = [[]]
        size_bytes = 0
        for call in self._sent.values():
            if isinstance(call, WriteCall):
                call.request.write.answered_below = self._answered_below
            if size_bytes >= limits.METADATA_FRAME_BYTES_USUAL:
                frames.append([])
                size_bytes = 0
            frames[-1].append(call.request)
            size_bytes += call.request.ByteSize()
        return [requests for requests in frames if requests]

    def session_lost(self, why: str) -> None:
        """The session is over: what was sent in its name will not be answered."""
        for call in self._sent.values():
            if call.repeat is not Repeat.READ:
                call.fail(call.unknown(why))
        self._sent = {
            number: call for number, call in self._sent.items() if call.repeat is Repeat.READ
        }
        self._numbered.clear()
        self._numbered_bytes = 0
        self._next_number = 1
        # What waits to be sent would be sent in the next session, which nobody has meant.
        expired = SessionExpired(f"{why}; the write was not carried out")
        self._queue = deque(
            call
            for call in self._queue
            if not isinstance(call, WriteCall) or call.refuse_ephemeral(expired)
        )

    def give_up(self, older_than_s: float, why: str) -> None:
        """Fail calls that were made before some time and that nobody has begun to carry out."""
        waiting, self._queue = self._queue, deque()
        for call in waiting:
            # Not in the order of their age: renewals go ahead of all others.
            if call.made_s < older_than_s:
                call.fail(Unreachable(why))
            else:
                self._queue.append(call)
        for number, call in list(self._sent.items()):
            if call.repeat is Repeat.READ and call.made_s < older_than_s:
                del self._sent[number]
                call.fail(Unreachable(why))

    def close(self, error: AnabranchError) -> None:
        """Fail everything."""
        for call in [*self._sent.values(), *self._queue]:
            sent_write = call.sent and call.repeat in (Repeat.NUMBERED, Repeat.ONCE)
            call.fail(call.unknown("the store was closed") if sent_write else error)
        self._sent.clear()
        self._queue.clear()
        self._numbered.clear()
