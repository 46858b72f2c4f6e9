"""A server on bookies whose metadata store is replaced, and held in a phase, for tests.

It runs in this process. The two stores are kept by services of ours; bookies are registered in a
store of their own.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.testing.staged_replacement import LONG_S, Hold


class HeldServer:
    """Use `start`, and `hold` for the phase to wait in."""

    def __init__(self, folder: Path, held: AsyncExitStack) -> None:
        """What is started ends with `held`."""
        self.runtime: Runtime = real_runtime()
        self.hold = Hold()
        self.server: Standalone
        self._target = ""
        self._folder = folder
        self._held = held

    async def service(self, name: str) -> str:
        """The URL of a new and empty store."""
        settings = Settings(data=str(self._folder / name), metadata_port=0)
        service = MetadataService(self.runtime, settings)
        await service.start()
        self._held.push_async_callback(service.close)
        return service.url

    async def start(self, registry: str) -> None:
        """Start the server; entries are on two of the bookies that are registered in a store."""
        source, self._target = [await self.service(name) for name in ("source", "target")]
        settings = Settings(
            port=0,
            web_port=0,
            data=str(self._folder / "unused"),
            metadata_url=source,
            metadata_migration_targets=self._target,
            ledgers_url=f"bookkeeper:{registry}?ensemble=2&write=2&ack=2",
        )
        self.server = Standalone(self.runtime, settings)
        await self.server.start()
        self._held.push_async_callback(self.server.close)
        replaceable = self.server._stores.local.replaceable
        assert replaceable is not None
        self.hold.take(replaceable.steps)

    async def reach(self, phase: str) -> None:
        """Have the store be replaced, and wait in a phase."""
        operation = self.server.metadata_migration
        assert operation is not None
        self.hold.begin(phase)
        await operation.start({"target": self._target}, "somebody")
        await self.hold.reached()

    async def until_switched(self) -> None:
        """Wait until the other store is in use."""
        operation = self.server.metadata_migration
        assert operation is not None
        async with asyncio.timeout(LONG_S):
            while True:
                state = (await operation.status()).state
                assert state is not None
                assert not state.error, state.error
                if state.phase == "switched":
                    return
                await asyncio.sleep(0.02)
