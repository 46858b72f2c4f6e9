"""Processes whose metadata store is replaced under them, for tests and simulations."""

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.errors import AnabranchError
from anabranch.metadata.announced import Report
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.state import Asked, Started, State
from anabranch.migrations.engine.table import Table, Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.replaceable_metadata import ReplaceableMetadata


class Shelf:
    """The stores of one test: those in this process are opened once and shared by handles."""

    def __init__(self, runtime: Runtime, session_timeout_s: float = 10.0) -> None:
        self._runtime = runtime
        self._timeout_s = session_timeout_s
        self._local: dict[str, LocalHandle] = {}

    async def open(self, url: str) -> MetadataStore:
        """Another handle on a store; `memory:NAME` is one of its own for each name."""
        if url not in self._local:
            real = "memory:" if url.startswith("memory:") else url
            store = await open_store(real, self._runtime, session_timeout_s=self._timeout_s)
            if not isinstance(store, LocalHandle):
                return store
            self._local[url] = store
        return await self._local[url].handle()

    async def close(self) -> None:
        """Close what stays."""
        for store in self._local.values():
            await store.close()


class Member:
    """One process."""

    def __init__(self, replaceable: ReplaceableMetadata, tasks: Tasks) -> None:
        self.replaceable = replaceable
        self.store = replaceable.store
        self.tasks = tasks

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        name: str,
        url: str,
        opener: Callable[[str], Awaitable[MetadataStore]],
        on_failure: Callable[[str, BaseException], None],
        hold_s: float | None = None,
        table: Table = TABLE,
    ) -> "Member":
        """Start one; `hold_s` is for tests on a machine that does much else, see `Table`."""
        tasks = Tasks(on_failure)
        me = Report(name, "broker", "localhost", "test")
        table = table if hold_s is None else table.holding_for(hold_s)
        return cls(await ReplaceableMetadata.open(runtime, url, opener, me, tasks, table), tasks)

    async def start(self, target: str, attempt: str = "a") -> None:
        """Ask for the store to be replaced."""
        journal = self.replaceable.journal
        plan = await self.replaceable.steps.plan({"target": target})
        await journal.change(Started("somebody", attempt, plan.parameters, ()))

    async def ask(self, verb: Verb) -> None:
        """Ask for something more."""
        await self.replaceable.journal.change(Asked("somebody", verb))

    async def until(self, *phases: str, wait_s: float = 30.0) -> State:
        """Wait until one of some phases is announced; an attempt that fails is not waited for."""
        async with asyncio.timeout(wait_s):
            while True:
                try:
                    state = await self.replaceable.journal.read()
                except AnabranchError:
                    state = None
                if state is not None and state.phase in phases:
                    return state
                if state is not None and self.replaceable.journal.table[state.phase].ends:
                    raise AssertionError(f"{state.phase}, not {phases}: {state.error}")
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """End it."""
        await self.tasks.close()
        await self.replaceable.close()
