"""Opens the metadata store and the ledger stores that the settings and the catalog name."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from anabranch import limits
from anabranch.errors import ConfigError, StoreFailed
from anabranch.journal import Pressure
from anabranch.ledgers.addresses import (
    BOOKKEEPER,
    EMBEDDED,
    MEMORY,
    BookKeeperAddress,
    parse_bookkeeper,
    shares_metadata,
)
from anabranch.ledgers.bookkeeper.frames import ADD_OVERHEAD_BYTES_MAX
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.catalog import StorageCatalog, check_known
from anabranch.ledgers.clusters import StorageClusters
from anabranch.ledgers.factory import open_ledgers
from anabranch.ledgers.ledger_ids import LedgerIds, SharedAuthority
from anabranch.ledgers.store import LedgerStore
from anabranch.metadata.features import check_features
from anabranch.metadata.parted import PartedStore
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.freeze_copy.planning import Configuration
from anabranch.runtime import Runtime
from anabranch.server.cluster_tie import tie, tie_bookies
from anabranch.server.configuration_store import check_apart, open_configuration
from anabranch.server.credentials_file import load_ledger_credentials
from anabranch.server.data_folder import DataFolder, claim
from anabranch.server.ledger_ids_in_use import LedgerIdsInUse
from anabranch.server.metadata_stores import (
    MetadataInUse,
    TakesPart,
    open_in_use,
    open_metadata,
    warn_of_credentials,
)
from anabranch.server.settings import Settings


@dataclass(frozen=True, slots=True)
class Stores:
    """What a server keeps its data in."""

    metadata: MetadataStore
    """For everybody: also of what is in the configuration store."""
    ledgers: StorageClusters
    local: MetadataInUse
    """The metadata store itself."""
    configuration: MetadataInUse | None = None
    """None if clusters, tenants and policies are in the metadata store."""

    def failure(self) -> StoreFailed | None:
        """Why one of them accepts nothing more; None while all work."""
        for name, failure in (
            ("metadata", self.metadata.failure),
            ("ledger", self.ledgers.failure),
        ):
            if failure is not None:
                return StoreFailed(f"the {name} store has failed: {failure}")
        return None


async def open_stores(
    runtime: Runtime, settings: Settings, held: AsyncExitStack, takes_part: TakesPart | None = None
) -> Stores:
    """Open the metadata store and the ledger store of the settings; `held` closes everything.

    A metadata store that others share may be replaced while a process that takes part has it open.

    Raises:
        FolderInUse: if another process has one of the folders.
        FormatError: if a folder, file or document is not ours.
        Corruption: if stored bytes are damaged.
        ConfigError: if the ledgers belong to the metadata of another cluster or are not the ones
            that the catalog knows, the configuration is that of another one or is elsewhere, or
            the credentials for a store are wrong.
    """
    if settings.has_configuration_store:
        check_apart(settings.metadata_url, settings.configuration_metadata_url)
    folders = _Folders(runtime, settings.data, held)
    if settings.metadata_url.startswith(EMBEDDED) or settings.ledgers_url.startswith(EMBEDDED):
        await folders.data()
    metadata_url = await folders.located(settings.metadata_url, "metadata", held)
    ledgers_url = await folders.located(settings.ledgers_url, "ledgers", held)
    where = Configuration.APART if settings.has_configuration_store else Configuration.WITHIN
    local = await open_in_use(runtime, metadata_url, settings, held, takes_part, where)
    metadata = local.store
    opener = _LedgerOpener(runtime, folders, metadata, settings)
    # A store that belongs to other metadata is not opened, which may cut and close its ledgers.
    registry = await opener.tie(ledgers_url, held)
    await check_features(metadata)
    configuration = await open_configuration(runtime, settings, local, held, takes_part)
    shared = shares_metadata(settings.ledgers_url)
    paths = LedgerPaths(parse_bookkeeper(settings.ledgers_url).root) if shared else LedgerPaths()
    others = LedgerIdsInUse(metadata, runtime, local.url, paths)
    ids = SharedAuthority(LedgerIds(metadata, runtime), others)
    catalog = await StorageCatalog.open(metadata, ids, settings.ledgers_url)
    home = catalog.document.at(settings.ledgers_url)
    assert home is not None, "the catalog knows the store of the settings"
    store = await opener.open(ledgers_url, registry, None, held)
    ledgers = StorageClusters(ids, {home: store}, catalog=catalog, open_store=opener.open_other)
    held.push_async_callback(ledgers.close)
    if configuration is not None:
        metadata = PartedStore(local.store, configuration.store)
    return Stores(metadata, ledgers, local, configuration)


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

    async def located(self, url: str, name: str, held: AsyncExitStack) -> str:
        """The address of an embedded store with its folder in it; others stay as they are."""
        if not url.startswith(EMBEDDED):
            return url
        data = await self.data()
        if url == EMBEDDED:
            return f"{EMBEDDED}{data.path}/{name}"
        folder = url.removeprefix(EMBEDDED)
        elsewhere = await claim(self._runtime, folder, cluster_id=data.cluster_id)
        held.callback(elsewhere.lock.release)
        return f"{EMBEDDED}{elsewhere.path}/{name}"


class _LedgerOpener:
    """Opens ledger stores on behalf of one metadata store; stacks close what was opened."""

    def __init__(
        self, runtime: Runtime, folders: _Folders, metadata: MetadataStore, settings: Settings
    ) -> None:
        self._runtime = runtime
        self._folders = folders
        self._metadata = metadata
        self._settings = settings
        self._credentials = load_ledger_credentials(
            settings.ledgers_credentials, warn_of_credentials
        )

    async def tie(self, located: str, held: AsyncExitStack) -> MetadataStore:
        """Make sure that a store belongs to the metadata; return where its bookies register."""
        if located.startswith(BOOKKEEPER):
            await check_known(self._metadata, located)
            address = parse_bookkeeper(located)
            self._check_sizes(address)
            return await self._tie_bookies(address, held)
        # Metadata in memory do not know after a stop whose they were.
        if located.startswith(EMBEDDED) and self._settings.metadata_url != MEMORY:
            folder = located.removeprefix(EMBEDDED)
            cluster_id = (await self._folders.data()).cluster_id
            await tie(self._runtime.disk, folder, self._metadata, cluster_id)
        return self._metadata

    def _check_sizes(self, address: BookKeeperAddress) -> None:
        """Refuse messages that bookies do not take: the first one would end its topic."""
        largest_bytes = self._settings.max_message_bytes + limits.ENTRY_OVERHEAD_BYTES
        taken_bytes = address.frame_bytes - ADD_OVERHEAD_BYTES_MAX
        if largest_bytes > taken_bytes:
            raise ConfigError(
                f"--max-message-bytes {self._settings.max_message_bytes} makes entries of up to "
                f"{largest_bytes} bytes, and the bookies take {taken_bytes}: allow less, or say "
                "what the bookies have as nettyMaxFrameSizeBytes by frame_bytes in --ledgers-url"
            )

    async def _tie_bookies(self, address: BookKeeperAddress, held: AsyncExitStack) -> MetadataStore:
        registry = self._metadata
        if address.metadata_url:
            registry = await open_metadata(self._runtime, address.metadata_url, self._settings)
            held.push_async_callback(registry.close)
        proposed_id = self._runtime.entropy.token_hex(16)
        await tie_bookies(self._metadata, registry, address.root, proposed_id)
        return registry

    async def open(
        self,
        located: str,
        registry: MetadataStore,
        pressure: Pressure | None,
        held: AsyncExitStack,
    ) -> LedgerStore:
        """Open a store that was tied."""
        store = await open_ledgers(
            located,
            self._runtime,
            metadata=registry,
            credentials=self._credentials,
            pressure=pressure,
        )
        held.push_async_callback(store.close)
        return store

    async def open_other(self, url: str, pressure: Pressure, held: AsyncExitStack) -> LedgerStore:
        """Open the store of another storage cluster of the catalog."""
        located = await self._folders.located(url, "ledgers", held)
        registry = await self.tie(located, held)
        return await self.open(located, registry, pressure, held)
