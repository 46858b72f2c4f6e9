"""A replacement of the metadata store in which processes take part that are not ours, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.state import State
from anabranch.migrations.freeze_copy.foreign_flag import FLAG_PATH, Flag, read_flag
from anabranch.runtime.tasks import Tasks
from anabranch.testing.foreign_process import ForeignProcess
from anabranch.testing.staged_replacement import SOURCE_URL, Opener, Stage, failed, staged

TARGET: Final = "oxia://modelled:1/default"
"""Where Pulsar's processes can be led to; here it is a store in memory like any other."""


class Mixed:
    """Processes of ours, and others."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.tasks = Tasks(failed)
        self.others: list[ForeignProcess] = []

    async def open_store(self, url: str) -> MetadataStore:
        """Another handle on a store."""
        return await self.stage.open_store("memory:target" if url == TARGET else url)

    async def ours(self, *names: str) -> None:
        """Start some of ours."""
        for name in names:
            await self.stage.join(name, open_store=self.open_store)

    async def other(
        self, node: str, *, obeys: bool = True, open_store: Opener | None = None
    ) -> ForeignProcess:
        """Start one that is not."""
        opener = self.open_store if open_store is None else open_store
        process = await ForeignProcess.start(opener, SOURCE_URL, node, self.tasks, obeys=obeys)
        self.others.append(process)
        return process

    async def start(self, **parameters: str) -> State:
        """Have the store be replaced."""
        return await self.stage.operation.start({"target": TARGET, **parameters}, "somebody")

    async def flag(self) -> Flag | None:
        """What Pulsar's flag says; None if there is none."""
        source = await self.stage.open_store(SOURCE_URL)
        node = await source.get(FLAG_PATH)
        await source.close()
        return None if node is None else read_flag(node.value)

    async def late_lines(self) -> list[str]:
        """What the trail says of late writes."""
        state = await self.stage.anybody.replaceable.journal.read()
        assert state is not None
        return [line.why for line in state.trail if line.what == "late write"]

    async def until_late(self, count: int) -> None:
        """Wait until so many late writes are noted, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while len(await self.late_lines()) < count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    async def close(self) -> None:
        """End all that are not ours."""
        await self.tasks.close()
        for process in self.others:
            await process.close()


@asynccontextmanager
async def mixed(*names: str) -> AsyncIterator[Mixed]:
    """Some processes of ours; others come by `Mixed.other`."""
    async with staged() as stage:
        found = Mixed(stage)
        try:
            await found.ours(*names)
            yield found
        finally:
            await found.close()
