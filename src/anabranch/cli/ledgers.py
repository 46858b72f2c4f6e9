"""`anabranch ledgers`: look into a ledger store, and remove what nobody needs."""

import json
import sys
from typing import Annotated

import typer

from anabranch.cli.ledger_places import (
    CredentialsOption,
    LedgerPlace,
    MetadataCredentialsOption,
    MetadataOption,
    Shape,
    StoreArgument,
    print_entry,
    print_rows,
    refuse,
    run,
)
from anabranch.cli.verdicts import Output
from anabranch.errors import InputError

app = typer.Typer(
    no_args_is_help=True,
    help="Look into the ledgers of a stopped server or of bookies, and remove what nobody needs.",
)

LedgerArgument = Annotated[
    str, typer.Argument(help="The ledger's id, as a number or as BookKeeper writes it in paths.")
]
OutputOption = Annotated[Output, typer.Option(help="How to print.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
]


def _place(
    store: str, metadata: str = "", metadata_credentials: str = "", credentials: str = ""
) -> LedgerPlace:
    from anabranch.cli.ledgers_in_folder import LedgersInFolder
    from anabranch.cli.ledgers_on_bookies import LedgersOfCluster

    if not store.startswith("bookkeeper:"):
        return LedgersInFolder(store)
    return LedgersOfCluster(
        store,
        metadata=metadata,
        metadata_credentials=metadata_credentials,
        credentials=credentials,
    )


def _id(text: str) -> int:
    from anabranch.ledgers.id_forms import parse_form

    try:
        return parse_form(text)
    except InputError as error:
        refuse(error)


@app.command("ls")
def list_ledgers(
    store: StoreArgument,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Only ledgers that no topic or schema needs.")
    ] = False,
    metadata: MetadataOption = "",
    metadata_credentials: MetadataCredentialsOption = "",
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """List the ledgers of a store; those that are open on bookies without what they hold."""
    place = _place(store, metadata, metadata_credentials, credentials)
    rows = run(lambda runtime: place.rows(runtime, orphans=orphans))
    print_rows(rows, place.columns, output)


@app.command()
def gc(
    store: StoreArgument, dry_run: DryRunOption = False, output: OutputOption = Output.TEXT
) -> None:
    """Remove the ledgers that no topic, cursor or schema needs; print which.

    A crash between creating a ledger and publishing it leaves such a one behind. The room is given
    back by the server, when it runs.

    Exit code 0: done; 2: refused, nothing was removed; 130: stopped by Ctrl-C between two ledgers.
    """
    place = _place(store)
    rows = run(lambda runtime: place.gc(runtime, dry_run=dry_run))
    print_rows(rows, place.columns, output)
    if output is Output.TEXT:
        print(f"{len(rows)} ledgers {'would be' if dry_run else 'were'} removed", file=sys.stderr)


@app.command()
def delete(
    store: StoreArgument,
    ledger: LedgerArgument,
    dry_run: DryRunOption = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if something needs it: what it holds is lost for good."),
    ] = False,
    metadata: MetadataOption = "",
    metadata_credentials: MetadataCredentialsOption = "",
    credentials: CredentialsOption = "",
) -> None:
    """Remove one ledger.

    It is refused while a topic, cursor or schema needs it; on bookies also while it is open, or if
    it is not known who made it. With `--force` it is removed all the same.

    Exit code 0: removed, or with --dry-run: would be; 2: refused, nothing was removed.
    """
    place = _place(store, metadata, metadata_credentials, credentials)
    ledger_id = _id(ledger)
    run(lambda runtime: place.delete(runtime, ledger_id, dry_run=dry_run, force=force))
    print(f"ledger {ledger_id} {'would be' if dry_run else 'was'} removed", file=sys.stderr)


@app.command()
def describe(
    store: StoreArgument,
    ledger: LedgerArgument,
    metadata: MetadataOption = "",
    metadata_credentials: MetadataCredentialsOption = "",
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Say everything that is known of one ledger."""
    place = _place(store, metadata, metadata_credentials, credentials)
    ledger_id = _id(ledger)
    known = run(lambda runtime: place.describe(runtime, ledger_id))
    if output is Output.JSON:
        print(json.dumps(known, indent=2))
        return
    runs = [f"{run['first_entry']} in segment {run['segment']}" for run in known.pop("runs", ())]
    runs += [
        f"{segment['first_entry']} on {' '.join(segment['bookies'])}"
        for segment in known.pop("ensembles", ())
    ]
    texts = [f"{key}={value}" for key, value in known.pop("custom_metadata").items()]
    for key, value in known.items():
        print(f"{key.replace('_', ' '):16} {value}")
    print(f"{'custom metadata':16} {', '.join(texts) or '-'}")
    print(f"{'entries from':16} {', '.join(runs) or '-'}")


@app.command()
def read(
    store: StoreArgument,
    ledger: LedgerArgument,
    first: Annotated[int, typer.Option(help="The first entry.", min=0)] = 0,
    last: Annotated[
        int | None,
        typer.Option(help="The last entry; default: the end.", min=0, show_default=False),
    ] = None,
    shape: Annotated[Shape, typer.Option("--format", help="How to print entries.")] = Shape.HEX,
    metadata: MetadataOption = "",
    metadata_credentials: MetadataCredentialsOption = "",
    credentials: CredentialsOption = "",
) -> None:
    """Print entries: as hexadecimal, as they are (raw), or one JSON object per line (base64)."""
    if last is not None and last < first:
        refuse(InputError(f"--last {last} is before --first {first}"))
    place = _place(store, metadata, metadata_credentials, credentials)
    ledger_id = _id(ledger)
    run(
        lambda runtime: place.read(
            runtime, ledger_id, first, last, lambda entry: print_entry(shape, entry)
        )
    )


@app.command()
def verify(
    store: StoreArgument,
    ledger: Annotated[
        list[str] | None,
        typer.Option("--ledger", help="On bookies: only this ledger; may be given repeatedly."),
    ] = None,
    metadata: MetadataOption = "",
    metadata_credentials: MetadataCredentialsOption = "",
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Read every byte of a store, on bookies every copy, and hold it to its checksums.

    Exit code 0: all is as it was written; 1: something is damaged; 2: no store to check, or
    not all of its bookies answered.
    """
    place = _place(store, metadata, metadata_credentials, credentials)
    ledger_ids = [_id(each) for each in ledger or ()]
    show = run(lambda runtime: place.verify(runtime, ledger_ids))
    raise typer.Exit(show(output))
