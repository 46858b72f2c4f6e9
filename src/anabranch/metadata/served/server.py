"""The server of a metadata store: sessions for other processes, on a store in this one.

Sessions are in the store and outlive this process; which of them has a connection, and when one was
last heard of, is known here only.
"""

import asyncio
import itertools
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.metadata.commands import EndSessions, Write
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.served.server_connection import ServerConnection
from anabranch.metadata.served.session_clock import SessionClock
from anabranch.metadata.served.under_way import UnderWay
from anabranch.runtime import Runtime
from anabranch.runtime.network import ConnectionHandler, Listener
from anabranch.runtime.tasks import FailureSink, Tasks
from anabranch.telemetry import get_logger

_RUN_BYTES: Final = 7
_log: Final = get_logger("metadata-server")


class MetadataServer:
    """Serves one store. The store itself is opened and closed by whoever made it."""

    def __init__(self, runtime: Runtime, store: LocalHandle, *, on_failure: FailureSink) -> None:
        self.runtime = runtime
        self.backing = store.backing
        self.tasks = Tasks(on_failure)
        self.clock = SessionClock(runtime.clock.monotonic_s(), limits.METADATA_SESSION_TICK_S)
        self.connections: dict[ServerConnection, None] = {}
        self.attached: dict[int, ServerConnection] = {}
        """The connection of each session that has one."""
        self.under_way = UnderWay()
        self.given_up: set[int] = set()
        """Sessions that have run out, until that is written down. None of them is renewed."""
        self.list_numbers = itertools.count(1 + int(runtime.entropy.token_hex(_RUN_BYTES), 16))
        """Of lists kept for clients. They begin anywhere, so that one that was begun on another
        connection, or at another run of the server, is never taken for one of ours."""
        self._forgetting: set[int] = set()
        """Sessions of which it is being written down what they have read."""
        self._listener: Listener

    @property
    def port(self) -> int:
        """The port in use."""
        return self._listener.port

    async def start(self, host: str, port: int) -> None:
        """Listen, and give every session of an earlier life its full timeout.

        Raises:
            OSError: if the address cannot be had.
        """
        now_s = self.runtime.clock.monotonic_s()
        for number, session in self.backing.machine.sessions.items():
            if not session.is_local:
                self.clock.begin(number, session.timeout_ms / 1000, now_s)
        self.backing.on_sessions_ended = self._ended
        self._listener = await self.runtime.network.listen(host, port, self.new_connection)
        self.tasks.spawn("end sessions that have run out", self._end_run_out())

    def new_connection(self) -> ConnectionHandler:
        """Return the handler of one new connection."""
        return ServerConnection(self)

    async def close(self) -> None:
        """Stop serving. Sessions stay, for whoever serves the store next."""
        await self._listener.close()
        self.backing.on_sessions_ended = None
        for connection in list(self.connections):
            connection.hang_up("the server stops")
        await self.tasks.close()

    def attach(self, session: int, connection: ServerConnection) -> None:
        """A session is now served over this connection, and over no other."""
        before = self.attached.get(session)
        if before is not None:
            before.hang_up("its session goes on over another connection")
        self.attached[session] = connection

    def detach(self, session: int, connection: ServerConnection) -> None:
        """A connection is gone; its session has its timeout to come back."""
        if self.attached.get(session) is connection:
            del self.attached[session]

    def answers_read(self, session: int, below: int) -> None:
        """The client of a session has read all answers below a number: they can be forgotten."""
        known = self.backing.machine.sessions.get(session)
        if known is None or session in self._forgetting:
            return
        if any(number < below for number in known.answers):
            self._forgetting.add(session)
            self.tasks.spawn("forget answers", self._forget_answers(session, below))

    async def _forget_answers(self, session: int, below: int) -> None:
        # By the log, as all that changes a session: what is refused later depends on it.
        command = Write(self.runtime.clock.wall_ms(), (), session, answered_below=below)
        try:
            await (await self.backing.propose(command))
        except AnabranchError as error:
            _log.error("answers_not_forgotten", session=session, reason=str(error))
        finally:
            self._forgetting.discard(session)

    async def _end_run_out(self) -> None:
        while True:
            await asyncio.sleep(limits.METADATA_SESSION_TICK_S)
            run_out = self.clock.tick(self.runtime.clock.monotonic_s())
            if run_out:
                _log.info("sessions_ran_out", sessions=run_out)
                self._give_up(run_out)
                # Not here: a store that is slow to write would make every tick late.
                self.tasks.spawn("end sessions", self._end(tuple(run_out)))

    def _give_up(self, sessions: list[int]) -> None:
        for session in sessions:
            self.clock.forget(session)
            self.given_up.add(session)
            connection = self.attached.pop(session, None)
            if connection is not None:
                connection.hang_up(f"session {session} has run out")

    async def _end(self, sessions: tuple[int, ...]) -> None:
        command = EndSessions(self.runtime.clock.wall_ms(), sessions)
        try:
            await (await self.backing.propose(command))
        except AnabranchError as error:
            # The store has failed, which ends this process; the next one counts anew.
            _log.error("sessions_not_ended", reason=str(error))
        else:
            self.given_up.difference_update(sessions)

    def _ended(self, sessions: tuple[int, ...]) -> None:
        """Sessions are over: whoever still speaks for one must begin another."""
        for session in sessions:
            self.clock.forget(session)
            connection = self.attached.pop(session, None)
            if connection is not None:
                connection.hang_up(f"session {session} has ended")
