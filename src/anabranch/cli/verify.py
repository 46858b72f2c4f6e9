"""`anabranch verify`: put a load on a server and prove that it kept its promises."""

import asyncio
import json
import secrets
import signal
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from anabranch.cli import verify_metadata
from anabranch.cli.reach import require_listener
from anabranch.cli.verdicts import Output, OutputOption, exit_code, refuse
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.verify.records import SubscriptionType
    from anabranch.verify.verdict import Verdict
    from anabranch.verify.workload import Progress, WorkloadSettings

app = typer.Typer(no_args_is_help=True, help="Check that no promise to a client was broken.")
app.add_typer(verify_metadata.app, name="metadata")

_EXIT_INTERRUPTED = 130


class ClientName(StrEnum):
    """Which library the clients of a workload use."""

    PYPI = "pypi"
    SDK = "sdk"


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="The folder with the histories of one run.")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Judge the histories of a run.

    Exit code 0: clean; 1: a promise was broken; 2: not enough to say.
    """
    from anabranch.verify.check import check_folder

    try:
        verdict = check_folder(folder, on_progress=_show_reading)
    except (AnabranchError, OSError) as error:
        refuse(error)
    finally:
        _end_reading()
    _finish(verdict, output)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders with the histories of a run.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page to write.", dir_okay=False)
    ] = Path("report.html"),
) -> None:
    """Write one HTML page about runs: verdict, latency, rates, gaps, faults on the time line.

    Exit code 0: all clean; 1: a promise was broken; 2: not enough to say.
    """
    from anabranch.verify.report import page, report_on

    try:
        runs = [report_on(folder, on_progress=_show_reading) for folder in folders]
        output.write_text(page(runs), encoding="utf-8")
    except (AnabranchError, OSError) as error:
        refuse(error)
    finally:
        _end_reading()
    print(output)
    raise typer.Exit(exit_code([run.verdict.status for run in runs]))


def _show_reading(records: int, share: float) -> None:
    if sys.stderr.isatty():
        line = f"{records:,} records judged, {share:.0%}"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _end_reading() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@app.command()
def run(
    url: Annotated[str, typer.Option(help="The server, as pulsar://host:port.")],
    topic: Annotated[
        str, typer.Option(help="The topic to use; by default a new one.", show_default=False)
    ] = "",
    duration: Annotated[float, typer.Option(help="Seconds of sending.", min=0.1)] = 30.0,
    rate: Annotated[float, typer.Option(help="Messages per second in all.", min=0.1)] = 500.0,
    producers: Annotated[int, typer.Option(help="Producer processes.", min=1)] = 4,
    subscriptions: Annotated[
        str, typer.Option(help="Comma-separated: exclusive, shared, failover, key_shared.")
    ] = "exclusive,shared",
    keys: Annotated[int, typer.Option(help="Distinct message keys.", min=1)] = 50,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="The server deduplicates: nothing may be stored twice.")
    ] = False,
    client: Annotated[
        ClientName, typer.Option(help="The stock library, or the SDK that waits for ack answers.")
    ] = ClientName.PYPI,
    ack_lag: Annotated[
        float, typer.Option(help="Seconds of confirmed acks that a server's crash may undo.", min=0)
    ] = 0.0,
    idle: Annotated[
        float, typer.Option(help="Seconds of silence after which the missing is lost.", min=0.1)
    ] = 10.0,
    history: Annotated[
        Path | None,
        typer.Option(help="An empty or new folder; default: verify-RUN here.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeats keys and sizes of a run.", show_default=False)
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Put a load on a server, then judge what came back.

    Exit code 0: clean; 1: a promise was broken; 2: no verdict.

    Ctrl-C ends the sending and still drains; a second one cuts the drain, a third the run.
    """
    from anabranch.verify.workload import ClientKind, WorkloadSettings, refuse_used

    run_id = secrets.token_hex(8)
    try:
        settings = WorkloadSettings(
            url=url,
            topic=topic or f"persistent://public/default/verify-{run_id}",
            run=run_id,
            seed=secrets.randbelow(1 << 32) if seed is None else seed,
            producers=producers,
            subscriptions=_parse_subscriptions(subscriptions),
            rate=rate,
            keys=keys,
            dedup=dedup,
            client=ClientKind(client.value),
            ack_lag_s=ack_lag,
            idle_s=idle,
        )
        folder = history or Path(f"verify-{datetime.now(UTC):%Y%m%d-%H%M%S}-{run_id[:4]}")
        settings.check()
        refuse_used(folder)
        require_listener(url)
        print(f"run {run_id}, seed {settings.seed}, histories in {folder}", file=sys.stderr)
        verdict = asyncio.run(_run(settings, folder, duration))
    except (AnabranchError, OSError) as error:
        refuse(error)
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("\ninterrupted; the histories are closed and can be checked", file=sys.stderr)
        raise typer.Exit(_EXIT_INTERRUPTED) from None
    _finish(verdict, output)


def _parse_subscriptions(text: str) -> tuple["SubscriptionType", ...]:
    from anabranch.errors import ConfigError
    from anabranch.verify.records import SubscriptionType

    try:
        return tuple(SubscriptionType(name.strip()) for name in text.split(","))
    except ValueError as error:
        known = ", ".join(SubscriptionType)
        raise ConfigError(f"--subscriptions: {error}; known are {known}") from None


async def _run(settings: "WorkloadSettings", folder: Path, duration_s: float) -> "Verdict":
    from anabranch.verify.run import run as run_workload

    stop, cut = asyncio.Event(), asyncio.Event()
    task = asyncio.current_task()
    assert task is not None, "this is a coroutine"

    def interrupt() -> None:
        if not stop.is_set():
            stop.set()
        elif not cut.is_set():
            cut.set()
        else:
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        return await run_workload(
            settings,
            folder,
            duration_s=duration_s,
            stop=stop,
            cut=cut,
            on_progress=_ProgressLine().show,
        )
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)


class _ProgressLine:
    """One line on standard error that is rewritten on a terminal, and rare elsewhere."""

    _EVERY = 25

    def __init__(self) -> None:
        self._count = 0

    def show(self, phase: str, progress: "Progress") -> None:
        missing = "" if progress.missing is None else f", {progress.missing:,} missing"
        line = (
            f"{phase}: {progress.acknowledged:,} acknowledged, {progress.unknown:,} unknown,"
            f" {progress.failed:,} failed, {progress.delivered:,} delivered{missing}"
        )
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif self._count % self._EVERY == 0:
            print(line, file=sys.stderr, flush=True)
        self._count += 1


def _finish(verdict: "Verdict", output: Output) -> NoReturn:
    if output is Output.JSON:
        print(json.dumps(verdict.as_json(), indent=2, ensure_ascii=False))
    else:
        print(verdict.as_text())
    raise typer.Exit(exit_code([verdict.status]))
