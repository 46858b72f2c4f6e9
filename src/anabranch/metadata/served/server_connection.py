"""One connection at the server: handshake, requests in, responses and events out.

Reads are answered at once. Writes are proposed in the order they came, without waiting for one
another; their answers come when they are durable. What is answered in one turn of the loop shares a
frame, and events always go before answers.
"""

import asyncio
import hmac
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    InputError,
    ProtocolError,
    SessionExpired,
)
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.commands import Command, EndSessions, OpenSession, Restore, Write
from anabranch.metadata.entries import NOBODY
from anabranch.metadata.local_handle import Answer
from anabranch.metadata.operation_checks import check_operation, check_record
from anabranch.metadata.served import messages
from anabranch.metadata.served.answering import Answering
from anabranch.metadata.served.frames import FrameReader, frame
from anabranch.metadata.state_machine import Effect
from anabranch.metadata.store import Revision
from anabranch.runtime.network import Connection
from anabranch.telemetry import get_logger

if TYPE_CHECKING:
    from anabranch.metadata.served.server import MetadataServer

_SECRET_BYTES = 16


class ServerConnection:
    """What the server keeps for one connection. A `ConnectionHandler`."""

    def __init__(self, server: "MetadataServer") -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._log = get_logger("metadata-server")
        self._connection: Connection
        self._reader = FrameReader()
        self._session = NOBODY
        self._answering: Answering | None = None
        self._greeting = False
        self._closed = False
        self._writable = True
        self._reading_paused = False
        self._proposals: deque[tuple[pb.Request, Command]] = deque()
        self._proposing = False
        self._queued_bytes = 0
        self._responses: deque[pb.Response] = deque()
        self._event_number: int | None = None
        self._flush_scheduled = False
        self._cut_off: asyncio.TimerHandle | None = None

    # --- the connection -----------------------------------------------------------------------

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self._connection = transport
        peer = transport.get_extra_info("peername")
        self._log = self._log.bind(peer=f"{peer[0]}:{peer[1]}" if peer else "?")
        self._server.connections[self] = None
        if len(self._server.connections) > limits.METADATA_CONNECTIONS_MAX:
            self.hang_up("there are too many connections")
            return
        self._cut_off = self._loop.call_later(
            limits.METADATA_HANDSHAKE_S_MAX, self.hang_up, "no handshake came in time"
        )

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        try:
            for payload in self._reader.feed(data):
                if self._closed:
                    return
                self._take(messages.parse(payload))
        except ProtocolError as error:
            self._refuse(error)

    def eof_received(self) -> bool | None:
        """See `ConnectionHandler.eof_received`."""
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        """See `ConnectionHandler.connection_lost`."""
        self._let_go()

    def pause_writing(self) -> None:
        """See `ConnectionHandler.pause_writing`."""
        self._writable = False

    def resume_writing(self) -> None:
        """See `ConnectionHandler.resume_writing`."""
        self._writable = True
        self._schedule_flush()

    def hang_up(self, reason: str) -> None:
        """End the connection at once."""
        if not self._closed:
            self._log.info("connection_ended", session=self._session, reason=reason)
            self._let_go()
            self._connection.abort()

    def _let_go(self) -> None:
        self._closed = True
        self._server.connections.pop(self, None)
        self._server.backing.history.unlisten(self._schedule_flush)
        self._server.detach(self._session, self)
        if self._cut_off is not None:
            self._cut_off.cancel()
        if self._answering is not None:
            self._answering.close()
        self._proposals.clear()
        self._responses.clear()

    def _refuse(self, error: AnabranchError) -> None:
        """Say what is wrong and end the connection; the others go on."""
        if self._closed:
            return
        self._log.warning("connection_refused", session=self._session, reason=str(error))
        refusal = pb.Frame(refusal=messages.error_message(error))
        self._connection.write(frame(refusal.SerializeToString()))
        self._let_go()
        self._connection.close()

    # --- the handshake ------------------------------------------------------------------------

    def _take(self, message: pb.Frame) -> None:
        kind = message.WhichOneof("content")
        if kind == "requests" and self._answering is not None:
            self._server.clock.heard(self._session, self._server.runtime.clock.monotonic_s())
            for request in message.requests.requests:
                self._serve(request, self._answering)
            return
        if kind != "hello" or self._greeting:
            raise ProtocolError(f"{kind or 'a frame of unknown kind'} is not expected here")
        self._greeting = True
        self._check_hello(message.hello)
        self._server.tasks.spawn("greet a client", self._greet(message.hello))

    def _check_hello(self, hello: pb.Hello) -> None:
        if hello.protocol != messages.PROTOCOL:
            raise ProtocolError(
                f"the client speaks version {hello.protocol} of the metadata protocol, "
                f"this server {messages.PROTOCOL}"
            )
        unknown = sorted(set(hello.features) - messages.FEATURES)
        if unknown:
            raise ProtocolError(f"the client needs {', '.join(unknown)}, which this server has not")
        low, high = limits.METADATA_SESSION_TIMEOUT_S_MIN, limits.METADATA_SESSION_TIMEOUT_S_MAX
        if not low * 1000 <= hello.timeout_ms <= high * 1000:
            raise ProtocolError(
                f"a session timeout of {hello.timeout_ms} ms, allowed are {low:g} to {high:g} s"
            )

    async def _greet(self, hello: pb.Hello) -> None:
        try:
            session, secret = await self._find_session(hello)
        except (SessionExpired, InputError) as error:
            self._refuse(error)
            return
        except AnabranchError as error:
            # Not the client's fault, and perhaps over soon: it comes again.
            self.hang_up(str(error))
            return
        server = self._server
        known = server.backing.machine.sessions.get(session)
        if known is None:
            self._refuse(SessionExpired(f"session {session} has ended"))
            return
        if self._closed:
            return  # the session waits for its client, which has lost this connection
        self._session = session
        self._answering = Answering(server.backing, session, server.list_numbers)
        timeout_ms = known.timeout_ms
        server.clock.begin(session, timeout_ms / 1000, server.runtime.clock.monotonic_s())
        server.attach(session, self)
        if self._cut_off is not None:
            self._cut_off.cancel()
        revision = server.backing.machine.tree.revision
        welcome = pb.Welcome(
            protocol=messages.PROTOCOL,
            session=session,
            secret=secret,
            timeout_ms=timeout_ms,
            revision=messages.revision_message(revision),
        )
        self._connection.write(frame(pb.Frame(welcome=welcome).SerializeToString()))
        self._log.info("client_attached", session=session, new=not hello.session)

    async def _find_session(self, hello: pb.Hello) -> tuple[int, bytes]:
        server = self._server
        sessions = server.backing.machine.sessions
        if hello.session:
            known = sessions.get(hello.session)
            if known is None or known.is_local or hello.session in server.given_up:
                raise SessionExpired(f"session {hello.session} has ended")
            if not hmac.compare_digest(known.secret, hello.secret):
                raise InputError(f"not the secret of session {hello.session}")
            return hello.session, known.secret
        if len(sessions) >= limits.METADATA_SESSIONS_MAX:
            raise InputError(f"there are {len(sessions)} sessions, no more are accepted")
        earlier = sessions.get(hello.replaces)
        replaced = (
            earlier is not None
            and not earlier.is_local
            and hmac.compare_digest(earlier.secret, hello.secret)
        )
        secret = bytes.fromhex(server.runtime.entropy.token_hex(_SECRET_BYTES))
        command = OpenSession(
            server.runtime.clock.wall_ms(),
            hello.timeout_ms,
            secret,
            (hello.replaces,) if replaced else (),
        )
        effect = await (await server.backing.propose(command))
        timeout_s = hello.timeout_ms / 1000
        server.clock.begin(effect.opened, timeout_s, server.runtime.clock.monotonic_s())
        return effect.opened, secret

    # --- requests -----------------------------------------------------------------------------

    def _serve(self, request: pb.Request, answering: Answering) -> None:
        kind = request.WhichOneof("kind") or ""
        if answering.can_answer(kind):
            if kind == "ping":
                self._server.answers_read(self._session, request.ping.answered_below)
            self._respond(answering.answer(request, kind))
        elif kind == "subscribe":
            self._subscribe(messages.revision_from(request.subscribe.since))
            self._respond(pb.Response(id=request.id))
        elif kind != "write" or not self._serve_again(request):
            try:
                command = self._command(request, kind)
            except ProtocolError:
                raise
            except AnabranchError as error:
                self._respond(pb.Response(id=request.id, error=messages.error_message(error)))
                return
            self._proposals.append((request, command))
            self._queued(request.ByteSize())
            if not self._proposing:
                self._proposing = True
                self._server.tasks.spawn("propose writes", self._propose_all())

    def _serve_again(self, request: pb.Request) -> bool:
        """Answer a write that another connection has brought before; False if there was none."""
        number = request.write.number
        known = self._server.backing.machine.sessions.get(self._session)
        if known is not None and number in known.answers:
            self._respond(self._response(request, Effect(known.answers[number], [])))
            return True
        answer = self._server.under_way.find(self._session, number)
        if answer is not None:
            self._queued(request.ByteSize())
            answer.add_done_callback(partial(self._took_effect, request))
        return answer is not None

    def _command(self, request: pb.Request, kind: str) -> Command:
        wall_ms = self._server.runtime.clock.wall_ms()
        if kind == "write":
            write = request.write
            if not write.number:
                raise ProtocolError("a write without a number")
            operations = [messages.operation_from(operation) for operation in write.operations]
            if len(operations) > limits.METADATA_COMMAND_OPERATIONS_MAX:
                raise ProtocolError(f"a write of {len(operations)} operations")
            for operation in operations:
                check_operation(operation)
            return Write(wall_ms, operations, self._session, write.number, write.answered_below)
        if kind == "restore":
            records = [messages.record_from(record) for record in request.restore.records]
            if len(records) > limits.METADATA_COMMAND_OPERATIONS_MAX:
                raise ProtocolError(f"a restore of {len(records)} nodes at once")
            for record in records:
                check_record(record)
                if record.session is not None:
                    raise InputError(f"{record.path} is ephemeral and cannot be restored")
            return Restore(wall_ms, records)
        if kind == "end_session":
            return EndSessions(wall_ms, (request.end_session.session,))
        if kind == "close":
            return EndSessions(wall_ms, (self._session,))
        raise ProtocolError("a request of unknown kind")

    async def _propose_all(self) -> None:
        while self._proposals:
            request, command = self._proposals.popleft()
            try:
                answer = await self._server.backing.propose(command)
            except AnabranchError as error:
                self.hang_up(str(error))
                break
            if isinstance(command, Write):
                self._server.under_way.add(command.session, command.request, answer)
            answer.add_done_callback(partial(self._took_effect, request))
        self._proposing = False

    def _took_effect(self, request: pb.Request, answer: Answer) -> None:
        if answer.cancelled() or self._closed:
            if not answer.cancelled():
                answer.exception()
            return
        self._queued(-request.ByteSize())
        error = answer.exception()
        if error is not None:
            # The store has failed. Whoever serves it next knows whether this took effect, and the
            # client will ask again: an error now would be a guess.
            self.hang_up(str(error))
            return
        self._respond(self._response(request, answer.result()))

    def _response(self, request: pb.Request, effect: Effect) -> pb.Response:
        response = pb.Response(
            id=request.id,
            revision=messages.revision_message(self._server.backing.machine.tree.revision),
        )
        if request.HasField("restore"):
            refused = [o for o in effect.outcomes if isinstance(o, AnabranchError)]
            response.count = len(effect.outcomes) - len(refused)
            if refused:
                response.error.CopyFrom(messages.error_message(refused[0]))
        else:
            response.count = len(effect.ended)
            response.outcomes.extend(map(messages.outcome_message, effect.outcomes))
        return response

    # --- out ----------------------------------------------------------------------------------

    def _subscribe(self, since: Revision) -> None:
        history = self._server.backing.history
        self._event_number = history.number_after(since)
        history.listen(self._schedule_flush)
        self._schedule_flush()

    def _respond(self, response: pb.Response) -> None:
        self._responses.append(response)
        self._queued(response.ByteSize())
        self._schedule_flush()

    def _queued(self, bytes_more: int) -> None:
        self._queued_bytes += bytes_more
        full = self._queued_bytes > limits.METADATA_QUEUED_BYTES_PER_CONNECTION_MAX
        if full != self._reading_paused and not self._closed:
            self._reading_paused = full
            if full:
                self._connection.pause_reading()
            else:
                self._connection.resume_reading()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled and not self._closed:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        """Send what there is while the peer keeps up: all events first, then answers."""
        history = self._server.backing.history
        while self._writable and not self._closed:
            replies = pb.Replies()
            if self._event_number is not None and self._event_number < history.end_number:
                events, self._event_number = history.events_from(
                    self._event_number, limits.METADATA_EVENTS_PER_FRAME_MAX
                )
                replies.events.extend(map(messages.event_message, events))
            if self._event_number is None or self._event_number == history.end_number:
                self._add_responses(replies)
            if not replies.events and not replies.responses:
                return
            self._connection.write(frame(pb.Frame(replies=replies).SerializeToString()))

    def _add_responses(self, replies: pb.Replies) -> None:
        size_bytes = 0
        while self._responses and size_bytes < limits.METADATA_FRAME_BYTES_USUAL:
            response = self._responses.popleft()
            size_bytes += response.ByteSize()
            self._queued(-response.ByteSize())
            replies.responses.append(response)
