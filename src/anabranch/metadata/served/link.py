"""A client's connection to the server, made anew as often as it is lost, and its session.

One task connects and waits; another keeps the time: it renews the session, notices a connection
that is dead, and gives the session up before the server does.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    InputError,
    ProtocolError,
    SessionExpired,
    Unreachable,
)
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.entries import NOBODY
from anabranch.metadata.served import messages
from anabranch.metadata.served.addresses import Address
from anabranch.metadata.served.calls import Call, Calls, Repeat
from anabranch.metadata.served.client_connection import ClientConnection
from anabranch.metadata.served.lease import Lease
from anabranch.metadata.session_news import SessionNews
from anabranch.metadata.store import Event, Operation, Outcome, Put, Revision, SessionEvent
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_TICKS_PER_TIMEOUT: Final = 24
_log: Final = get_logger("metadata-client")


class Link:
    """The way to the server."""

    def __init__(
        self,
        runtime: Runtime,
        addresses: Sequence[Address],
        timeout_s: float,
        on_events: Callable[[list[Event]], None],
    ) -> None:
        self.news = SessionNews()
        self.session = NOBODY
        self.lease = Lease()
        self.newest = Revision(0, 0)
        """The newest point of history that the server has told us of."""
        self.subscribed_since: Callable[[], Revision] | None = None
        """From where to be told of changes on a new connection; None if nobody wants to know."""
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._on_events = on_events
        self._tasks = Tasks(self._task_failed)
        self._calls = Calls()
        self._connection: ClientConnection | None = None
        self._secret = b""
        self._alive = False
        """Whether the session is believed to be."""
        self._pinged_s = 0.0
        self._ping: Call | None = None
        self._overdue = False
        self._flush_scheduled = False
        self._closing = False
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._last_error = "nobody has answered yet"

    # --- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and begin a session.

        Raises:
            Unreachable: if no server answers within the session's timeout.
            ProtocolError: if the server refuses this client.
        """
        self._tasks.spawn("connect to the metadata server", self._stay_connected())
        try:
            async with asyncio.timeout(max(self._timeout_s, limits.CONNECT_TIMEOUT_S)):
                await self._opened
        except TimeoutError:
            await self.close()
            names = ", ".join(map(str, self._addresses))
            raise Unreachable(f"no metadata server at {names}: {self._last_error}") from None
        except BaseException:
            await self.close()
            raise
        self._tasks.spawn("keep the metadata session", self._keep_time())

    async def close(self) -> None:
        """Finish writes in flight, end the session, let go of the connection."""
        self._closing = True
        if self._connection is not None:
            if under_way := self._calls.writes_under_way:
                await asyncio.wait(under_way, timeout=self._timeout_s)
            farewell = self._ask(pb.Request(close=pb.Ping()), Repeat.ONCE)
            await asyncio.wait([farewell.answer], timeout=self.lease.renew_every_s)
        await self._tasks.close()
        if self._connection is not None:
            self._connection.abort()
        if not self._opened.done():
            self._opened.cancel()
        self._calls.close(AlreadyClosed("the metadata store was closed"))
        self.news.close()

    def _task_failed(self, name: str, failure: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"{name} broke", "exception": failure})

    @property
    def valid_until_s(self) -> float:
        """Before this the session cannot have ended at the server."""
        return self.lease.valid_until_s if self._alive else -math.inf

    # --- calls --------------------------------------------------------------------------------

    async def ask(self, request: pb.Request, repeat: Repeat = Repeat.READ) -> pb.Response:
        """Send a request and wait for the answer."""
        call = self._ask(request, repeat)
        try:
            return await call.answer
        except asyncio.CancelledError:
            if not call.answer.cancelled() and call.answer.exception() is None:
                self._calls.not_read(call.answer.result(), call.made_s)
                self._schedule_flush()
            raise

    def tell(self, request: pb.Request) -> None:
        """Send a request whose answer nobody waits for."""
        self._ask(request, Repeat.BOUND)

    def write(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        """Send operations; the answer has their outcomes."""
        if not self._alive and any(isinstance(op, Put) and op.ephemeral for op in operations):
            expired = SessionExpired(f"session {self.session} is over and the next has not begun")
            refused: asyncio.Future[list[Outcome]] = self._loop.create_future()
            refused.set_result([expired] * len(operations))
            return refused
        # While nobody can be reached, those who wait longer must not drag others down with them.
        join = self._connection is not None or self._flush_scheduled
        self._schedule_flush()
        return self._calls.write(operations, self._runtime.clock.monotonic_s(), join=join)

    def subscribe(self, since: Callable[[], Revision]) -> None:
        """Be told of changes from now on, and on every connection to come."""
        self.subscribed_since = since
        if self._connection is not None:
            self._send_subscription(self._connection)

    def _send_subscription(self, connection: ClientConnection) -> None:
        # Not a call: nobody waits for the answer, and it goes ahead of all calls.
        if self.subscribed_since is not None:
            since = messages.revision_message(self.subscribed_since())
            request = pb.Request(subscribe=pb.Subscribe(since=since))
            connection.send(pb.Frame(requests=pb.Requests(requests=[request])))

    def _ask(self, request: pb.Request, repeat: Repeat) -> Call:
        self._schedule_flush()
        return self._calls.ask(request, repeat, self._runtime.clock.monotonic_s())

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        while self._connection is not None and self._connection.writable:
            requests = self._calls.take()
            if not requests:
                return
            self._connection.send(pb.Frame(requests=pb.Requests(requests=requests)))

    def writable_again(self) -> None:
        """The connection has taken what was sent."""
        self._schedule_flush()

    def received(self, replies: pb.Replies) -> None:
        """Events and answers came in."""
        if replies.events:
            events = [messages.event_from(event) for event in replies.events]
            self.newest = max(self.newest, events[-1].revision)
            self._on_events(events)
        for response in replies.responses:
            if response.HasField("revision"):
                self.newest = max(self.newest, messages.revision_from(response.revision))
            self._calls.answered(response)
        if self._ping is not None and self._ping.answer.done():
            self._ping = None
            self.lease.renewed(self._pinged_s)
        self._schedule_flush()

    # --- connecting ---------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        delay_s = limits.METADATA_RECONNECT_DELAY_S_MIN
        turn = 0
        while True:
            address = self._addresses[turn % len(self._addresses)]
            turn += 1
            connection = await self._try(address)
            if connection is not None:
                delay_s = limits.METADATA_RECONNECT_DELAY_S_MIN
                turn -= 1
                await connection.lost
                self._detached(connection)
                connection.abort()
            await asyncio.sleep(delay_s * self._runtime.entropy.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, limits.METADATA_RECONNECT_DELAY_S_MAX)

    async def _try(self, address: Address) -> ClientConnection | None:
        connection: ClientConnection | None = None

        def handler() -> ClientConnection:
            nonlocal connection
            connection = ClientConnection(self)
            return connection

        sent_s = self._runtime.clock.monotonic_s()
        try:
            async with asyncio.timeout(max(0.1, self._timeout_s / 3)):
                await self._runtime.network.connect(address.host, address.port, handler)
                assert connection is not None
                sent_s = self._runtime.clock.monotonic_s()
                hello = self._hello()
                connection.send(pb.Frame(hello=hello))
                welcome = await connection.welcome
        except TimeoutError:
            self._last_error = f"{address} does not answer"
        except (SessionExpired, InputError) as error:
            self._refused(error)
        except (OSError, UnicodeError, AnabranchError) as error:
            self._last_error = f"{address}: {error}"
        else:
            if self._alive or not hello.session:
                self._attached(connection, welcome, sent_s)
                return connection
            self._last_error = "the session was given up while it was taken up again"
        if connection is not None:
            connection.abort()
        return None

    def _hello(self) -> pb.Hello:
        hello = pb.Hello(
            protocol=messages.PROTOCOL,
            features=sorted(messages.FEATURES),
            timeout_ms=round(self._timeout_s * 1000),
            secret=self._secret,
        )
        if self._alive:
            hello.session = self.session
        else:
            hello.replaces = self.session
        return hello

    def _refused(self, error: AnabranchError) -> None:
        self._last_error = str(error)
        if not self._opened.done():
            self._opened.set_exception(error)
        elif isinstance(error, ProtocolError):
            _log.warning("metadata_server_refuses", reason=str(error))
        elif self._alive:
            self._give_up_session(str(error))

    def _attached(self, connection: ClientConnection, welcome: pb.Welcome, sent_s: float) -> None:
        resumed = self._alive
        self.session, self._secret = welcome.session, welcome.secret
        self.lease.begin(welcome.timeout_ms / 1000, sent_s)
        self.newest = max(self.newest, messages.revision_from(welcome.revision))
        self._connection, self._alive = connection, True
        self._pinged_s, self._ping = sent_s, None
        self._send_subscription(connection)
        for requests in self._calls.again():
            connection.send(pb.Frame(requests=pb.Requests(requests=requests)))
        self._schedule_flush()
        if not self._opened.done():
            self._opened.set_result(None)
        elif resumed:
            self.news.publish(SessionEvent.RECONNECTED)
        else:
            self.news.publish(SessionEvent.SESSION_REESTABLISHED)

    def _detached(self, connection: ClientConnection) -> None:
        if self._connection is not connection:
            return
        self._connection = self._ping = None
        self._last_error = "the connection was lost"
        self._calls.connection_lost("the connection to the metadata server was lost")
        if self._alive and not self._closing:
            self.news.publish(SessionEvent.CONNECTION_LOST)

    # --- time ---------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(self.lease.timeout_s / _TICKS_PER_TIMEOUT)
            now_s = self._runtime.clock.monotonic_s()
            if self._connection is not None:
                self._renew(self._connection, now_s)
            if self._alive and now_s >= self.lease.lost_at_s:
                self._give_up_session("the metadata server was not heard of in time")
            if self._connection is None:
                self._calls.give_up(
                    now_s - self.lease.timeout_s,
                    f"the metadata server cannot be reached: {self._last_error}",
                )

    def _renew(self, connection: ClientConnection, now_s: float) -> None:
        if self._ping is not None:
            overdue = now_s - self._pinged_s >= self.lease.answer_within_s
            # Looked at twice: the answer may be here, behind what has kept this loop busy.
            if overdue and self._overdue:
                _log.warning("metadata_server_silent", seconds=now_s - self._pinged_s)
                connection.abort()
            self._overdue = overdue
        elif now_s - self._pinged_s >= self.lease.renew_every_s:
            self._pinged_s, self._overdue = now_s, False
            # Ahead of writes that may wait for long: the session must not depend on them.
            self._ping = self._calls.ask(
                pb.Request(ping=pb.Ping()), Repeat.BOUND, now_s, first=True
            )
            self._schedule_flush()

    def _give_up_session(self, why: str) -> None:
        self._alive = False
        self._calls.session_lost(why)
        if self._connection is not None:
            connection = self._connection
            self._detached(connection)
            connection.abort()
        if not self._closing:
            _log.warning("metadata_session_lost", session=self.session, reason=why)
            self.news.publish(SessionEvent.SESSION_LOST)
