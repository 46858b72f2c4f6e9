"""One end of a simulated TCP connection, and the link its bytes travel over.

As in TCP a stream never loses, repeats or reorders bytes in the middle: trouble shows as delay, as
an end that is lost with an error, or as an end that stays open with nobody behind it. Deliveries
are cut and joined at arbitrary bytes. Which links are cut when is decided by `network.py`.
"""

import asyncio
import errno
import random
import zlib
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anabranch.runtime.network import Buffer, ConnectionHandler
from anabranch.testing.simulation.conditions import Conditions
from anabranch.testing.simulation.trace import Trace

if TYPE_CHECKING:
    from anabranch.testing.simulation.process import Incarnation

Address = tuple[str, int]
RECEIVE_BYTES_MAX = 256 * 1024
"""Handed to a handler at once, as by the real loops."""
_HIGH_WATER_BYTES = 64 * 1024
_LOW_WATER_BYTES = 16 * 1024
_RETRANSMISSION_S = (0.2, 3.0)


class Link:
    """One direction between two machines."""

    def __init__(self, rng: random.Random, conditions: Conditions, *, loopback: bool) -> None:
        self.rng = rng
        self.conditions = conditions
        self.delay_s = 0.00002 if loopback else conditions.delay_s
        self.jitter_s = 0.0001 if loopback else conditions.jitter_s
        self.loss = 0.0 if loopback else conditions.loss
        self.slowness = 1.0
        self.cuts = 0
        """How many partitions hold this direction; bytes pass only at 0."""

    def delay(self) -> float:
        """Draw how long the next segment travels."""
        rng = self.rng
        draw = rng.random()
        taken = (self.delay_s + self.jitter_s * draw * draw * draw * draw) * self.slowness
        if self.loss and rng.random() < self.loss:
            taken += rng.uniform(*_RETRANSMISSION_S)
        return taken


class Endpoint:
    """Our end of a connection: the `Connection` that a handler is given."""

    def __init__(
        self, owner: "Incarnation", out: Link, trace: Trace, local: Address, remote: Address
    ) -> None:
        self.owner = owner
        self.out = out
        self.local = local
        self.remote = remote
        self.peer: Endpoint = self
        self.handler: ConnectionHandler | None = None
        self.closed = False
        """The kernel knows this end no more; what comes for it is answered by a reset."""
        self._trace = trace
        self._loop = owner.loop
        self._closing = False
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._writing_paused = False
        self._window_event = False
        self._inbound: deque[tuple[float, bytes]] = deque()
        self._inbound_bytes = 0
        self._last_arrival = 0.0
        self._armed = False
        self._reading = True
        self._stall: asyncio.TimerHandle | None = None
        owner.endpoints[self] = None

    @property
    def name(self) -> str:
        """For the trace."""
        return f"{self.remote[0]}:{self.remote[1]}>{self.local[0]}:{self.local[1]}"

    def open(self, handler: ConnectionHandler) -> None:
        """Begin: introduce the handler, then let waiting bytes come."""
        self.handler = handler
        handler.connection_made(self)
        self._arm()

    # --- what handlers call -------------------------------------------------------------------

    def write(self, data: Buffer, /) -> None:
        """See `Connection.write`."""
        if self._closing or not self.owner.alive or not data:
            return
        content = bytes(data)
        if not self._queue:
            room = self.out.conditions.window_bytes - self.peer._inbound_bytes
            if len(content) <= room:
                self._send(content)
                return
            if room > 0:
                self._send(content[:room])
                content = content[room:]
        self._queue.append(content)
        self._queued_bytes += len(content)
        if self._queued_bytes > _HIGH_WATER_BYTES and not self._writing_paused:
            self._writing_paused = True
            assert self.handler is not None
            self.handler.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """See `Connection.writelines`."""
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        """See `Connection.pause_reading`."""
        self._reading = False

    def resume_reading(self) -> None:
        """See `Connection.resume_reading`."""
        self._reading = True
        self._arm()

    def close(self) -> None:
        """See `Connection.close`."""
        if self._closing or not self.owner.alive:
            return
        self._closing = True
        if not self._queue:
            self._finish()

    def abort(self) -> None:
        """See `Connection.abort`."""
        if self.closed or not self.owner.alive:
            return
        self._closing = True
        self._queue.clear()
        self._queued_bytes = 0
        self._finish()

    def is_closing(self) -> bool:
        """See `Connection.is_closing`."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """See `Connection.get_write_buffer_size`."""
        return self._queued_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `Connection.get_extra_info`."""
        return {"peername": self.remote, "sockname": self.local}.get(name, default)

    # --- what the kernel does -----------------------------------------------------------------

    def _send(self, content: bytes) -> None:
        """Put bytes on the link; an empty one is the end of the stream."""
        peer = self.peer
        if not peer.closed:
            arrival = max(peer._last_arrival, self._loop.time() + self.out.delay())
            peer._last_arrival = arrival
            peer._inbound.append((arrival, content))
            peer._inbound_bytes += len(content)
            peer._arm()
        elif content and self.reachable():
            self._after(
                self.out.delay() + peer.out.delay(),
                self.lose,
                ConnectionResetError(
                    errno.ECONNRESET, f"{self.remote} knows this connection no more"
                ),
            )
        if not self.reachable():
            self._begin_stall()

    def reachable(self) -> bool:
        """Whether bytes and their acknowledgements pass, and somebody is there to answer."""
        return not self.out.cuts and not self.peer.out.cuts and self.peer.owner.machine.up

    def _after(self, delay_s: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, callback, *args, context=self.owner.context)

    def _begin_stall(self) -> None:
        if self._stall is None and not self.closed:
            limit_s = self.out.conditions.stall_limit_s
            error = TimeoutError(errno.ETIMEDOUT, f"{self.remote} did not answer for {limit_s} s")
            self._stall = self._after(limit_s, self.lose, error)

    def _arm(self) -> None:
        if self._armed or not self._inbound or not self._reading or self.peer.out.cuts:
            return
        if self.handler is not None:
            self._armed = True
            self._loop.call_at(self._inbound[0][0], self._arrive, context=self.owner.context)

    def _arrive(self) -> None:
        self._armed = False
        inbound = self._inbound
        if not inbound or not self._reading or self._closing or self.peer.out.cuts:
            return
        now = self._loop.time()
        chunks: list[bytes] = []
        while inbound and inbound[0][0] <= now and (inbound[0][1] or not chunks):
            chunks.append(inbound.popleft()[1])
        if not chunks:
            self._arm()
            return
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if not data:
            self._end_of_stream()
            return
        if len(data) > RECEIVE_BYTES_MAX:
            inbound.appendleft((now, data[RECEIVE_BYTES_MAX:]))
            data = data[:RECEIVE_BYTES_MAX]
        link = self.peer.out
        if len(data) > 1 and link.rng.random() < link.conditions.split:
            cut = link.rng.randrange(1, len(data))
            inbound.appendleft((now + link.delay(), data[cut:]))
            data = data[:cut]
        self._inbound_bytes -= len(data)
        self._open_window()
        self._arm()
        self._trace.record(f"deliver {self.name} {len(data)} {zlib.crc32(data):08x}")
        assert self.handler is not None
        self.handler.data_received(data)

    def _open_window(self) -> None:
        peer = self.peer
        if peer._queue and not peer._window_event and not peer.closed:
            peer._window_event = True
            peer._after(self.out.delay(), peer._window_opened)

    def _window_opened(self) -> None:
        self._window_event = False
        if self.closed:
            return
        while self._queue:
            room = self.out.conditions.window_bytes - self.peer._inbound_bytes
            if room <= 0 and not self.peer.closed:
                break
            content = self._queue.popleft()
            if len(content) > room and not self.peer.closed:
                self._queue.appendleft(content[room:])
                content = content[:room]
            self._queued_bytes -= len(content)
            self._send(content)
        if self._writing_paused and self._queued_bytes <= _LOW_WATER_BYTES:
            self._writing_paused = False
            assert self.handler is not None
            self.handler.resume_writing()
        if self._closing and not self._queue:
            self._finish()

    def _end_of_stream(self) -> None:
        self._trace.record(f"end {self.name}")
        assert self.handler is not None
        if not self.handler.eof_received():
            self.close()

    def _finish(self) -> None:
        """Close our end: an end of stream for the peer, or a reset if bytes were left unread."""
        if self.closed:
            return
        self.hang_up()
        self._loop.call_soon(self._tell_lost, None, context=self.owner.context)

    def hang_up(self) -> None:
        """What the kernel does with a socket whose process closes it or dies."""
        self._forget()
        if self._inbound_bytes:
            self.reset_peer()
        elif not self.peer.closed:
            self._send(b"")

    def vanish(self) -> None:
        """The machine lost power: the peer is told nothing, and may miss what was under way."""
        self._forget()
        if self.out.rng.random() < 0.5 and not self.peer.closed:
            self.peer._inbound.clear()
            self.peer._inbound_bytes = 0

    def reset_peer(self) -> None:
        """Send a reset; it is lost if the link is cut."""
        if not self.out.cuts and not self.peer.closed:
            error = ConnectionResetError(errno.ECONNRESET, f"connection reset by {self.local}")
            self.peer._after(self.out.delay(), self.peer.lose, error)

    def lose(self, error: OSError) -> None:
        """Our end is lost: the handler hears of it at once."""
        if self.closed:
            return
        self._forget()
        self._closing = True
        if self.out.cuts:
            # Nobody is left to send again what the cut held back.
            self.peer._inbound.clear()
            self.peer._inbound_bytes = 0
        self._tell_lost(error)

    def _forget(self) -> None:
        self.closed = True
        self.owner.endpoints.pop(self, None)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _tell_lost(self, error: OSError | None) -> None:
        self._inbound.clear()
        self._queue.clear()
        self._queued_bytes = 0
        if self.handler is not None:
            self._trace.record(f"lost {self.name} {type(error).__name__}")
            self.handler.connection_lost(error)

    # --- what the network tells ---------------------------------------------------------------

    def reset(self) -> None:
        """A middle box forgot the connection: both ends are reset, not at the same time."""
        for end in (self, self.peer):
            if not end.closed:
                error = ConnectionResetError(errno.ECONNRESET, "connection reset by the network")
                end._after(end.out.delay(), end.lose, error)

    def links_changed(self) -> None:
        """A partition began or healed, or a machine went or came: decide anew what moves."""
        if not self.peer.out.cuts:
            self._retransmit()
        if not self.reachable():
            if self.peer._inbound:
                self._begin_stall()
        elif self._stall is not None:
            self._stall.cancel()
            self._stall = None
            if self.peer.closed:
                error = ConnectionResetError(errno.ECONNRESET, f"{self.remote} was restarted")
                self._after(self.out.delay(), self.lose, error)

    def _retransmit(self) -> None:
        """Bytes that waited behind a cut come when the sender's retransmission timer fires."""
        if not self._inbound or self._armed:
            return
        earliest = self._loop.time() + self.peer.out.rng.uniform(0.0, 1.0)
        self._inbound = deque((max(when, earliest), content) for when, content in self._inbound)
        self._last_arrival = max(self._last_arrival, earliest)
        self._arm()
