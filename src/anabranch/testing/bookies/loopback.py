"""Model bookies in this process, behind real sockets: quick enough for every run of the tests.

What they hold is in memory, and counts as durable one turn of the loop later.
"""

import asyncio

from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.network import Listener
from anabranch.testing.bookies.server import Answer, Door
from anabranch.testing.bookies.shelves import Shelves, Verdict


class LoopbackBookie:
    """One bookie, which a test may hurt."""

    def __init__(self, runtime: Runtime, metadata: MetadataStore) -> None:
        self.shelves = Shelves()
        self.delay_s = 0.0
        """How long requests lie before they are looked at; below 0: connections break."""
        self.asked: list[pb.Request] = []
        self._runtime = runtime
        self._metadata = metadata
        self._listener: Listener | None = None
        self._doors: list[_Door] = []
        self._port = 0

    @property
    def bookie_id(self) -> str:
        """Its name, which is its address."""
        return f"127.0.0.1:{self._port}"

    @property
    def _node(self) -> str:
        return f"{LedgerPaths().available}/{self.bookie_id}"

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an entry is here."""
        shelf = self.shelves.ledgers.get(ledger_id)
        return shelf is not None and entry_id in shelf.entries

    async def start(self) -> None:
        """Open the port, the same one as before, and show up."""
        self._listener = await self._runtime.network.listen("127.0.0.1", self._port, self._door)
        self._port = self._listener.port
        await self._metadata.put(self._node, b"")

    async def stop(self, *, known: bool = False) -> None:
        """End all connections; stay registered if `known`, as one whose session still lasts."""
        assert self._listener is not None, "never started"
        await self._listener.close()
        for door in self._doors:
            door.cut()
        self._doors.clear()
        if not known:
            await self.leave()

    async def leave(self) -> None:
        """Be registered no more, and serve on."""
        if await self._metadata.exists(self._node):
            await self._metadata.delete(self._node)

    def _door(self) -> "_Door":
        door = _Door(self)
        self._doors.append(door)
        return door

    def write(self, verdict: Verdict, answer: Answer) -> None:
        """See `Serving.write`."""
        for record in verdict.records:
            self.shelves.learn(record)
        asyncio.get_running_loop().call_soon(answer, verdict.status)

    def treat(self, request: pb.Request) -> float:
        """See `Serving.treat`."""
        self.asked.append(request)
        return self.delay_s

    def heard(self, packet: bytes, recovery: bool) -> None:
        """See `Serving.heard`."""


class _Door(Door):
    """One connection."""

    def cut(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()
