"""`anabranch ledgers`: look into the ledger store of a stopped server, and tidy it up."""

import asyncio
import base64
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from anabranch.errors import AnabranchError, ConfigError, InputError

if TYPE_CHECKING:
    from anabranch.ledgers.index import Ledger
    from anabranch.ledgers.inspection import Checked, StoredLedgers
    from anabranch.runtime import Runtime

app = typer.Typer(
    no_args_is_help=True, help="Look into the ledgers of a stopped server, and tidy them up."
)

EXIT_DAMAGED = 1
EXIT_UNUSABLE = 2
_EXIT_INTERRUPTED = 130
_IDENTITY = "anabranch.json"
_PROGRESS_BYTES = 64 << 20


class Output(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


class Shape(StrEnum):
    """How entries are printed."""

    HEX = "hex"
    RAW = "raw"
    JSON = "json"


StoreArgument = Annotated[
    str, typer.Argument(help="The server's data folder, or embedded:FOLDER of its ledgers.")
]
LedgerArgument = Annotated[
    str, typer.Argument(help="The ledger's id, as a number or as BookKeeper writes it in paths.")
]
OutputOption = Annotated[Output, typer.Option(help="How to print.")]


@app.command("ls")
def list_ledgers(
    store: StoreArgument,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Only ledgers that no topic or schema needs.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the ledgers of a store."""

    async def work(runtime: "Runtime") -> list[dict[str, Any]]:
        async with _loaded(store, runtime) as (stored, data):
            found = await _orphans(runtime, stored, data) if orphans else stored.ledgers()
            return [_summary(ledger) for ledger in found]

    _print_ledgers(_run(work), output)


@app.command()
def gc(
    store: StoreArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which ledgers would be removed.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove the ledgers that no topic, cursor or schema needs; print which.

    A crash between creating a ledger and publishing it leaves such a one behind. The room is given
    back by the server, when it runs.

    Exit code 0: done; 2: refused, nothing was removed; 130: stopped by Ctrl-C between two ledgers.
    """
    from anabranch.ledgers.factory import open_ledgers
    from anabranch.ledgers.inspection import StoredLedgers

    async def work(runtime: "Runtime") -> list[dict[str, Any]]:
        async with _claimed(store, runtime, to_change=True) as (folder, data):
            stored = await StoredLedgers.load(runtime.disk, folder)
            try:
                rows = [_summary(ledger) for ledger in await _orphans(runtime, stored, data)]
            finally:
                await stored.close()
            if rows and not dry_run:
                ledgers = await open_ledgers(f"embedded:{folder}", runtime)
                try:
                    for row in rows:
                        await ledgers.delete(row["ledger"])
                finally:
                    await ledgers.close()
            return rows

    rows = _run(work)
    _print_ledgers(rows, output)
    if output is Output.TEXT:
        print(f"{len(rows)} ledgers {'would be' if dry_run else 'were'} removed", file=sys.stderr)


@app.command()
def describe(
    store: StoreArgument, ledger: LedgerArgument, output: OutputOption = Output.TEXT
) -> None:
    """Say everything that is known of one ledger."""
    from anabranch.ledgers.id_forms import long_form, parse_form, path_form

    async def work(runtime: "Runtime") -> dict[str, Any]:
        async with _loaded(store, runtime) as (stored, _):
            found = stored.ledger(parse_form(ledger))
            runs = zip(found.run_firsts, found.run_segments, strict=True)
            return _summary(found) | {
                "writer_epoch": found.epoch,
                "last_entry": found.last_entry_id,
                "path": path_form(found.ledger_id),
                "long_path": long_form(found.ledger_id),
                "custom_metadata": {
                    key: value.decode(errors="backslashreplace")
                    for key, value in sorted(found.custom_metadata.items())
                },
                "runs": [{"first_entry": first, "segment": segment} for first, segment in runs],
            }

    known = _run(work)
    if output is Output.JSON:
        print(json.dumps(known, indent=2))
        return
    runs = [f"{run['first_entry']} in segment {run['segment']}" for run in known.pop("runs")]
    metadata = [f"{key}={value}" for key, value in known.pop("custom_metadata").items()]
    for key, value in known.items():
        print(f"{key.replace('_', ' '):16} {value}")
    print(f"{'custom metadata':16} {', '.join(metadata) or '-'}")
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
) -> None:
    """Print entries: as hexadecimal, as they are (raw), or one JSON object per line (base64)."""
    from anabranch.ledgers.id_forms import parse_form

    if last is not None and last < first:
        _refuse(InputError(f"--last {last} is before --first {first}"))

    async def work(runtime: "Runtime") -> None:
        async with _loaded(store, runtime) as (stored, _):
            found = stored.ledger(parse_form(ledger))
            if first > found.last_entry_id:
                raise InputError(
                    f"ledger {found.ledger_id} has entries up to {found.last_entry_id}, not {first}"
                )
            end = found.last_entry_id if last is None else last
            async for entry in stored.read(found, first, end):
                _print_entry(shape, entry.ledger_id, entry.entry_id, bytes(entry.payload))

    _run(work)


@app.command()
def verify(store: StoreArgument, output: OutputOption = Output.TEXT) -> None:
    """Read every byte of a store and hold it to its checksums.

    Exit code 0: all is as it was written; 1: something is damaged; 2: no store to check.
    """
    from anabranch.ledgers.inspection import check_store

    async def work(runtime: "Runtime") -> "Checked":
        async with _claimed(store, runtime) as (folder, _):
            return await check_store(runtime.disk, folder, _ProgressLine().show)

    checked = _run(work)
    if output is Output.JSON:
        print(json.dumps(_as_json(checked), indent=2))
    else:
        for damage in checked.damage:
            print(damage)
        torn = f", a torn tail of {checked.torn_bytes} bytes" if checked.torn_bytes else ""
        print(
            f"{len(checked.damage)} damaged places in {checked.segments} segments, "
            f"{checked.bytes_read:,} bytes, {checked.entries:,} entries{torn}"
        )
    raise typer.Exit(EXIT_DAMAGED if checked.damage else 0)


def _as_json(checked: "Checked") -> dict[str, Any]:
    return {
        "segments": checked.segments,
        "bytes": checked.bytes_read,
        "entries": checked.entries,
        "torn_bytes": checked.torn_bytes,
        "damage": [
            {"file": d.file, "offset": d.offset, "entry": d.entry or None, "detail": d.detail}
            for d in checked.damage
        ],
    }


@asynccontextmanager
async def _claimed(
    store: str, runtime: "Runtime", *, to_change: bool = False
) -> AsyncIterator[tuple[str, Path | None]]:
    """The folder of the ledgers, and the data folder it is in; nobody else may use them."""
    if store.startswith(("memory:", "bookkeeper:")):
        raise ConfigError(f"{store!r} cannot be looked into: give a folder or embedded:FOLDER")
    given = Path(store.removeprefix("embedded:"))
    data = given if (given / _IDENTITY).exists() else given.parent
    ledgers = given / "ledgers" if data == given else given
    if not (data / _IDENTITY).exists():
        yield str(ledgers), None  # without a server's data folder around it, nobody locks it
        return
    # Servers make the lock file; where there is none there was none to hold it.
    locked = to_change or (data / "lock").exists()
    lock = runtime.disk.lock_folder(str(data)) if locked else None
    try:
        yield str(ledgers), data
    finally:
        if lock is not None:
            lock.release()


@asynccontextmanager
async def _loaded(
    store: str, runtime: "Runtime"
) -> AsyncIterator[tuple["StoredLedgers", Path | None]]:
    from anabranch.ledgers.inspection import StoredLedgers

    async with _claimed(store, runtime) as (folder, data):
        stored = await StoredLedgers.load(runtime.disk, folder)
        try:
            yield stored, data
        finally:
            await stored.close()


async def _orphans(
    runtime: "Runtime", stored: "StoredLedgers", data: Path | None
) -> list["Ledger"]:
    """The ledgers that the metadata beside the store do not name, read from a copy of them."""
    from anabranch.ledgers.ledger_ids import LedgerIds
    from anabranch.managed_ledger.references import named_ledgers
    from anabranch.metadata.factory import open_store
    from anabranch.server.cluster_tie import check_tie

    if data is None or not (data / "metadata").exists():
        raise ConfigError(
            "what is unused is known only with the data folder and the metadata beside the ledgers"
        )
    with tempfile.TemporaryDirectory() as folder:
        copy = await asyncio.to_thread(copytree, data / "metadata", Path(folder) / "metadata")
        metadata = await open_store(f"embedded:{copy}", runtime)
        try:
            # A server may have kept its metadata elsewhere, and these know nothing of its ledgers.
            await check_tie(runtime.disk, str(data / "ledgers"), metadata)
            issued_below = await LedgerIds(metadata, runtime).issued_below()
            named = await named_ledgers(metadata)
        finally:
            await metadata.close()
    ledgers = stored.ledgers()
    if newer := [ledger.ledger_id for ledger in ledgers if ledger.ledger_id >= issued_below]:
        raise ConfigError(
            f"ledger {newer[0]} is newer than the metadata in {data}, which gave out ids below "
            f"{issued_below}: they are an old copy, and the server keeps its metadata elsewhere"
        )
    return [ledger for ledger in ledgers if ledger.ledger_id not in named]


def _summary(ledger: "Ledger") -> dict[str, Any]:
    return {
        "ledger": ledger.ledger_id,
        "state": "open" if ledger.closed_last is None else "closed",
        "entries": ledger.last_entry_id + 1,
        "bytes": ledger.length_bytes,
        "segments": len(ledger.run_segments),
    }


def _print_ledgers(rows: list[dict[str, Any]], output: Output) -> None:
    if output is Output.JSON:
        print(json.dumps(rows, indent=2))
    else:
        _print_table(("ledger", "state", "entries", "bytes", "segments"), rows)


def _print_table(head: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    cells = [list(head), *([str(row[name]) for name in head] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _print_entry(shape: Shape, ledger_id: int, entry_id: int, payload: bytes) -> None:
    match shape:
        case Shape.RAW:
            sys.stdout.buffer.write(payload)
        case Shape.HEX:
            print(f"{ledger_id}:{entry_id} {payload.hex()}")
        case Shape.JSON:
            data = base64.b64encode(payload).decode()
            print(json.dumps({"ledger": ledger_id, "entry": entry_id, "data": data}))


class _ProgressLine:
    """One line on standard error that is rewritten on a terminal, and rare elsewhere."""

    def __init__(self) -> None:
        self._next = _PROGRESS_BYTES

    def show(self, done: int, total: int) -> None:
        """So many bytes of so many are checked."""
        if done < self._next:
            return
        self._next = done + _PROGRESS_BYTES
        line = f"{done / 2**20:,.0f} of {total / 2**20:,.0f} MiB checked"
        end = "" if sys.stderr.isatty() else "\n"
        print(f"\r{line}" if not end else line, end=end, file=sys.stderr, flush=True)


def _run(work: Any) -> Any:
    from anabranch.runtime.real import real_runtime

    async def main() -> Any:
        started: Coroutine[Any, Any, Any] = work(real_runtime())
        return await started

    try:
        return asyncio.run(main())
    except (AnabranchError, OSError) as error:
        _refuse(error)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        raise typer.Exit(_EXIT_INTERRUPTED) from None


def _refuse(error: Exception) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(EXIT_UNUSABLE) from None
