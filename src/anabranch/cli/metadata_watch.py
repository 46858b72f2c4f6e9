"""`anabranch metadata watch`: the changes of any metadata store, as they happen."""

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.metadata_nodes import SubtreeArgument
from anabranch.cli.metadata_places import (
    CredentialsOption,
    OutputOption,
    UrlOption,
    opened,
    print_json_line,
    run,
    safe,
)
from anabranch.cli.verdicts import Output

if TYPE_CHECKING:
    from anabranch.metadata.store import Event
    from anabranch.runtime import Runtime


def watch(
    url: UrlOption,
    path: SubtreeArgument = "/",
    count: Annotated[
        int | None, typer.Option(help="End after so many events.", min=1, show_default=False)
    ] = None,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Print every change at or below a node as it happens, until Ctrl-C.

    A line with 'gap' says that changes may have been missed: read what you need anew.

    Exit code 0: ended by Ctrl-C or --count; 2: it cannot be done.
    """
    run(lambda runtime: _watch(runtime, url, credentials, path, count, output))


async def _watch(
    runtime: "Runtime", url: str, credentials: str, path: str, count: int | None, output: Output
) -> None:
    from anabranch.runtime.tasks import Tasks

    def failed(name: str, failure: BaseException) -> None:
        del name, failure  # the result is looked at below

    async with opened(url, runtime, credentials) as store:
        events = store.watch(path)
        print(f"watching {path}; Ctrl-C ends", file=sys.stderr, flush=True)
        tasks = Tasks(failed)
        printing = tasks.spawn("print events", _print_events(events, count, output))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, printing.cancel)
        await asyncio.wait([printing])
        if not printing.cancelled():
            printing.result()
            if store.failure is not None:
                raise store.failure


async def _print_events(events: Any, count: int | None, output: Output) -> None:
    shown = 0
    async for event in events:
        _print_event(event, output)
        shown += 1
        if count is not None and shown >= count:
            return


def _print_event(event: "Event", output: Output) -> None:
    revision = f"{event.revision.epoch}.{event.revision.index}"
    if output is Output.JSON:
        print_json_line({"kind": event.kind.value, "path": event.path, "revision": revision})
    else:
        print(f"{event.kind.value:8} {safe(event.path)}  {revision}", flush=True)
