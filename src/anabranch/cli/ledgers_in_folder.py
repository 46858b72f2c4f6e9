"""The commands about ledgers on the folder of an embedded store that nobody uses."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.data_folders import held, is_data_folder, opened_copy
from anabranch.cli.ledger_checks import ProgressLine, print_check
from anabranch.cli.ledger_places import Row, end_of, paths_of, refuse_needed, texts_of
from anabranch.cli.verdicts import Output
from anabranch.errors import ConfigError

if TYPE_CHECKING:
    from anabranch.ledgers.index import Ledger
    from anabranch.ledgers.inspection import StoredLedgers
    from anabranch.ledgers.store import Entry
    from anabranch.metadata.store import MetadataStore
    from anabranch.runtime import Runtime


class LedgersInFolder:
    """See `LedgerPlace`."""

    columns: tuple[str, ...] = ("ledger", "state", "entries", "bytes", "segments")

    def __init__(self, store: str) -> None:
        """`store` is a data folder, or embedded:FOLDER of the ledgers in one."""
        self._store = store

    async def rows(self, runtime: "Runtime", *, orphans: bool) -> list[Row]:
        """See `LedgerPlace.rows`."""
        async with self._loaded(runtime) as (stored, data):
            found = await _orphans(runtime, stored, data) if orphans else stored.ledgers()
            return [_summary(ledger) for ledger in found]

    async def describe(self, runtime: "Runtime", ledger_id: int) -> Row:
        """See `LedgerPlace.describe`."""
        async with self._loaded(runtime) as (stored, _):
            found = stored.ledger(ledger_id)
            runs = zip(found.run_firsts, found.run_segments, strict=True)
            return {
                **_summary(found),
                "writer_epoch": found.epoch,
                "last_entry": found.last_entry_id,
                **paths_of(ledger_id),
                "custom_metadata": texts_of(found.custom_metadata),
                "runs": [{"first_entry": first, "segment": segment} for first, segment in runs],
            }

    async def read(
        self,
        runtime: "Runtime",
        ledger_id: int,
        first: int,
        last: int | None,
        show: "Callable[[Entry], None]",
    ) -> None:
        """See `LedgerPlace.read`."""
        async with self._loaded(runtime) as (stored, _):
            found = stored.ledger(ledger_id)
            end = end_of(ledger_id, found.last_entry_id, first, last)
            async for entry in stored.read(found, first, end):
                show(entry)

    async def verify(self, runtime: "Runtime", ledger_ids: list[int]) -> Callable[[Output], int]:
        """See `LedgerPlace.verify`."""
        from anabranch.ledgers.inspection import check_store

        if ledger_ids:
            raise ConfigError("--ledger is for bookies: an embedded store is checked as a whole")
        async with self._claimed(runtime) as (folder, _):
            checked = await check_store(runtime.disk, folder, ProgressLine().show_bytes)
        return lambda output: print_check(checked, output)

    async def delete(
        self, runtime: "Runtime", ledger_id: int, *, dry_run: bool, force: bool
    ) -> None:
        """See `LedgerPlace.delete`."""
        async with self._claimed(runtime, to_change=not dry_run) as (folder, data):
            async with _loaded_from(runtime, folder) as stored:
                stored.ledger(ledger_id)
                if not force:
                    async with _metadata_beside(runtime, stored, data) as metadata:
                        await refuse_needed(metadata, ledger_id)
            if not dry_run:
                await _delete(runtime, folder, [ledger_id])

    async def gc(self, runtime: "Runtime", *, dry_run: bool) -> list[Row]:
        """See `LedgerPlace.gc`."""
        async with self._claimed(runtime, to_change=True) as (folder, data):
            async with _loaded_from(runtime, folder) as stored:
                rows = [_summary(ledger) for ledger in await _orphans(runtime, stored, data)]
            if rows and not dry_run:
                await _delete(runtime, folder, [row["ledger"] for row in rows])
            return rows

    @asynccontextmanager
    async def _claimed(
        self, runtime: "Runtime", *, to_change: bool = False
    ) -> AsyncIterator[tuple[str, Path | None]]:
        """The folder of the ledgers, and the data folder it is in; nobody else may use them."""
        if self._store.startswith("memory:"):
            raise ConfigError(
                f"{self._store!r} cannot be looked into: give a folder or embedded:FOLDER"
            )
        given = Path(self._store.removeprefix("embedded:"))
        data = given if is_data_folder(given) else given.parent
        ledgers = given / "ledgers" if data == given else given
        if not is_data_folder(data):
            yield str(ledgers), None  # without a server's data folder around it, nobody locks it
            return
        with held(data, runtime, to_change=to_change):
            yield str(ledgers), data

    @asynccontextmanager
    async def _loaded(
        self, runtime: "Runtime"
    ) -> AsyncIterator[tuple["StoredLedgers", Path | None]]:
        async with (
            self._claimed(runtime) as (folder, data),
            _loaded_from(runtime, folder) as stored,
        ):
            yield stored, data


@asynccontextmanager
async def _loaded_from(runtime: "Runtime", folder: str) -> AsyncIterator["StoredLedgers"]:
    from anabranch.ledgers.inspection import StoredLedgers

    stored = await StoredLedgers.load(runtime.disk, folder)
    try:
        yield stored
    finally:
        await stored.close()


@asynccontextmanager
async def _metadata_beside(
    runtime: "Runtime", stored: "StoredLedgers", data: Path | None
) -> "AsyncIterator[MetadataStore]":
    """A copy of the metadata beside the ledgers, which is made sure to know them all.

    Raises:
        ConfigError: if it is not there, belongs to other ledgers, or is older than they are.
        ConflictError: if another store is replacing it, or has.
        FormatError: if it is written for features that this build does not know.
    """
    from anabranch.ledgers.ledger_ids import LedgerIds
    from anabranch.metadata.features import refuse_unknown_features
    from anabranch.migrations.engine.under_way import refuse_while_moved
    from anabranch.server.cluster_tie import check_tie

    if data is None or not (data / "metadata").exists():
        raise ConfigError(
            "what is unused is known only with the data folder and the metadata beside the ledgers"
        )
    async with opened_copy(data / "metadata", runtime) as metadata:
        await refuse_unknown_features(metadata)
        # A server may have kept its metadata elsewhere, and these know nothing of its ledgers.
        await refuse_while_moved(metadata)
        await check_tie(runtime.disk, str(data / "ledgers"), metadata)
        issued_below = await LedgerIds(metadata, runtime).issued_below()
        newer = [each for each in stored.ledgers() if each.ledger_id >= issued_below]
        if newer:
            raise ConfigError(
                f"ledger {newer[0].ledger_id} is newer than the metadata in {data}, which gave "
                f"out ids below {issued_below}: they are an old copy, and the server keeps its "
                "metadata elsewhere"
            )
        yield metadata


async def _orphans(
    runtime: "Runtime", stored: "StoredLedgers", data: Path | None
) -> list["Ledger"]:
    """The ledgers that the metadata beside the store do not name."""
    from anabranch.managed_ledger.references import named_ledgers

    async with _metadata_beside(runtime, stored, data) as metadata:
        named = await named_ledgers(metadata)
    return [ledger for ledger in stored.ledgers() if ledger.ledger_id not in named]


async def _delete(runtime: "Runtime", folder: str, ledger_ids: list[int]) -> None:
    from anabranch.ledgers.factory import open_ledgers

    ledgers = await open_ledgers(f"embedded:{folder}", runtime)
    try:
        for ledger_id in ledger_ids:
            await ledgers.delete(ledger_id)
    finally:
        await ledgers.close()


def _summary(ledger: "Ledger") -> Row:
    return {
        "ledger": ledger.ledger_id,
        "state": "open" if ledger.closed_last is None else "closed",
        "entries": ledger.last_entry_id + 1,
        "bytes": ledger.length_bytes,
        "segments": len(ledger.run_segments),
    }
