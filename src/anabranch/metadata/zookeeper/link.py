"""A client's way to a ZooKeeper ensemble: connections made anew as often as they are lost.

One task connects and waits; another keeps the time by the rules of `session`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    ConfigError,
    SessionExpired,
    Unreachable,
)
from anabranch.metadata.digest_md5 import DigestMd5
from anabranch.metadata.paths import ROOT
from anabranch.metadata.session_news import SessionNews
from anabranch.metadata.store import SessionEvent
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.addresses import Address
from anabranch.metadata.zookeeper.connection import Call, ServerConnection
from anabranch.metadata.zookeeper.replies import Change, Code, Refusal
from anabranch.metadata.zookeeper.requests import Request, WatchMode
from anabranch.metadata.zookeeper.session import NOBODY, Begun, Duty, Session
from anabranch.runtime import Runtime
from anabranch.runtime.network import Tls
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

T = TypeVar("T")
SASL: Final = "sasl"
"""The scheme of an identity that is proven by DIGEST-MD5 instead of being sent."""
_TICKS_PER_TIMEOUT: Final = 24
_SASL_URI: Final = "zookeeper/zk-sasl-md5"
_log: Final = get_logger("zookeeper")


class Link:
    """See the module. Also the `Listener` of its connections."""

    def __init__(
        self,
        runtime: Runtime,
        servers: Sequence[Address],
        timeout_s: float,
        *,
        tls: Tls | None = None,
        identities: Sequence[tuple[str, bytes]] = (),
        on_changes: Callable[[list[Change]], None],
        on_gap: Callable[[int], None],
        unanswered_max: int = limits.ZOOKEEPER_UNANSWERED_MAX,
    ) -> None:
        self.news = SessionNews()
        self.session = Session(timeout_s)
        self.watches: dict[str, WatchMode] = {}
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._servers = servers
        self._tls = tls
        self._identities = identities
        self._on_changes = on_changes
        self._on_gap = on_gap
        self._unanswered_max = unanswered_max
        self._tasks = Tasks(self._task_failed)
        self._queue: deque[Call] = deque()
        self._connection: ServerConnection | None = None
        self._told_to = 0
        self._owes_gap = False
        self._flush_scheduled = False
        self._closing = False
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._announced = NOBODY
        """The session that listeners know of."""
        self._last_error = "nobody has answered yet"

    # --- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and begin a session.

        Raises:
            Unreachable: if no server answers in time.
            ConfigError: if the servers do not believe who we are.
        """
        self._tasks.spawn("connect to ZooKeeper", self._stay_connected())
        try:
            async with asyncio.timeout(max(self.session.timeout_s, limits.CONNECT_TIMEOUT_S)):
                await self._opened
        except TimeoutError:
            await self.close()
            names = ", ".join(map(str, self._servers))
            raise Unreachable(f"no ZooKeeper server at {names}: {self._last_error}") from None
        except BaseException:
            await self.close()
            raise
        self._tasks.spawn("keep the ZooKeeper session", self._keep_time())

    async def close(self) -> None:
        """Finish what is under way, end the session, let go of the connection."""
        if self._closing:
            return
        # Answers come in order: this one comes behind all that is under way.
        farewell = None if self._connection is None else self.ask(requests.close())
        self._closing = True
        try:
            if farewell is not None:
                await asyncio.wait([farewell.answer], timeout=self.session.timeout_s)
        finally:
            self._let_go()
            await self._tasks.close()

    def _let_go(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.abort()
            self._queue.extendleft(reversed(connection.take_unanswered()))
        if not self._opened.done():
            self._opened.cancel()
        for call in self._queue:
            if call.sent and call.request.writes:
                call.lose("the store was closed")
            else:
                call.fail(AlreadyClosed("the metadata store was closed"))
        self._queue.clear()
        self.news.close()

    def _task_failed(self, name: str, failure: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"{name} broke", "exception": failure})

    # --- calls --------------------------------------------------------------------------------

    def ask(self, request: Request[Any], *, session: int | None = None) -> Call:
        """Queue a request; all that were queued in one turn of the loop go out with one write."""
        if self._closing:
            raise AlreadyClosed("the metadata store was closed")
        call = Call(request, self._runtime.clock.monotonic_s(), session)
        self._queue.append(call)
        self._schedule_flush()
        return call

    async def call(self, request: Request[T], *, session: int | None = None) -> T:
        """Send a request and wait for the answer.

        Raises:
            Refusal: if the server refuses it.
            OutcomeUnknown: if it writes and the answer was lost.
            SessionExpired: if it was made for a session that is over.
            Unreachable: if nobody answers in time.
        """
        result: T = await self.ask(request, session=session).answer
        return result

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        connection = self._connection
        if connection is None or connection.lost.done() or not connection.writable:
            return
        calls: list[Call] = []
        room = self._unanswered_max - connection.unanswered
        while self._queue and room > 0:
            call = self._queue.popleft()
            if call.answer.done():
                continue  # its caller has given up
            if call.session is not None and call.session != self.session.number:
                call.fail(SessionExpired("the session ended before the write was sent"))
                continue
            calls.append(call)
            room -= max(1, len(call.request.bundle))
        if calls:
            connection.send(calls)

    # --- as a connection's listener -----------------------------------------------------------

    def changed(self, changes: list[Change]) -> None:
        """See `Listener.changed`."""
        self.session.zxid_seen = max(self.session.zxid_seen, changes[-1].zxid)
        self._on_changes(changes)

    def answered(self, zxid: int) -> None:
        """See `Listener.answered`."""
        # An answer comes behind all that watches have to tell up to its point of history; a change
        # may be one of several of its moment, of which the others are still to come.
        self._told_to = max(self._told_to, zxid)
        self.session.zxid_seen = max(self.session.zxid_seen, zxid)
        if self._queue:
            self._schedule_flush()

    def rearmed(self, zxid: int, error: int) -> None:
        """See `Listener.rearmed`."""
        if error:
            # Another server may be newer; without watches this one is of no use.
            _log.warning("zookeeper_refused_watches", reason=str(Refusal(error)))
            self._on_gap(max(zxid, self.session.zxid_seen))
            assert self._connection is not None
            self._connection.abort()
            return
        # Watches tell nothing of what happened between two connections.
        if zxid != self._told_to or self._owes_gap:
            self._owes_gap = False
            self._on_gap(zxid)
        self.answered(zxid)

    def tell_gap(self) -> None:
        """Have all watches put back by the next connection, and a gap told whatever it is at."""
        self._owes_gap = True
        if self._connection is not None:
            self._connection.abort()

    def writable_again(self) -> None:
        """See `Listener.writable_again`."""
        self._schedule_flush()

    # --- connecting ---------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        delay_s = limits.METADATA_RECONNECT_DELAY_S_MIN
        turn = self._runtime.entropy.below(len(self._servers))
        while True:
            address = self._servers[turn % len(self._servers)]
            turn += 1
            connection = await self._try(address)
            if connection is not None:
                delay_s = limits.METADATA_RECONNECT_DELAY_S_MIN
                await connection.lost
                self._detached(connection)
                connection.abort()
            await asyncio.sleep(delay_s * self._runtime.entropy.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, limits.METADATA_RECONNECT_DELAY_S_MAX)

    async def _try(self, address: Address) -> ServerConnection | None:
        connection: ServerConnection | None = None
        attached = False

        def handler() -> ServerConnection:
            nonlocal connection
            connection = ServerConnection(self)
            return connection

        try:
            async with asyncio.timeout(max(0.5, self.session.timeout_s / 3)):
                await self._runtime.network.connect(
                    address.host, address.port, handler, tls=self._tls
                )
                assert connection is not None
                asked_for = self.session.number if self.session.alive else 0
                sent_s = self._runtime.clock.monotonic_s()
                connection.greet(self.session.hello())
                welcome = await connection.welcome
                if asked_for and not self.session.alive:
                    raise Unreachable("the session was given up while it was taken up again")
                if self.session.welcomed(asked_for, welcome, sent_s) is not Begun.EXPIRED:
                    await self._identify(connection)
                    self._attached(connection)
                    attached = True
                    return connection
                self._session_lost("ZooKeeper has ended the session")
        except TimeoutError:
            self._last_error = f"{address} does not answer"
        except Refusal:
            self._refused(ConfigError("ZooKeeper does not accept the credentials: check them"))
        except ConfigError as error:
            self._refused(error)
        except (OSError, UnicodeError, AnabranchError) as error:
            self._last_error = f"{address}: {error}"
        finally:
            if connection is not None and not attached:
                connection.abort()
        return None

    async def _identify(self, connection: ServerConnection) -> None:
        for scheme, credentials in self._identities:
            if scheme == SASL:
                user, _, password = credentials.decode().partition(":")
                nonce = self._runtime.entropy.token_hex(16)
                exchange = DigestMd5(user, password, nonce, uri=_SASL_URI)
                challenge = await self._step(connection, b"")
                exchange.check(await self._step(connection, exchange.respond(challenge)))
        connection.identify([entry for entry in self._identities if entry[0] != SASL])
        await connection.authenticated

    async def _step(self, connection: ServerConnection, token: bytes) -> bytes:
        step = Call(requests.sasl(token), self._runtime.clock.monotonic_s(), None)
        connection.send([step])
        await asyncio.wait([step.answer, connection.lost], return_when=asyncio.FIRST_COMPLETED)
        if not step.answer.done():
            raise Refusal(Code.AUTH_FAILED)  # some servers hang up instead of answering
        answer: bytes = step.answer.result()
        return answer

    def _refused(self, error: ConfigError) -> None:
        self._last_error = str(error)
        if not self._opened.done():
            self._opened.set_exception(error)
        else:
            _log.warning("zookeeper_refused", reason=str(error))

    def _attached(self, connection: ServerConnection) -> None:
        self._connection = connection
        goes_on = self.session.number == self._announced
        self._announced = self.session.number
        if self.watches:
            by_mode = {
                mode: [path for path, wanted in self.watches.items() if wanted is mode]
                for mode in WatchMode
            }
            connection.rearm(
                self.session.zxid_seen, by_mode[WatchMode.PERSISTENT], by_mode[WatchMode.RECURSIVE]
            )
        self._flush()
        if not self._opened.done():
            self._opened.set_result(None)
        elif goes_on:
            self.news.publish(SessionEvent.RECONNECTED)
        else:
            self.news.publish(SessionEvent.SESSION_REESTABLISHED)

    def _detached(self, connection: ServerConnection) -> None:
        if self._connection is not connection:
            return
        self._connection = None
        self._last_error = "the connection was lost"
        self.session.disconnected()
        again: list[Call] = []
        for call in connection.take_unanswered():
            if call.once:
                continue
            if call.request.writes or call.request.code == requests.Op.CLOSE:
                call.lose("the connection to ZooKeeper was lost")
            else:
                again.append(call)
        self._queue.extendleft(reversed(again))
        if self.session.alive and not self._closing:
            self.news.publish(SessionEvent.CONNECTION_LOST)

    # --- time ---------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(self.session.timeout_s / _TICKS_PER_TIMEOUT)
            now_s = self._runtime.clock.monotonic_s()
            for duty in self.session.duties(now_s, connected=self._connection is not None):
                self._do(duty)
            if self._connection is None:
                self._give_up_calls(now_s - self.session.timeout_s)

    def _do(self, duty: Duty) -> None:
        if duty is Duty.GIVE_UP:
            self._session_lost("ZooKeeper was not heard of in time")
        elif self._connection is None:
            return
        elif duty is Duty.ASK:
            self._ask_leader(self._connection)
        else:
            _log.warning("zookeeper_silent")
            self._connection.abort()

    def _ask_leader(self, connection: ServerConnection) -> None:
        question = Call(requests.sync(ROOT), self._runtime.clock.monotonic_s(), None, once=True)
        connection.send([question])

        def answered(answer: asyncio.Future[Any]) -> None:
            if self._connection is connection and answer.exception() is None:
                self.session.answered(self._runtime.clock.monotonic_s())

        question.answer.add_done_callback(answered)

    def _session_lost(self, why: str) -> None:
        self.session.given_up()
        if self._connection is not None:
            connection = self._connection
            self._detached(connection)
            connection.abort()
        if self._opened.done() and not self._closing:
            _log.warning("zookeeper_session_lost", session=self.session.number, reason=why)
            self.news.publish(SessionEvent.SESSION_LOST)

    def _give_up_calls(self, older_than_s: float) -> None:
        while self._queue and self._queue[0].made_s < older_than_s:
            self._queue.popleft().lose(f"ZooKeeper cannot be reached: {self._last_error}")
