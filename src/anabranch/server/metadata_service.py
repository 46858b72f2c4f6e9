"""The process of `anabranch metadata serve`: the embedded store of a data folder, for others.

As `assembly` does for a whole server, this wires one that serves metadata alone; it runs in a real
process and in the simulation.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.metadata.factory import open_store
from anabranch.metadata.features import check_features
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.served.addresses import SCHEME, Address
from anabranch.metadata.served.server import MetadataServer
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.data_folder import claim
from anabranch.server.ports import explain
from anabranch.server.settings import Settings
from anabranch.telemetry import get_logger

_log: Final = get_logger("metadata-server")


class MetadataService:
    """One process that serves the metadata in its data folder."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._held = AsyncExitStack()
        self._tasks = Tasks(self.report_failure)
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._store: LocalHandle
        self.url = f"{SCHEME}://{Address(settings.reachable_host, settings.metadata_port)}"

    @property
    def data_place(self) -> str:
        """Where the data is."""
        return self._settings.data

    async def start(self) -> None:
        """Open the folder and the port; on an error everything is let go again.

        Raises:
            AnabranchError: saying what is in the way.
        """
        try:
            await self._start()
        except BaseException:
            await self._held.aclose()
            raise
        self._tasks.spawn("watch the store", self._watch_store())
        _log.info("started", url=self.url, data=self._settings.data)

    async def _start(self) -> None:
        data = await claim(self._runtime, self._settings.data)
        self._held.callback(data.lock.release)
        store = await open_store(f"embedded:{data.path}/metadata", self._runtime)
        self._held.push_async_callback(store.close)
        assert isinstance(store, LocalHandle), "an embedded store is in this process"
        self._store = store
        await check_features(store)
        self._held.push_async_callback(self._tasks.close)
        server = MetadataServer(self._runtime, store, on_failure=self.report_failure)
        host, port = self._settings.host, self._settings.metadata_port
        try:
            await server.start(host, port)
        except OSError as error:
            raise explain(error, host=host, port=port, flag="--port") from error
        self._held.push_async_callback(server.close)
        self.url = f"{SCHEME}://{Address(self._settings.reachable_host, server.port)}"

    async def serve_until(self, stop: asyncio.Event) -> BaseException | None:
        """Wait until `stop` is set, or until serving is over by itself; return why in that case."""
        waiting = [
            self._tasks.spawn("wait for the stop", stop.wait()),
            self._tasks.spawn("wait for a failure", self._ended.wait()),
        ]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiting:
            waiter.cancel()
        return self._failure

    async def close(self) -> None:
        """Stop serving; sessions stay in the store for the next process."""
        await self._held.aclose()

    def report_failure(self, name: str, error: BaseException) -> None:
        """A background task has failed: this server can not go on."""
        if self._failure is None:
            _log.error("task_failed", task=name, reason=str(error))
            self._failure = error
            self._ended.set()

    async def _watch_store(self) -> None:
        while True:
            await asyncio.sleep(limits.STORE_WATCH_INTERVAL_S)
            failure: AnabranchError | None = self._store.failure
            if failure is not None:
                raise failure
