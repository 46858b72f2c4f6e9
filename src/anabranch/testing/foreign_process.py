"""A model of Pulsar's processes that obey PIP-454's flag: a bookie, a broker, or a bad one.

Seen on Pulsar 5.0.0-M1: it registers once, when it starts; told to prepare it makes its ephemeral
nodes on the target, and only then takes its registration away; it never registers again, keeps its
connection to the target after a failure, and says nothing when it has turned.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from anabranch.errors import ConflictError
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.table import Outward
from anabranch.migrations.freeze_copy.foreign_flag import (
    FLAG_PATH,
    PARTICIPANTS_PATH,
    Flag,
    read_flag,
)
from anabranch.runtime.tasks import Tasks

BOOKIES: Final = "/ledgers/available"
BROKERS: Final = "/loadbalance/brokers"
LOOK_S: Final = 0.005
OpenStore = Callable[[str], Awaitable[MetadataStore]]


class ForeignProcess:
    """One process on Pulsar's metadata driver."""

    def __init__(self, open_store: OpenStore, source: MetadataStore, node: str) -> None:
        self.node = node
        """Its ephemeral node, by which others find it."""
        self.source = source
        self.target: MetadataStore | None = None
        self.said: list[Outward] = []
        """What the flag said, as far as this process saw it."""
        self.may_prepare = asyncio.Event()
        self.may_prepare.set()
        self._open_store = open_store
        self._flag = Flag()
        self._registered = ""

    @classmethod
    async def start(
        cls,
        open_store: OpenStore,
        url: str,
        node: str,
        tasks: Tasks,
        *,
        obeys: bool = True,
    ) -> "ForeignProcess":
        """Start one; without `obeys` it is one of an older version, or on another driver."""
        found = cls(open_store, await open_store(url), node)
        if obeys:
            await found._obey(await found._read())
            stat = await found.source.put(
                f"{PARTICIPANTS_PATH}/id-", b"", ephemeral=True, sequential=True
            )
            found._registered = stat.path
            if found._flag.holds:
                await found._prepare()
        if not found._flag.holds:
            await (await found.store()).put(node, b"here", ephemeral=True)
        if obeys:
            tasks.spawn(f"flag of {node}", found._follow())
        return found

    async def store(self) -> MetadataStore:
        """Where it reads and writes now.

        Raises:
            ConflictError: if it may not write now.
        """
        if self._flag.holds:
            raise ConflictError("Write operations not allowed during migrations")
        if self._flag.phase is not Outward.COMPLETED:
            return self.source
        assert self.target is not None
        return self.target

    async def close(self) -> None:
        """End it."""
        await self.source.close()
        if self.target is not None:
            await self.target.close()

    async def _read(self) -> Flag:
        node = await self.source.get(FLAG_PATH)
        return Flag() if node is None else read_flag(node.value)

    async def _follow(self) -> None:
        while True:
            now = await self._read()
            if now != self._flag:
                await self._obey(now)
                if now.phase is Outward.PREPARATION:
                    await self._prepare()
            await asyncio.sleep(LOOK_S)

    async def _obey(self, flag: Flag) -> None:
        if flag.phase is Outward.COMPLETED:
            await self._connect(flag)
        self._flag = flag
        self.said.append(flag.phase)

    async def _connect(self, flag: Flag) -> None:
        if self.target is None:
            assert flag.target_url is not None
            self.target = await self._open_store(flag.target_url)

    async def _prepare(self) -> None:
        await self.may_prepare.wait()
        await self._connect(self._flag)
        assert self.target is not None
        if await self.source.exists(self.node):
            await self.target.put(self.node, b"here", ephemeral=True)
        if self._registered:
            with suppress(ConflictError):
                await self.source.delete(self._registered)
            self._registered = ""
