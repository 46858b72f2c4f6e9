"""The commands about ledgers on a BookKeeper cluster, which may be in use."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from anabranch.cli.ledger_checks import ProgressLine, print_copies
from anabranch.cli.ledger_owners import Naming, naming_stores
from anabranch.cli.ledger_places import Row, end_of, paths_of, refuse_needed, texts_of
from anabranch.cli.managed_ledger_places import looked_at
from anabranch.cli.metadata_places import opened
from anabranch.cli.verdicts import Output
from anabranch.errors import ConfigError, ConflictError, NotFound

if TYPE_CHECKING:
    from anabranch.ledgers.bookkeeper.inspection import (
        CheckedCopies,
        LedgersOnBookies,
        Unreadable,
    )
    from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata
    from anabranch.ledgers.store import Entry
    from anabranch.metadata.store import MetadataStore
    from anabranch.runtime import Runtime


class LedgersOfCluster:
    """See `LedgerPlace`."""

    columns: tuple[str, ...] = ("ledger", "state", "entries", "bytes", "ensemble", "write", "ack")

    def __init__(
        self, store: str, *, metadata: str, metadata_credentials: str, credentials: str
    ) -> None:
        """`metadata` names the ledgers; bookies register there if the URL does not say where."""
        self._url = store
        self._metadata = metadata
        self._metadata_credentials = metadata_credentials
        self._credentials = credentials

    async def rows(self, runtime: "Runtime", *, orphans: bool) -> list[Row]:
        """See `LedgerPlace.rows`; entries of one that is open are not counted."""
        from anabranch.managed_ledger.references import named_ledgers

        async with self._opened(runtime) as (ledgers, registry):
            rows = [_summary(known) async for known in ledgers.list()]
            if not orphans:
                return rows
            async with self._naming(runtime, ledgers, registry) as naming:
                # Named after all were listed: one that was being created has its name by now.
                named = {known for store in naming.stores for known in await named_ledgers(store)}
            if naming.doubt:
                _warn(naming.doubt)
            return [row for row in rows if row["ledger"] not in named]

    async def describe(self, runtime: "Runtime", ledger_id: int) -> Row:
        """See `LedgerPlace.describe`."""
        async with self._opened(runtime) as (ledgers, _):
            seen = await ledgers.look(ledger_id)
            return {
                **_summary(seen.metadata),
                "entries": seen.last_entry_id + 1,
                "bytes": seen.length_bytes,
                "last_entry": seen.last_entry_id,
                "digest": seen.metadata.digest.name.lower(),
                **paths_of(ledger_id),
                "custom_metadata": texts_of(seen.metadata.custom_metadata),
                "ensembles": [
                    {"first_entry": segment.first_entry_id, "bookies": [*segment.bookies]}
                    for segment in seen.metadata.segments
                ],
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
        async with self._opened(runtime) as (ledgers, _):
            seen = await ledgers.look(ledger_id)
            end = end_of(ledger_id, seen.last_entry_id, first, last)
            async for entry in ledgers.read(seen, first, end):
                show(entry)

    async def verify(self, runtime: "Runtime", ledger_ids: list[int]) -> Callable[[Output], int]:
        """See `LedgerPlace.verify`."""
        from anabranch.ledgers.bookkeeper.inspection import CheckedCopies

        checked = CheckedCopies()
        progress = ProgressLine().show_entries
        async with self._opened(runtime) as (ledgers, _):
            for ledger_id in ledger_ids:
                await ledgers.check(await ledgers.look(ledger_id), checked, progress)
            if not ledger_ids:
                await _check_all(ledgers, checked, progress)
        return lambda output: print_copies(checked, output)

    async def delete(
        self, runtime: "Runtime", ledger_id: int, *, dry_run: bool, force: bool
    ) -> None:
        """See `LedgerPlace.delete`; one that is open, or whose maker is not known, is refused."""
        async with self._opened(runtime) as (ledgers, registry):
            known = await ledgers.describe(ledger_id)
            ledgers.check_password(known)
            if force:
                async with self._settled(runtime, registry):
                    pass  # whoever forces it knows of the ledger, and maybe not of the operation
            else:
                async with self._naming(runtime, ledgers, registry) as naming:
                    for store in naming.stores:
                        await refuse_needed(store, ledger_id)
                _refuse_doubtful(known)
                if naming.doubt:
                    raise ConflictError(f"{naming.doubt}; nothing was removed; --force removes it")
            if not dry_run:
                await ledgers.delete(ledger_id)

    async def gc(self, runtime: "Runtime", *, dry_run: bool) -> list[Row]:
        """See `LedgerPlace.gc`: not here."""
        del runtime, dry_run
        raise ConfigError(
            "on bookies somebody may be creating a ledger just now: look with ls --orphans, and "
            "remove single ledgers with delete"
        )

    @asynccontextmanager
    async def _opened(
        self, runtime: "Runtime"
    ) -> "AsyncIterator[tuple[LedgersOnBookies, MetadataStore]]":
        """The ledgers, and the metadata store in which their bookies register."""
        from anabranch.ledgers.addresses import parse_bookkeeper
        from anabranch.ledgers.bookkeeper.inspection import LedgersOnBookies
        from anabranch.ledgers.factory import bookkeeper_settings
        from anabranch.server.credentials_file import load_ledger_credentials

        settings = bookkeeper_settings(self._url, load_ledger_credentials(self._credentials, _warn))
        url = parse_bookkeeper(self._url).metadata_url or self._metadata
        if not url:
            raise ConfigError(
                f"{self._url!r} does not say in which metadata store the bookies register: write "
                "bookkeeper:zk:HOST:PORT/CHROOT, or give --metadata"
            )
        async with opened(url, runtime, self._metadata_credentials) as metadata:
            ledgers = await LedgersOnBookies.open(runtime, metadata, settings)
            try:
                yield ledgers, metadata
            finally:
                await ledgers.close()

    @asynccontextmanager
    async def _naming(
        self, runtime: "Runtime", ledgers: "LedgersOnBookies", registry: "MetadataStore"
    ) -> "AsyncIterator[Naming]":
        """The metadata stores in which topics, cursors and schemas may name the ledgers."""
        from anabranch.ledgers.addresses import parse_bookkeeper

        root = parse_bookkeeper(self._url).root
        async with self._settled(runtime, registry) as metadata:
            yield await naming_stores(ledgers, registry, metadata, root)

    @asynccontextmanager
    async def _settled(
        self, runtime: "Runtime", registry: "MetadataStore"
    ) -> "AsyncIterator[MetadataStore]":
        """The metadata store of the servers; neither it nor the registry is being replaced.

        Raises:
            ConflictError: if one of them is, or was.
            FormatError: if one is written for features that this build does not know.
        """
        from anabranch.ledgers.addresses import parse_bookkeeper
        from anabranch.metadata.features import refuse_unknown_features
        from anabranch.migrations.engine.under_way import refuse_while_moved

        async with AsyncExitStack() as held:
            metadata = registry
            if self._metadata and parse_bookkeeper(self._url).metadata_url:
                credentials = self._metadata_credentials
                metadata = await held.enter_async_context(
                    looked_at(self._metadata, credentials, runtime)
                )
            for store in dict.fromkeys((registry, metadata)):
                await refuse_unknown_features(store)
                await refuse_while_moved(store)
            yield metadata


def _refuse_doubtful(known: "LedgerMetadata") -> None:
    from anabranch.ledgers.bookkeeper.ledger_metadata import State
    from anabranch.managed_ledger.references import KNOWN_MAKERS

    if known.state is not State.CLOSED:
        raise ConflictError(
            f"ledger {known.ledger_id} is {_state(known)}: somebody may be writing it, and about "
            "to name it; nothing was removed; --force removes it"
        )
    if known.custom_metadata.get("component") not in KNOWN_MAKERS:
        raise ConflictError(
            f"ledger {known.ledger_id} does not say who made it, or names somebody whose documents "
            "are not known here: nothing was removed; --force removes it"
        )


async def _check_all(
    ledgers: "LedgersOnBookies", into: "CheckedCopies", progress: Callable[[int], None]
) -> None:
    from anabranch.ledgers.bookkeeper.inspection import Unreadable

    for known in [known async for known in ledgers.list()]:
        if isinstance(known, Unreadable):
            into.unreadable.append(known)
            continue
        with suppress(NotFound):  # removed since it was listed
            await ledgers.check(await ledgers.look(known.ledger_id), into, progress)


def _summary(known: "LedgerMetadata | Unreadable") -> Row:
    from anabranch.ledgers.bookkeeper.inspection import Unreadable
    from anabranch.ledgers.bookkeeper.ledger_metadata import State

    if isinstance(known, Unreadable):
        nothing: Row = dict.fromkeys(LedgersOfCluster.columns)
        return {**nothing, "ledger": known.ledger_id, "state": "unreadable"}
    closed = known.state is State.CLOSED
    return {
        "ledger": known.ledger_id,
        "state": _state(known),
        "entries": known.last_entry_id + 1 if closed else None,
        "bytes": known.length if closed else None,
        "ensemble": known.ensemble_size,
        "write": known.write_quorum,
        "ack": known.ack_quorum,
    }


def _state(known: "LedgerMetadata") -> str:
    return known.state.name.lower().replace("_", " ")


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)
