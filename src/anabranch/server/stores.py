"""Opens the metadata store and the ledger stores that the settings and the catalog name."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from anabranch.errors import StoreFailed
from anabranch.journal import Pressure
from anabranch.ledgers.addresses import EMBEDDED, MEMORY
from anabranch.ledgers.catalog import StorageCatalog
from anabranch.ledgers.clusters import StorageClusters
from anabranch.ledgers.factory import open_ledgers
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.ledgers.store import LedgerStore
from anabranch.metadata.factory import open_store as open_metadata_store
from anabranch.metadata.features import check_features
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.server.cluster_tie import tie
from anabranch.server.credentials_file import load_credentials
from anabranch.server.data_folder import DataFolder, claim
from anabranch.server.settings import Settings
from anabranch.telemetry import get_logger

_log: Final = get_logger("stores")


@dataclass(frozen=True, slots=True)
class Stores:
    """What a server keeps its data in."""

    metadata: MetadataStore
    ledgers: StorageClusters

    def failure(self) -> StoreFailed | None:
        """Why one of them accepts nothing more; None while all work."""
        for name, failure in (
            ("metadata", self.metadata.failure),
            ("ledger", self.ledgers.failure),
        ):
            if failure is not None:
                return StoreFailed(f"the {name} store has failed: {failure}")
        return None


async def open_stores(runtime: Runtime, settings: Settings, held: AsyncExitStack) -> Stores:
    """Open the metadata store and the ledger store of the settings; `held` closes everything.

    Raises:
        FolderInUse: if another process has one of the folders.
        FormatError: if a folder, file or document is not ours.
        Corruption: if stored bytes are damaged.
        ConfigError: if the ledgers belong to the metadata of another cluster or are not the ones
            that the catalog knows, or the credentials for a store are wrong.
    """
    folders = _Folders(runtime, settings.data, held)
    if settings.metadata_url.startswith(EMBEDDED) or settings.ledgers_url.startswith(EMBEDDED):
        await folders.data()
    metadata_url = await folders.located(settings.metadata_url, "metadata")
    metadata = await open_metadata_store(
        metadata_url,
        runtime,
        session_timeout_s=settings.metadata_session_timeout_s,
        credentials=load_credentials(settings.metadata_credentials, _warn),
    )
    held.push_async_callback(metadata.close)
    # A store that belongs to other metadata is not opened, which may cut and close its ledgers.
    opener = _LedgerOpener(runtime, folders, metadata, forgets=metadata_url == MEMORY)
    url = await opener.checked(settings.ledgers_url)
    await check_features(metadata)
    ids = LedgerIds(metadata, runtime)
    catalog = await StorageCatalog.open(metadata, ids, settings.ledgers_url)
    home = catalog.document.at(settings.ledgers_url)
    assert home is not None, "the catalog knows the store of the settings"
    store = await opener.open(url)
    held.push_async_callback(store.close)
    ledgers = StorageClusters(
        ids,
        {home: store},
        catalog=catalog,
        open_store=opener.open_other,
    )
    held.push_async_callback(ledgers.close)
    return Stores(metadata, ledgers)


def _warn(sentence: str) -> None:
    _log.warning("credentials_open_to_others", problem=sentence)


class _Folders:
    """The folders that this process has claimed."""

    def __init__(self, runtime: Runtime, path: str, held: AsyncExitStack) -> None:
        self._runtime = runtime
        self._path = path
        self._held = held
        self._data: DataFolder | None = None

    async def data(self) -> DataFolder:
        """The server's data folder."""
        if self._data is None:
            self._data = await claim(self._runtime, self._path)
            self._held.callback(self._data.lock.release)
        return self._data

    async def located(self, url: str, name: str) -> str:
        """The address of an embedded store with its folder in it; others stay as they are."""
        if not url.startswith(EMBEDDED):
            return url
        data = await self.data()
        if url == EMBEDDED:
            return f"{EMBEDDED}{data.path}/{name}"
        folder = url.removeprefix(EMBEDDED)
        elsewhere = await claim(self._runtime, folder, cluster_id=data.cluster_id)
        self._held.callback(elsewhere.lock.release)
        return f"{EMBEDDED}{elsewhere.path}/{name}"


class _LedgerOpener:
    """Opens ledger stores on behalf of one metadata store."""

    def __init__(
        self, runtime: Runtime, folders: _Folders, metadata: MetadataStore, *, forgets: bool
    ) -> None:
        """With `forgets` the metadata do not know after a stop whose they were."""
        self._runtime = runtime
        self._folders = folders
        self._metadata = metadata
        self._forgets = forgets

    async def checked(self, url: str) -> str:
        """Where the store is, which is made sure to belong to the metadata."""
        located = await self._folders.located(url, "ledgers")
        if located.startswith(EMBEDDED) and not self._forgets:
            folder = located.removeprefix(EMBEDDED)
            cluster_id = (await self._folders.data()).cluster_id
            await tie(self._runtime.disk, folder, self._metadata, cluster_id)
        return located

    async def open(self, located: str, pressure: Pressure | None = None) -> LedgerStore:
        """Open a store that was checked."""
        return await open_ledgers(located, self._runtime, pressure=pressure)

    async def open_other(self, url: str, pressure: Pressure) -> LedgerStore:
        """Open the store of another storage cluster of the catalog."""
        return await self.open(await self.checked(url), pressure)
