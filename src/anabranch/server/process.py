"""The real process around a server: event loop, web server, signals, exit codes.

Everything that a simulation cannot have is here and nowhere else in `server`.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from anabranch import limits
from anabranch.errors import ConfigError, StorageError
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.metadata_service import MetadataService
from anabranch.server.process_metrics import process_metrics
from anabranch.server.settings import Settings
from anabranch.server.short_collections import ShortCollections
from anabranch.server.web_server import web_servers, web_sockets
from anabranch.telemetry import get_logger, logs
from anabranch.telemetry.loop_lag import CollectorPauses, LoopLag

try:
    from uvloop import new_event_loop
except ImportError:  # not made for every platform; asyncio's own loop is slower but complete
    from asyncio import new_event_loop

STOPPED: Final = 0
FAILED: Final = 1
STORE_FAILED: Final = 3
INTERRUPTED: Final = 130

_log = get_logger("server")


class _Closable(Protocol):
    async def close(self) -> None: ...


def run(
    settings: Settings,
    *,
    announce: Callable[[Standalone], None],
    kind: type[Standalone] = Standalone,
) -> int:
    """Serve until SIGINT or SIGTERM and return the exit code.

    Raises:
        AnabranchError: if the server cannot start; nothing was changed then.
    """
    return _run(settings, _serve(settings, announce, kind))


def run_metadata(settings: Settings, *, announce: Callable[[MetadataService], None]) -> int:
    """Serve metadata alone until SIGINT or SIGTERM and return the exit code.

    Raises:
        AnabranchError: if the server cannot start; nothing was changed then.
    """
    return _run(settings, _serve_metadata(settings, announce))


def _run(settings: Settings, serving: Coroutine[Any, Any, int]) -> int:
    if not __debug__:
        serving.close()
        raise ConfigError(
            "python -O (or PYTHONOPTIMIZE) removes the checks that protect the data: "
            "start without it"
        )
    logs.configure(level=settings.log_level, style=settings.log_format, stream=sys.stderr)
    sys.setswitchinterval(limits.THREAD_SWITCH_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(serving)


async def _serve(
    settings: Settings, announce: Callable[[Standalone], None], kind: type[Standalone]
) -> int:
    runtime = real_runtime()
    lag, pauses = LoopLag(runtime.clock), CollectorPauses(runtime.clock)
    collections = ShortCollections(lambda: server.broker.ended)
    with _stop_on_signals() as stop, web_sockets(settings) as web:
        server = kind(
            runtime,
            settings,
            web_port=web.port,
            web_tls_port=web.tls_port,
            metric_sources=(lag.metrics, pauses.metrics, collections.metrics, process_metrics),
            survives_mishaps=True,
        )
        await server.start()
        async with web_servers(server, web, runtime.network):
            collections.start()
            lag.start()
            pauses.start()
            announce(server)
            code = _code_of(await server.serve_until(stop))
            _log.info("stopping")
            pauses.stop()
            lag.stop()
            collections.stop()
        return max(code, await _close(server))


async def _serve_metadata(settings: Settings, announce: Callable[[MetadataService], None]) -> int:
    with _stop_on_signals() as stop:
        service = MetadataService(real_runtime(), settings)
        await service.start()
        gc.collect()
        gc.freeze()
        announce(service)
        code = _code_of(await service.serve_until(stop))
        _log.info("stopping")
        return max(code, await _close(service))


async def _close(server: _Closable) -> int:
    try:
        async with asyncio.timeout(limits.STOP_S_MAX):
            await server.close()
    except TimeoutError:
        _log.error("stop_took_too_long", seconds=limits.STOP_S_MAX)
        return FAILED
    except StorageError as error:
        return _code_of(error)
    _log.info("stopped")
    return STOPPED


def _code_of(failure: BaseException | None) -> int:
    """Log why the server ended, and return the exit code for it."""
    if failure is None:
        return STOPPED
    if isinstance(failure, StorageError):
        _log.error("store_failed", reason=str(failure))
        return STORE_FAILED
    _log.error("server_failed", cause=failure)
    return FAILED


@contextmanager
def _stop_on_signals() -> Iterator[asyncio.Event]:
    """The event is set by the first SIGINT or SIGTERM; the second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()

    handled = (signal.SIGINT, signal.SIGTERM)
    for number in handled:
        loop.add_signal_handler(number, asked)
    try:
        yield stop
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
