"""A relay of TCP connections that cuts them at random, or is slow, for tests of its clients.

It runs on the loop of the test. Bytes that are on their way when a connection is cut are lost, so a
peer may have got half a request, or none, or all of it without being able to answer. While it
holds, connections look whole and nothing comes through; what was sent meanwhile arrives late.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

_CHUNK_BYTES: Final = 65_536
_SLOW_S: Final = 0.05
"""What a slow relay takes in, it passes on in so long."""
_CUT_EVERY_S_MAX: Final = 0.8
_AWAY_S_MAX: Final = 0.6


class Relay:
    """A port that leads to another one. Use `relay_to`."""

    def __init__(self, port: int) -> None:
        self.cuts = 0
        """Connections that were cut."""
        self.bytes_per_s = 0.0
        """How fast it is, for each connection and way; 0: as fast as can be."""
        self._target = port
        self._server: asyncio.Server | None = None
        self._open: dict[int, tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._refuses = False
        self._asks = asyncio.Event()
        self._answers = asyncio.Event()
        self._asks.set()
        self._answers.set()
        self._numbers = 0

    @property
    def port(self) -> int:
        """Where clients connect."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        """Cut everything and listen no more."""
        assert self._server is not None
        self._server.close()
        self.refuse()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Break every connection at once."""
        for pair in self._open.values():
            for writer in pair:
                writer.transport.abort()
        self.cuts += len(self._open)
        self._open.clear()

    def refuse(self) -> None:
        """Break every connection, and each new one right away, until `accept`."""
        self._refuses = True
        self.cut()

    def hold(self) -> None:
        """Pass nothing more and break nothing, until `accept`."""
        self._asks.clear()
        self._answers.clear()

    def hold_answers(self) -> None:
        """Pass what clients send, and nothing back, until `accept`."""
        self._answers.clear()

    def accept(self) -> None:
        """Take connections again, and pass what comes and what was held."""
        self._refuses = False
        self._asks.set()
        self._answers.set()

    async def cut_at_random(self, random: Random) -> None:
        """Cut again and again, sometimes staying away for a while; until cancelled."""
        while True:
            await asyncio.sleep(random.uniform(0, _CUT_EVERY_S_MAX))
            if random.random() < 0.5:
                self.cut()
                continue
            self.refuse()
            try:
                await asyncio.sleep(random.uniform(0, _AWAY_S_MAX))
            finally:
                self.accept()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            peer, peer_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._numbers += 1
        number = self._numbers
        self._open[number] = (writer, peer_writer)
        if self._refuses:
            self.cut()
        ways = ((reader, peer_writer, self._asks), (peer, writer, self._answers))
        for source, sink, passes in ways:
            pump = asyncio.ensure_future(self._pump(number, source, sink, passes))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    def _chunk_bytes(self) -> int:
        return max(1, int(self.bytes_per_s * _SLOW_S)) if self.bytes_per_s else _CHUNK_BYTES

    async def _pump(
        self,
        number: int,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        passes: asyncio.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(self._chunk_bytes()):
                if self.bytes_per_s:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
                await passes.wait()
                sink.write(data)
                await sink.drain()
        # One end is gone: what is left of the other has no purpose.
        for writer in self._open.pop(number, ()):
            writer.close()


@asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[Relay]:
    """A relay to a port of loopback, for as long as the body runs."""
    relay = Relay(port)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.close()
