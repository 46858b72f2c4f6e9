"""Planted bugs of `anabranch.metadata.served` and of the sessions in the state machine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from anabranch.errors import AnabranchError, Unreachable
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.commands import Write
from anabranch.metadata.served.calls import Call, Calls, WriteCall
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.lease import Lease
from anabranch.metadata.served.link import Link
from anabranch.metadata.served.session_clock import SessionClock
from anabranch.metadata.state_machine import Effect, StateMachine
from anabranch.metadata.store import Event, Operation, Outcome, Revision
from anabranch.metadata.tree import Tree
from anabranch.metadata.watching import EventHistory
from anabranch.testing.planted import original, planted


@planted(
    "session_never_runs_out",
    target="anabranch.metadata.served.session_clock:SessionClock.tick",
)
def session_never_runs_out(self: SessionClock, now_s: float) -> list[int]:
    """The server waits for ever for clients that are dead."""
    del self, now_s
    return []


@planted("ephemeral_outlives_its_session", target="anabranch.metadata.tree:Tree.end_session")
def ephemeral_outlives_its_session(self: Tree, session: int, *, epoch: int) -> list[Event]:
    """A session ends and its nodes stay."""
    del self, session, epoch
    return []


@planted("reattaching_begins_a_new_session", target="anabranch.metadata.served.link:Link._hello")
def reattaching_begins_a_new_session(self: Link) -> pb.Hello:
    """A client that lost its connection does not ask for the session it had."""
    hello: pb.Hello = original("reattaching_begins_a_new_session")(self)
    hello.replaces, hello.session = hello.session, 0
    return hello


@planted(
    "session_clock_starts_where_it_stood",
    target="anabranch.metadata.served.session_clock:SessionClock.begin",
)
def session_clock_starts_where_it_stood(
    self: SessionClock, session: int, timeout_s: float, now_s: float
) -> None:
    """The time a server was down counts against its clients."""
    original("session_clock_starts_where_it_stood")(self, session, timeout_s, now_s - timeout_s / 2)
    self._timeouts_s[session] = timeout_s


@planted(
    "paused_server_blames_its_clients",
    target="anabranch.metadata.served.session_clock:SessionClock.tick",
)
def paused_server_blames_its_clients(self: SessionClock, now_s: float) -> list[int]:
    """The time a server was paused counts against its clients."""
    self._last_tick_s = now_s
    found: list[int] = original("paused_server_blames_its_clients")(self, now_s)
    return found


@planted("lease_is_stretched", target="anabranch.metadata.served.lease:Lease.renewed")
def lease_is_stretched(self: Lease, sent_s: float) -> None:
    """A client believes in its session for longer than the server does."""
    self._renewed_s = sent_s + self.timeout_s


@planted(
    "write_sent_again_is_done_again",
    target="anabranch.metadata.state_machine:StateMachine._write",
)
def write_sent_again_is_done_again(self: StateMachine, command: Write, epoch: int) -> Effect:
    """The server does not remember what it has answered."""
    effect: Effect = original("write_sent_again_is_done_again")(
        self, replace(command, request=0, answered_below=0), epoch
    )
    return effect


@planted("lost_session_calls_writes_undone", target="anabranch.metadata.served.calls:Call.unknown")
def lost_session_calls_writes_undone(self: Call, why: str) -> AnabranchError:
    """A write that was sent and not answered is reported as never begun."""
    del self
    return Unreachable(why)


@planted("watch_resumes_one_late", target="anabranch.metadata.watching:EventHistory.number_after")
def watch_resumes_one_late(self: EventHistory, since: Revision) -> int:
    """Who resumes misses the first change."""
    number: int = original("watch_resumes_one_late")(self, since)
    return min(number + 1, self.end_number) if number >= 0 else number


@planted("watch_resumes_one_early", target="anabranch.metadata.watching:EventHistory.number_after")
def watch_resumes_one_early(self: EventHistory, since: Revision) -> int:
    """Who resumes is told the last change again."""
    number: int = original("watch_resumes_one_early")(self, since)
    return max(number - 1, self._first_number) if number >= 0 else number


@planted("served_watch_tells_all", target="anabranch.metadata.served.client:ServedStore.watch")
def served_watch_tells_all(
    self: ServedStore, prefix: str = "/", since: Revision | None = None
) -> AsyncIterator[Event]:
    """Who resumes is told everything from the first change on."""
    since = since and Revision(since.epoch, 0)
    found: AsyncIterator[Event] = original("served_watch_tells_all")(self, prefix, since)
    return found


@planted("calls_go_out_alone", target="anabranch.metadata.served.calls:Calls.write")
def calls_go_out_alone(
    self: Calls, operations: list[Operation], now_s: float, *, join: bool = True
) -> asyncio.Future[list[Outcome]]:
    """Every write is a request of its own."""
    del join
    call = WriteCall(now_s)
    self._queue.append(call)
    outcomes = call.add(operations)
    assert outcomes is not None
    return outcomes


@planted(
    "one_refusal_fails_all_callers",
    target="anabranch.metadata.served.calls:WriteCall.answered",
)
def one_refusal_fails_all_callers(self: WriteCall, response: pb.Response) -> None:
    """If one of the writes in a request is refused, so are its neighbours."""
    for message in response.outcomes:
        if message.HasField("error"):
            for outcome in response.outcomes:
                outcome.CopyFrom(message)
            break
    original("one_refusal_fails_all_callers")(self, response)
