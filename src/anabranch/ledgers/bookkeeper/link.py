"""The ways to bookies: a connection to each, made when it is first needed and again when lost.

A bookie that cannot be reached is not tried again at once; until then requests to it fail soon, so
that their sender can go to another one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

from anabranch import limits
from anabranch.errors import AnabranchError, ConfigError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.connection import BookieConnection, OnReply
from anabranch.ledgers.bookkeeper.frames import Request, Status
from anabranch.ledgers.bookkeeper.introduction import introduce
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.runtime import Runtime
from anabranch.runtime.network import Tls
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

Resolve = Callable[[str], Awaitable[tuple[str, int]]]
"""Where the bookie of an id listens."""

_Answer: TypeAlias = asyncio.Future[tuple[Status, pb.Response | None]]
_log: Final = get_logger("bookkeeper")


class BookieLink:
    """The way to one bookie."""

    def __init__(
        self,
        runtime: Runtime,
        bookie: str,
        resolve: Resolve,
        settings: BookKeeperSettings,
        tasks: Tasks,
    ) -> None:
        self.bookie = bookie
        self.trouble = ""
        """Why the last attempt to connect came to nothing; empty if it did not."""
        self.connection: BookieConnection | None = None
        """Asked by whoever asks often and has looked that it is there; others use `ask`."""
        self._runtime = runtime
        self._resolve = resolve
        self._settings = settings
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._connecting = False
        self._queue: deque[tuple[Request, OnReply, Any]] = deque()
        self._queued_bytes = 0
        self._not_before_s = 0.0
        self._delay_s = limits.BOOKKEEPER_RECONNECT_DELAY_S_MIN
        self._closed = False

    def ask(self, request: Request, on_reply: OnReply, context: Any = None) -> None:
        """Send a request; `on_reply` is called once, and never within this call."""
        connection = self.connection
        if connection is not None:
            connection.ask(request, on_reply, context)
            return
        if self._closed or (not self._connecting and self._loop.time() < self._not_before_s):
            self._loop.call_soon(on_reply, context, Status.UNREACHABLE, None)
            return
        if self._queued_bytes > limits.BOOKKEEPER_UNANSWERED_BYTES_MAX:
            self._loop.call_soon(on_reply, context, Status.TOO_SLOW, None)
            return
        self._queue.append((request, on_reply, context))
        self._queued_bytes += len(request.start) + len(request.head) + len(request.body)
        if not self._connecting:
            self._connecting = True
            self._tasks.spawn(f"connect to bookie {self.bookie}", self._connect())

    async def call(self, request: Request) -> tuple[Status, pb.Response | None]:
        """Send a request and wait for how it went."""
        answer: _Answer = self._loop.create_future()
        self.ask(request, _answered, answer)
        return await answer

    def close(self) -> None:
        """Let go of the connection; whatever is under way fails."""
        self._closed = True
        if self.connection is not None:
            self.connection.abort()
        self._fail_queue()

    # --- connecting ---------------------------------------------------------------------------

    async def _connect(self) -> None:
        connection = BookieConnection(self.bookie, self._settings.request_timeout_s, self._lost)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                host, port = await self._resolve(self.bookie)
                await self._runtime.network.connect(host, port, lambda: connection)
                if self._settings.tls is not None:
                    await self._secure(connection, host, self._settings.tls)
                await introduce(
                    partial(self._ask_first, connection),
                    self.bookie,
                    self._settings,
                    self._runtime.entropy,
                )
        except TimeoutError:
            self._not_connected(connection, "no answer in time")
        except (OSError, UnicodeError, AnabranchError) as error:
            self._not_connected(connection, str(error))
        except BaseException:
            self._not_connected(connection, "the store was closed")
            raise
        else:
            if connection.lost or self._closed:
                self._not_connected(connection, "the connection was lost")
                return
            self._connecting = False
            self.trouble = ""
            self.connection = connection
            queue, self._queue = self._queue, deque()
            self._queued_bytes = 0
            for request, on_reply, context in queue:
                connection.ask(request, on_reply, context)

    async def _secure(self, connection: BookieConnection, host: str, tls: Tls) -> None:
        status, _ = await self._ask_first(connection, frames.start_tls())
        if status is not Status.OK:
            raise ConfigError(f"bookie {self.bookie} does not speak TLS: {status.name}")
        connection.transport = await self._runtime.network.start_tls(
            connection.transport, connection, tls, host=host
        )

    async def _ask_first(
        self, connection: BookieConnection, request: Request
    ) -> tuple[Status, pb.Response | None]:
        answer: _Answer = self._loop.create_future()
        connection.ask(request, _answered, answer)
        return await answer

    def _not_connected(self, connection: BookieConnection, why: str) -> None:
        connection.abort()
        self._connecting = False
        self.trouble = why
        if not self._closed:
            _log.warning("bookie_unreachable", bookie=self.bookie, reason=why)
        self._back_off()
        self._fail_queue()

    def _back_off(self) -> None:
        wait_s = self._delay_s * self._runtime.entropy.uniform(0.5, 1.0)
        self._not_before_s = self._loop.time() + wait_s
        self._delay_s = min(2 * self._delay_s, limits.BOOKKEEPER_RECONNECT_DELAY_S_MAX)

    def _fail_queue(self) -> None:
        queue, self._queue = self._queue, deque()
        self._queued_bytes = 0
        for _, on_reply, context in queue:
            self._loop.call_soon(on_reply, context, Status.UNREACHABLE, None)

    def _lost(self, connection: BookieConnection) -> None:
        if self.connection is connection:
            self.connection = None
            if connection.answered:
                self._delay_s = limits.BOOKKEEPER_RECONNECT_DELAY_S_MIN
            else:
                # One that accepts connections and ends them is as good as one that is not there.
                self._back_off()
            if not self._closed:
                _log.info("bookie_connection_lost", bookie=self.bookie)


def _answered(answer: _Answer, status: Status, response: pb.Response | None) -> None:
    if not answer.done():
        answer.set_result((status, response))


class BookieLinks:
    """The links of one store, by bookie."""

    def __init__(
        self, runtime: Runtime, resolve: Resolve, settings: BookKeeperSettings, tasks: Tasks
    ) -> None:
        self._runtime = runtime
        self._resolve = resolve
        self._settings = settings
        self._tasks = tasks
        self._links: dict[str, BookieLink] = {}
        self.add_numbers = count(2, 2)
        """Of requests that go to several bookies; connections count the odd ones."""
        self._closed = False

    def link(self, bookie: str) -> BookieLink:
        """The way to a bookie; after `close`, one on which nothing gets through."""
        link = self._links.get(bookie)
        if link is None:
            link = BookieLink(self._runtime, bookie, self._resolve, self._settings, self._tasks)
            self._links[bookie] = link
            if self._closed:
                link.close()
        return link

    def close(self) -> None:
        """Let go of every connection."""
        self._closed = True
        for link in list(self._links.values()):
            link.close()
