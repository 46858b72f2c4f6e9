"""Where `anabranch managed-ledger` looks: stores that are read, and left as they were."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.cli import data_folders
from anabranch.cli.metadata_places import opened
from anabranch.cli.storage_cluster_views import StorageClusterViews, home_of, read_catalog
from anabranch.errors import ConfigError

if TYPE_CHECKING:
    from anabranch.ledgers.catalog import CatalogDocument
    from anabranch.managed_ledger.inspection import LedgerView, ViewOf
    from anabranch.metadata.store import MetadataStore
    from anabranch.runtime import Runtime

_EMBEDDED: Final = "embedded:"


@dataclass(frozen=True, slots=True)
class Places:
    """What the options name."""

    data: str
    metadata: str
    ledgers: str
    credentials: str
    ledgers_credentials: str

    def __post_init__(self) -> None:
        if self.data and (self.metadata or self.ledgers):
            raise ConfigError("give --data, or --metadata and --ledgers, and not both")
        if not self.data and not self.metadata:
            raise ConfigError("give --data FOLDER of a stopped server, or --metadata URL")


@asynccontextmanager
async def looked_into(
    places: Places, runtime: "Runtime"
) -> "AsyncIterator[tuple[MetadataStore, ViewOf | None]]":
    """The metadata, and the ledgers of every storage cluster; None if no ledgers were named."""
    async with AsyncExitStack() as held:
        if places.data:
            metadata, view = await _data_folder(Path(places.data), runtime, held)
            catalog, home = await _home(metadata, _EMBEDDED)
        else:
            metadata = await _metadata(places.metadata, places.credentials, runtime, held)
            if not places.ledgers:
                yield metadata, None
                return
            catalog, home = await _home(metadata, places.ledgers)
            view = await _ledgers(places, metadata, runtime, held)

        async def open_view(url: str) -> "LedgerView":
            return await _other_cluster(url, places, metadata, runtime, held)

        yield metadata, StorageClusterViews(catalog, home, view, open_view)


async def _home(metadata: "MetadataStore", url: str) -> "tuple[CatalogDocument | None, str]":
    catalog = await read_catalog(metadata)
    return catalog, home_of(catalog, url)


async def _other_cluster(
    url: str,
    places: Places,
    metadata: "MetadataStore",
    runtime: "Runtime",
    held: AsyncExitStack,
) -> "LedgerView":
    if not url.startswith(_EMBEDDED):
        return await _ledgers(replace(places, data="", ledgers=url), metadata, runtime, held)
    folder = url.removeprefix(_EMBEDDED)
    if not folder:
        raise ConfigError(
            "some ledgers are in the data folder of the server: give that as --data FOLDER"
        )
    held.enter_context(data_folders.held(Path(folder), runtime))
    return await _folder(f"{folder}/ledgers", runtime, held)


async def _data_folder(
    data: Path, runtime: "Runtime", held: AsyncExitStack
) -> "tuple[MetadataStore, LedgerView]":
    from anabranch.server.cluster_tie import check_tie

    if not data_folders.is_data_folder(data):
        raise ConfigError(
            f"{data} is not the data folder of a server: it has no {data_folders.IDENTITY}"
        )
    held.enter_context(data_folders.held(data, runtime))
    for name in ("metadata", "ledgers"):
        if not (data / name).is_dir():
            raise ConfigError(
                f"{data} holds no {name}: the server keeps them elsewhere; "
                "give --metadata URL and --ledgers URL"
            )
    metadata = await _metadata(f"{_EMBEDDED}{data / 'metadata'}", "", runtime, held)
    # A server may have kept its metadata elsewhere, and these know nothing of its ledgers.
    await check_tie(runtime.disk, str(data / "ledgers"), metadata)
    return metadata, await _folder(str(data / "ledgers"), runtime, held)


def _holds_log(folder: Path) -> bool:
    return (folder / "log").is_dir()


@asynccontextmanager
async def looked_at(
    url: str, credentials: str, runtime: "Runtime"
) -> "AsyncIterator[MetadataStore]":
    """A metadata store to be read; of a folder a copy, since opening a store writes to it."""
    folder = Path(url.removeprefix(_EMBEDDED))
    if not url.startswith(_EMBEDDED) or not _holds_log(folder):
        async with opened(url, runtime, credentials) as metadata:
            yield metadata
        return
    with data_folders.locked(folder, runtime):
        async with data_folders.opened_copy(folder, runtime) as metadata:
            yield metadata


async def _metadata(
    url: str, credentials: str, runtime: "Runtime", held: AsyncExitStack
) -> "MetadataStore":
    """A metadata store to be read.

    Raises:
        FormatError: if it is written for features that this build does not know.
    """
    from anabranch.metadata.features import refuse_unknown_features

    metadata = await held.enter_async_context(looked_at(url, credentials, runtime))
    await refuse_unknown_features(metadata)
    return metadata


async def _ledgers(
    places: Places, metadata: "MetadataStore", runtime: "Runtime", held: AsyncExitStack
) -> "LedgerView":
    if places.ledgers.startswith("memory:"):
        raise ConfigError(f"{places.ledgers!r} cannot be looked into: it ends with its process")
    if not places.ledgers.startswith(_EMBEDDED):
        return await _bookies(places, metadata, runtime, held)
    folder = Path(places.ledgers.removeprefix(_EMBEDDED))
    if data_folders.is_data_folder(folder.parent):
        held.enter_context(data_folders.held(folder.parent, runtime))
    return await _folder(str(folder), runtime, held)


async def _bookies(
    places: Places, metadata: "MetadataStore", runtime: "Runtime", held: AsyncExitStack
) -> "LedgerView":
    from anabranch.ledgers.addresses import check_ledgers_url, parse_bookkeeper
    from anabranch.ledgers.bookkeeper.inspection import LedgersOnBookies
    from anabranch.ledgers.factory import bookkeeper_settings
    from anabranch.managed_ledger.inspection import BookiesView
    from anabranch.server.credentials_file import load_ledger_credentials

    check_ledgers_url(places.ledgers)
    known = load_ledger_credentials(places.ledgers_credentials, _warn)
    registry = parse_bookkeeper(places.ledgers).metadata_url
    if registry:
        metadata = await _metadata(registry, places.credentials, runtime, held)
    settings = bookkeeper_settings(places.ledgers, known)
    ledgers = await LedgersOnBookies.open(runtime, metadata, settings)
    held.push_async_callback(ledgers.close)
    return BookiesView(ledgers)


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


async def _folder(folder: str, runtime: "Runtime", held: AsyncExitStack) -> "LedgerView":
    from anabranch.ledgers.inspection import StoredLedgers
    from anabranch.managed_ledger.inspection import FolderView

    stored = await StoredLedgers.load(runtime.disk, folder)
    held.push_async_callback(stored.close)
    return FolderView(stored)
