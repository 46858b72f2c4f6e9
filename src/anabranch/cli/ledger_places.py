"""What the commands about ledgers share: their options, what they show, and how they end."""

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Protocol, TypeVar

import typer

from anabranch.cli.verdicts import Output
from anabranch.errors import AnabranchError, ConflictError, InputError

if TYPE_CHECKING:
    from anabranch.ledgers.store import Entry
    from anabranch.metadata.store import MetadataStore
    from anabranch.runtime import Runtime

EXIT_UNUSABLE: Final = 2
_EXIT_INTERRUPTED: Final = 130

T = TypeVar("T")
Row = dict[str, Any]
"""What is said of one ledger, as it is printed in JSON."""
StoreArgument = Annotated[
    str,
    typer.Argument(
        help="The data folder of a stopped server, embedded:FOLDER of its ledgers, "
        "or bookkeeper:zk:HOST:PORT/CHROOT."
    ),
]
MetadataOption = Annotated[
    str,
    typer.Option(
        "--metadata",
        help="The metadata store that names the ledgers of bookkeeper:; the bookies register there "
        "too, if the URL does not say where.",
        show_default=False,
    ),
]
MetadataCredentialsOption = Annotated[
    str,
    typer.Option(
        "--metadata-credentials",
        envvar="ANABRANCH_METADATA_CREDENTIALS",
        help="TOML file with credentials for the metadata store of bookkeeper:.",
        show_default=False,
    ),
]
CredentialsOption = Annotated[
    str,
    typer.Option(
        "--credentials",
        envvar="ANABRANCH_LEDGERS_CREDENTIALS",
        help="TOML file with the password of ledgers and credentials for bookies.",
        show_default=False,
    ),
]


class Shape(StrEnum):
    """How entries are printed."""

    HEX = "hex"
    RAW = "raw"
    JSON = "json"


class LedgerPlace(Protocol):
    """A ledger store that a command was told to look at."""

    columns: tuple[str, ...]
    """Of the list."""

    async def rows(self, runtime: "Runtime", *, orphans: bool) -> list[Row]:
        """All ledgers, or those that nothing in the metadata names."""
        ...

    async def describe(self, runtime: "Runtime", ledger_id: int) -> Row:
        """Everything that is known of one."""
        ...

    async def read(
        self,
        runtime: "Runtime",
        ledger_id: int,
        first: int,
        last: int | None,
        show: "Callable[[Entry], None]",
    ) -> None:
        """Show entries first..last that are there; without `last` all from `first` on."""
        ...

    async def verify(self, runtime: "Runtime", ledger_ids: list[int]) -> Callable[[Output], int]:
        """Check these, or all; a call prints the result, and returns the exit code."""
        ...

    async def delete(
        self, runtime: "Runtime", ledger_id: int, *, dry_run: bool, force: bool
    ) -> None:
        """Remove one, unless something needs it."""
        ...

    async def gc(self, runtime: "Runtime", *, dry_run: bool) -> list[Row]:
        """Remove all that nothing names."""
        ...


async def refuse_needed(metadata: "MetadataStore", ledger_id: int) -> None:
    """Refuse to remove a ledger that something in the metadata names, in whichever cluster.

    Raises:
        ConflictError: naming what needs it.
    """
    from anabranch.managed_ledger.references import references

    users = [user async for place, user in references(metadata) if place.ledger_id == ledger_id]
    if users:
        raise ConflictError(
            f"ledger {ledger_id} is needed by {', '.join(users)}: nothing was removed; --force "
            "removes it, and what it holds is lost"
        )


def end_of(ledger_id: int, last_entry_id: int, first: int, last: int | None) -> int:
    """Up to which entry to read.

    Raises:
        InputError: if there is none to begin with.
    """
    if first > last_entry_id:
        raise InputError(f"ledger {ledger_id} has entries up to {last_entry_id}, not {first}")
    return last_entry_id if last is None else last


def paths_of(ledger_id: int) -> Row:
    """How BookKeeper writes the id in paths."""
    from anabranch.ledgers.id_forms import long_form, path_form

    return {"path": path_form(ledger_id), "long_path": long_form(ledger_id)}


def texts_of(custom_metadata: Mapping[str, bytes]) -> dict[str, str]:
    """Custom metadata as a person may look at it."""
    return {
        key: value.decode(errors="backslashreplace")
        for key, value in sorted(custom_metadata.items())
    }


def print_rows(rows: list[Row], columns: tuple[str, ...], output: Output) -> None:
    """A list of ledgers."""
    if output is Output.JSON:
        print(json.dumps(rows, indent=2))
        return
    shown = ([("-" if row[name] is None else str(row[name])) for name in columns] for row in rows)
    cells = [list(columns), *shown]
    widths = [max(len(row[column]) for row in cells) for column in range(len(columns))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def print_entry(shape: Shape, entry: "Entry") -> None:
    """One entry."""
    payload = bytes(entry.payload)
    match shape:
        case Shape.RAW:
            sys.stdout.buffer.write(payload)
        case Shape.HEX:
            print(f"{entry.ledger_id}:{entry.entry_id} {payload.hex()}")
        case Shape.JSON:
            data = base64.b64encode(payload).decode()
            fields = {"ledger": entry.ledger_id, "entry": entry.entry_id, "data": data}
            print(json.dumps(fields))


def run(work: "Callable[[Runtime], Awaitable[T]]") -> T:
    """Run a command to its end; what went wrong becomes one line and an exit code."""
    from anabranch.runtime.real import real_runtime

    async def main() -> T:
        return await work(real_runtime())

    try:
        return asyncio.run(main())
    except (AnabranchError, OSError) as error:
        refuse(error)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        raise typer.Exit(_EXIT_INTERRUPTED) from None


def refuse(error: Exception) -> NoReturn:
    """End with what is wrong."""
    print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(EXIT_UNUSABLE) from None
