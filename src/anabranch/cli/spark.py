"""`anabranch spark`: bulk jobs over the platform's own data, on Spark."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.metadata_places import CredentialsOption, DryRunOption, safe
from anabranch.cli.progress import Progress as ProgressLine
from anabranch.cli.verdicts import Output, OutputOption, refuse
from anabranch.errors import AnabranchError, ConfigError

if TYPE_CHECKING:
    from pyspark_anabranch.jobs.contract import Job, JobVerdict, Progress

app = typer.Typer(
    help="Bulk jobs on Spark: check long histories, copy and verify metadata, take stock.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
MasterOption = Annotated[
    str, typer.Option(help="Where Spark runs: local[N], or the URL of a master.")
]
SettingOption = Annotated[
    list[str],
    typer.Option(
        "--setting", help="A setting of Spark as NAME=VALUE; may be repeated.", show_default=False
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        help="A folder for what is done already: a run that was ended goes on with the same one.",
        show_default=False,
    ),
]
_MASTER = "local[*,4]"
_AGE_S = 3600.0
_EXIT_CODES = (
    "Exit code 0: all is well, or a dry run; 1: something was found; 2: it cannot be done, or "
    "there is not enough to say."
)


@app.callback()
def spark() -> None:
    """Bulk jobs on Spark: check long histories, copy and verify metadata, take stock."""


@app.command("check-history", epilog=_EXIT_CODES)
def check_history(
    folder: Annotated[Path, typer.Argument(help="The folder with the histories of one run.")],
    state: StateOption = None,
    master: MasterOption = _MASTER,
    setting: SettingOption = [],  # noqa: B006 - how typer says that there are none
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Judge the histories of a run by the rules about lost, doubled and disordered messages.

    Says what `anabranch verify check` says of them, for runs that one process would read for hours.
    """

    def job() -> "Job":
        from pyspark_anabranch.jobs.history_check import HistoryCheck

        return HistoryCheck(folder, keep=state)

    _run(job, master, setting, dry_run, output)


PrefixOption = Annotated[str, typer.Option(help="Only nodes at or below this path.")]
RateOption = Annotated[
    float | None, typer.Option(help="Nodes per second at most.", min=0.001, show_default=False)
]


@app.command("copy-metadata", epilog=_EXIT_CODES)
def copy_metadata(
    source: Annotated[str, typer.Argument(help="URL of a store.")],
    target: Annotated[str, typer.Argument(help="URL of a store.")],
    prefix: PrefixOption = "/",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace nodes that are others in the target.")
    ] = False,
    drop_acls: Annotated[
        bool, typer.Option("--drop-acls", help="Copy without rights the target cannot hold.")
    ] = False,
    rate: RateOption = None,
    verify: Annotated[bool, typer.Option(help="Lay both side by side afterwards.")] = True,
    credentials: CredentialsOption = "",
    state: StateOption = None,
    master: MasterOption = _MASTER,
    setting: SettingOption = [],  # noqa: B006 - how typer says that there are none
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Bring a store up to another; nodes that are there already are left alone.

    A copy that was interrupted is gone on with by the same command. Nobody should write to the
    source meanwhile. Stores of one process (embedded:) are read by one task.
    """

    def job() -> "Job":
        from anabranch.migrations.engine.bulk import CopyWishes, StorePlace
        from anabranch.server.credentials_file import load_credentials
        from pyspark_anabranch.jobs.metadata_jobs import MetadataCopy

        return MetadataCopy(
            StorePlace(source),
            StorePlace(target),
            prefix,
            CopyWishes(overwrite, drop_acls, rate),
            load_credentials(credentials, _warn),
            verify,
            state,
        )

    _run(job, master, setting, dry_run, output)


@app.command("verify-metadata", epilog=_EXIT_CODES)
def verify_metadata(
    left: Annotated[str, typer.Argument(help="URL of a store: the source.")],
    right: Annotated[str, typer.Argument(help="URL of a store: the copy.")],
    prefix: PrefixOption = "/",
    by_digest: Annotated[
        bool,
        typer.Option("--by-digest", help="Compare digests of parts; read again what differs."),
    ] = False,
    ephemerals: Annotated[
        bool, typer.Option("--ephemerals", help="Compare ephemeral nodes, too.")
    ] = False,
    rate: RateOption = None,
    credentials: CredentialsOption = "",
    state: StateOption = None,
    master: MasterOption = _MASTER,
    setting: SettingOption = [],  # noqa: B006 - how typer says that there are none
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say where a copy is not what its source is: missing, extra, different nodes.

    Both stores may be written to: what differs is looked at again until it stays as it is. What
    RIGHT cannot keep is no difference.
    """

    def job() -> "Job":
        from anabranch.migrations.engine.bulk import CompareWishes, StorePlace
        from anabranch.server.credentials_file import load_credentials
        from pyspark_anabranch.jobs.metadata_jobs import MetadataVerification

        return MetadataVerification(
            StorePlace(left),
            StorePlace(right),
            prefix,
            CompareWishes(ephemerals, by_digest, rate),
            load_credentials(credentials, _warn),
            state,
        )

    _run(job, master, setting, dry_run, output)


@app.command(epilog=_EXIT_CODES)
def inventory(
    ledgers: Annotated[
        str, typer.Argument(help="bookkeeper:zk:HOST:PORT/CHROOT, where the bookies register.")
    ],
    metadata: Annotated[
        str,
        typer.Option(
            help="URL of the store in which topics name ledgers, if that is another.",
            show_default=False,
        ),
    ] = "",
    min_age: Annotated[
        float, typer.Option(help="Seconds; a younger ledger may be about to be named.", min=0)
    ] = _AGE_S,
    table: Annotated[
        Path | None,
        typer.Option(help="A folder for the whole table, as Parquet.", show_default=False),
    ] = None,
    rate: RateOption = None,
    credentials: CredentialsOption = "",
    state: StateOption = None,
    master: MasterOption = _MASTER,
    setting: SettingOption = [],  # noqa: B006 - how typer says that there are none
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say which ledgers bookies have, what names them, and which nothing names.

    Removes nothing: `anabranch ledgers delete` does, one by one, and looks again at each.
    """

    def job() -> "Job":
        from anabranch.server.credentials_file import load_credentials
        from pyspark_anabranch.jobs.inventory import LedgerInventory

        return LedgerInventory(
            ledgers, metadata, min_age, rate, table, load_credentials(credentials, _warn), state
        )

    _run(job, master, setting, dry_run, output)


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


def _run(job: Any, master: str, settings: list[str], dry_run: bool, output: Output) -> None:
    try:
        verdict = _verdict(job, master, settings, dry_run)
    except (AnabranchError, OSError) as error:
        refuse(error)
    if output is Output.JSON:
        print(json.dumps(verdict.as_json(), indent=2, ensure_ascii=False))
    else:
        _print(verdict)
    raise typer.Exit(verdict.exit_code)


def _verdict(job: Any, master: str, settings: list[str], dry_run: bool) -> "JobVerdict":
    from pyspark_anabranch.environment import check_packages

    check_packages()  # before anything is imported that needs them
    from pyspark_anabranch.failures import failures_of_spark
    from pyspark_anabranch.jobs.contract import run_job
    from pyspark_anabranch.session import spark_session

    chosen = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--setting takes NAME=VALUE, not {setting!r}")
        chosen[name] = value
    line = ProgressLine(sys.stderr)

    def tell(progress: "Progress") -> None:
        line.show(progress.text)

    with failures_of_spark():
        session = spark_session(master, {"spark.log.level": "ERROR", **chosen})
        try:
            return run_job(job(), session, dry_run=dry_run, on_progress=tell)
        finally:
            line.end()
            session.stop()


def _print(verdict: "JobVerdict") -> None:
    print(f"{'step':10} {'writes':6} {'amount':>16}  what")
    for step in verdict.plan:
        writes = "yes" if step.writes else "no"
        amount = f"{step.amount:,} {step.unit}"
        print(f"{step.step:10} {writes:6} {amount:>16}  {safe(step.what)}")
    for name, value in verdict.result.items():
        if isinstance(value, list):
            for one in value:
                print(f"{name}: {safe(json.dumps(one, ensure_ascii=False))}")
        elif isinstance(value, dict):
            print(f"{name}: {safe(json.dumps(value, ensure_ascii=False))}")
        else:
            print(f"{name}: {safe(str(value))}")
    print(f"{verdict.job}: {verdict.outcome.value}, {verdict.seconds:.1f} s")
