"""A standalone server in a thread of the test's own process.

For clients that block, and for tests that look into the broker behind them.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from anabranch.broker import Broker
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings

T = TypeVar("T")
_WAIT_S_MAX: Final = 30.0


class StandaloneInThread:
    """A server that runs on a loop of its own."""

    def __init__(self, server: Standalone, loop: asyncio.AbstractEventLoop) -> None:
        self.service_url = server.service_url
        self._server = server
        self._loop = loop

    @property
    def broker(self) -> Broker:
        """The broker within; to be asked through `run` only."""
        return self._server._broker

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine where the server runs, and wait for what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_WAIT_S_MAX)


@contextmanager
def standalone_in_thread(**settings: Any) -> Iterator[StandaloneInThread]:
    """Start a server on memory stores and free ports; it ends with the block."""
    chosen = Settings(metadata_url="memory:", ledgers_url="memory:", port=0, web_port=0, **settings)
    started = threading.Event()
    stop = asyncio.Event()
    made: list[StandaloneInThread] = []
    failed: list[BaseException] = []

    async def serve() -> None:
        server = Standalone(real_runtime(), chosen)
        await server.start()
        try:
            made.append(StandaloneInThread(server, asyncio.get_running_loop()))
            started.set()
            failure = await server.serve_until(stop)
            if failure is not None:
                failed.append(failure)
        finally:
            await server.close()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failed.append(error)
            raise
        finally:
            started.set()

    thread = threading.Thread(target=run, name="standalone")
    thread.start()
    started.wait(_WAIT_S_MAX)
    try:
        if failed:
            raise failed[0]
        yield made[0]
    finally:
        if made:
            made[0]._loop.call_soon_threadsafe(stop.set)
        thread.join(_WAIT_S_MAX)
    if failed:
        raise failed[0]
