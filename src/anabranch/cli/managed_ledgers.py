"""`anabranch managed-ledger`: look at the logs of topics and at their cursors, and check them."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.ledger_places import run
from anabranch.cli.managed_ledger_places import Places, looked_into
from anabranch.cli.metadata_places import (
    CredentialsOption,
    OutputOption,
    print_fields,
    print_json,
    safe,
    time_text,
)
from anabranch.cli.progress import Progress
from anabranch.cli.verdicts import EXIT_VIOLATED, Output
from anabranch.errors import ConfigError
from anabranch.ids import Position, TopicName, decode_segment

if TYPE_CHECKING:
    from anabranch.managed_ledger.checking import Check
    from anabranch.managed_ledger.inspection import ViewedChain, ViewedCursor
    from anabranch.runtime import Runtime

app = typer.Typer(
    no_args_is_help=True, help="Look at the logs of topics and at their cursors, and check them."
)


NameArgument = Annotated[
    str, typer.Argument(help="The topic, or TENANT/NAMESPACE/persistent/TOPIC as in metadata.")
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Topics, or names as in metadata; none for all.", show_default=False),
]
DataOption = Annotated[
    str, typer.Option(help="The data folder of a stopped server.", show_default=False)
]
MetadataOption = Annotated[
    str,
    typer.Option(
        help="The metadata store, such as zk:HOST:PORT, or embedded:FOLDER of a stopped server.",
        show_default=False,
    ),
]
LedgersOption = Annotated[
    str,
    typer.Option(
        help="The ledger store: bookkeeper: as a server names it, or embedded:FOLDER. Ledgers of "
        "other storage clusters are found by the catalog.",
        show_default=False,
    ),
]

LedgersCredentialsOption = Annotated[
    str,
    typer.Option(
        "--ledgers-credentials",
        help="TOML file with passwords and certificates for bookies.",
        show_default=False,
    ),
]


@app.command()
def show(
    name: NameArgument,
    data: DataOption = "",
    metadata: MetadataOption = "",
    ledgers: LedgersOption = "",
    credentials: CredentialsOption = "",
    ledgers_credentials: LedgersCredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the ledgers of a topic's log, its properties, and whether it has ended.

    Exit code 0: shown; 2: there is none of that name, or no store to look into. Nothing is changed.
    """
    from anabranch.managed_ledger.inspection import cursor_nodes, view_chain

    async def work(runtime: "Runtime") -> dict[str, Any]:
        places = Places(data, metadata, ledgers, credentials, ledgers_credentials)
        async with looked_into(places, runtime) as (store, view_of):
            viewed = await view_chain(store, view_of, _full_name(name))
            cursors = await cursor_nodes(store, viewed.name)
            return _chain_json(viewed) | {"cursors": list(cursors)}

    found = run(work)
    if output is Output.JSON:
        print_json(found)
        return
    rows = found.pop("ledgers")
    ended = found.pop("terminated")
    migrated = found.pop("migrated")
    found["ended"] = f"at {ended}{', goes on elsewhere' if migrated else ''}" if ended else "no"
    pairs = found.pop("properties").items()
    found["properties"] = ", ".join(f"{key}={value}" for key, value in pairs) or "-"
    found["cursors"] = ", ".join(found["cursors"]) or "-"
    print_fields({key: "not known" if value is None else value for key, value in found.items()})
    _print_table(("ledger", "state", "entries", "bytes", "closed"), rows)


@app.command()
def cursors(
    name: NameArgument,
    data: DataOption = "",
    metadata: MetadataOption = "",
    ledgers: LedgersOption = "",
    credentials: CredentialsOption = "",
    ledgers_credentials: LedgersCredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what the subscriptions of a topic have acknowledged, as it is stored.

    Exit code 0: shown; 2: there is no topic of that name, or no store. Nothing is changed.
    """
    from anabranch.managed_ledger.inspection import cursor_nodes, view_chain, view_cursor

    async def work(runtime: "Runtime") -> list[dict[str, Any]]:
        places = Places(data, metadata, ledgers, credentials, ledgers_credentials)
        async with looked_into(places, runtime) as (store, view_of):
            chain = await view_chain(store, view_of, _full_name(name))
            nodes = await cursor_nodes(store, chain.name)
            return [
                _cursor_json(await view_cursor(view_of, cursor, value), chain)
                for cursor, value in nodes.items()
            ]

    rows = run(work)
    if output is Output.JSON:
        print_json(rows)
        return
    for row in rows:
        row["ranges"] = "-" if row["ranges"] is None else len(row["ranges"])
        row["batches"] = "-" if row["batches"] is None else len(row["batches"])
    _print_table(("cursor", "mark_delete", "pending", "ranges", "batches", "ledger"), rows)
    for row in rows:
        if row["problem"]:
            print(f"{safe(row['cursor'])}: {row['problem']}", file=sys.stderr)


@app.command()
def verify(
    names: NamesArgument = None,
    data: DataOption = "",
    metadata: MetadataOption = "",
    ledgers: LedgersOption = "",
    credentials: CredentialsOption = "",
    ledgers_credentials: LedgersCredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Read every entry of topics' logs, and hold nodes, ledgers and cursors against each other.

    Exit code 0: all agrees; 1: something does not; 2: a name or a store does not exist. Nothing is
    changed. On a live cluster, what is written meanwhile may look as if it did not agree.
    """
    from anabranch.managed_ledger.checking import Check
    from anabranch.managed_ledger.inspection import list_names

    async def work(runtime: "Runtime") -> "Check":
        places = Places(data, metadata, ledgers, credentials, ledgers_credentials)
        async with looked_into(places, runtime) as (store, view_of):
            if view_of is None:
                raise ConfigError("there is nothing to check against: give --ledgers URL")
            progress = Progress(sys.stderr)
            check = Check(store, view_of, lambda done: progress.show(f"{done >> 20:,} MiB read"))
            wanted = [_full_name(name) for name in names or []] or await list_names(store)
            for name in wanted:
                await check.run(name)
            progress.end()
            return check

    check = run(work)
    if output is Output.JSON:
        print_json(_check_json(check))
    else:
        for finding in check.findings:
            print(safe(str(finding)))
        print(
            f"{len(check.findings)} findings in {check.managed_ledgers} managed ledgers, "
            f"{check.ledgers} ledgers, {check.cursors} cursors, {check.entries:,} entries, "
            f"{check.bytes_read:,} bytes"
        )
    raise typer.Exit(EXIT_VIOLATED if check.findings else 0)


def _full_name(text: str) -> str:
    if "://" not in text and text.count("/") == 3:
        return text
    return TopicName.parse(text).managed_ledger_name


def _chain_json(viewed: "ViewedChain") -> dict[str, Any]:
    tenant, namespace, domain, local = viewed.name.split("/", 3)
    entries = [ledger.entries for ledger in viewed.ledgers]
    sizes = [ledger.size_bytes for ledger in viewed.ledgers]
    document = viewed.document
    return {
        "managed_ledger": viewed.name,
        "topic": f"{domain}://{tenant}/{namespace}/{decode_segment(local)}",
        "entries": None if None in entries else sum(n for n in entries if n is not None),
        "bytes": None if None in sizes else sum(n for n in sizes if n is not None),
        "terminated": None if document.terminated is None else _text(document.terminated),
        "migrated": document.properties.get("migrated") == "true",
        "properties": dict(sorted(document.properties.items())),
        "ledgers": [
            {
                "ledger": ledger.span.ledger_id,
                "cluster": ledger.span.stamp.cluster or None,
                "state": "closed" if ledger.span.closed_ms else "open",
                "entries": ledger.entries,
                "bytes": ledger.size_bytes,
                "closed": time_text(ledger.span.closed_ms) if ledger.span.closed_ms else None,
            }
            for ledger in viewed.ledgers
        ],
    }


def _cursor_json(viewed: "ViewedCursor", of: "ViewedChain") -> dict[str, Any]:
    document = viewed.document
    chain = None if viewed.unread else of.chain()
    state = None if chain is None else viewed.acknowledged(chain)
    ranges = None if state is None else [list(found) for found in state.ranges()]
    batches = None if state is None else {_text(p): list(bits) for p, bits in state.batches()}
    mark = document.mark_delete if state is None else state.mark_delete
    return {
        "cursor": viewed.name,
        "mark_delete": None if mark is None else _text(mark),
        "pending": None if state is None else state.backlog(),
        "ranges": ranges,
        "batches": batches,
        "ledger": document.cursor_ledger_id if document.cursor_ledger_id >= 0 else None,
        "entry": viewed.entry_id,
        "properties": dict(sorted(document.properties.items())),
        "cursor_properties": dict(sorted(document.cursor_properties.items())),
        "problem": viewed.problem or None,
    }


def _check_json(check: "Check") -> dict[str, Any]:
    return {
        "managed_ledgers": check.managed_ledgers,
        "ledgers": check.ledgers,
        "cursors": check.cursors,
        "entries": check.entries,
        "bytes": check.bytes_read,
        "findings": [
            {"managed_ledger": f.managed_ledger, "where": f.where, "detail": f.detail}
            for f in check.findings
        ],
    }


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _print_table(head: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    cells = [[name.replace("_", "-") for name in head]]
    cells += [["-" if row[n] is None else safe(str(row[n])) for n in head] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
