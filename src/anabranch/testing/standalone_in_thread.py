"""A standalone server in a thread of the test's own process.

For clients that block, and for tests that look into the broker behind them.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, TypeVar

from anabranch.broker import Broker
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.server.web_server import web_servers, web_sockets

T = TypeVar("T")
_WAIT_S_MAX: Final = 30.0


class StandaloneInThread:
    """A server that runs on a loop of its own."""

    def __init__(self, server: Standalone, loop: asyncio.AbstractEventLoop) -> None:
        self.service_url = server.service_url
        self.service_url_tls = server.service_url_tls
        """Empty where there is no such port."""
        self.web_url = server.web_url
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
def standalone_in_thread(*, web: bool = False, **settings: Any) -> Iterator[StandaloneInThread]:
    """Start a server on free ports, and on memory stores if no others are named."""
    usual = {"metadata_url": "memory:", "ledgers_url": "memory:", "port": 0, "web_port": 0}
    chosen = Settings(**{**usual, **settings})
    started = threading.Event()
    stop = asyncio.Event()
    made: list[StandaloneInThread] = []
    failed: list[BaseException] = []

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            runtime = real_runtime()
            sockets = stack.enter_context(web_sockets(chosen)) if web else None
            server = Standalone(runtime, chosen, web_port=sockets.port if sockets else None)
            await server.start()
            stack.push_async_callback(server.close)
            if sockets is not None:
                await stack.enter_async_context(web_servers(server, sockets, runtime.network))
            made.append(StandaloneInThread(server, asyncio.get_running_loop()))
            started.set()
            failure = await server.serve_until(stop)
            if failure is not None:
                failed.append(failure)

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
