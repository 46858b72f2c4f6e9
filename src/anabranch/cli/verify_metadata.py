"""`anabranch verify metadata`: put a load on a metadata store and prove that it forgot nothing."""

import asyncio
import json
import secrets
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from anabranch.cli.verdicts import Output, OutputOption, exit_code, refuse
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.verify.metadata_rules import MetadataVerdict
    from anabranch.verify.metadata_run import MetadataLoad
    from anabranch.verify.records import Outcome

app = typer.Typer(no_args_is_help=True, help="Check that a metadata store forgot nothing.")

UrlOption = Annotated[
    str, typer.Option(help="The store, such as anabranch://host:port or embedded:FOLDER.")
]


@app.command()
def run(
    url: UrlOption,
    duration: Annotated[float, typer.Option(help="Seconds of writing.", min=0.1)] = 30.0,
    rate: Annotated[float, typer.Option(help="Operations per second in all.", min=0.1)] = 200.0,
    clients: Annotated[int, typer.Option(help="Clients that write and read.", min=1)] = 4,
    keys: Annotated[int, typer.Option(help="Paths they share.", min=1)] = 20,
    history: Annotated[
        Path | None,
        typer.Option(help="An empty or new folder; default: metadata-RUN.", show_default=False),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write, read and watch below a new node, then judge what was answered and seen.

    Exit code 0: clean; 1: a promise was broken; 2: no verdict.

    Ctrl-C ends the writing and still judges.
    """
    from anabranch.verify.metadata_run import MetadataLoad

    run_id = secrets.token_hex(8)
    folder = history or Path(f"metadata-{datetime.now(UTC):%Y%m%d-%H%M%S}-{run_id[:4]}")
    load = MetadataLoad(prefix=f"/verify-{run_id}", keys=keys, rate=rate)
    print(f"run {run_id}, below {load.prefix}, histories in {folder}", file=sys.stderr)
    try:
        verdict = asyncio.run(_run(url, load, folder, run_id, clients, duration))
    except (AnabranchError, OSError) as error:
        refuse(error)
    _finish(verdict, output)


async def _run(
    url: str, load: "MetadataLoad", folder: Path, run_id: str, clients: int, duration_s: float
) -> "MetadataVerdict":
    from anabranch.runtime.real import real_runtime
    from anabranch.verify.metadata_check import run_metadata

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        return await run_metadata(
            url,
            real_runtime(),
            load,
            folder,
            run=run_id,
            clients=clients,
            duration_s=duration_s,
            stop=stop,
            on_progress=_show,
        )
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)


def _show(phase: str, counts: dict["Outcome", int]) -> None:
    if sys.stderr.isatty():
        ok, refused, unknown = counts.values()
        line = f"{phase}: {ok:,} acknowledged, {refused:,} refused, {unknown:,} unknown"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="The folder with the histories of one run.")],
    url: Annotated[
        str, typer.Option(help="Compare with what this store holds now.", show_default=False)
    ] = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Judge the histories of a run; with --url against the store as it is now.

    Exit code 0: clean; 1: a promise was broken; 2: not enough to say.
    """
    try:
        verdict = asyncio.run(_check(folder, url))
    except (AnabranchError, OSError) as error:
        refuse(error)
    _finish(verdict, output)


async def _check(folder: Path, url: str) -> "MetadataVerdict":
    from anabranch.metadata.factory import open_store
    from anabranch.runtime.real import real_runtime
    from anabranch.verify.metadata_check import check_metadata

    if not url:
        return await check_metadata(folder)
    store = await open_store(url, real_runtime())
    try:
        return await check_metadata(folder, store=store)
    finally:
        await store.close()


def _finish(verdict: "MetadataVerdict", output: Output) -> NoReturn:
    if output is Output.JSON:
        print(json.dumps(verdict.as_json(), indent=2, ensure_ascii=False))
    else:
        print(verdict.as_text())
    raise typer.Exit(exit_code([verdict.status]))
