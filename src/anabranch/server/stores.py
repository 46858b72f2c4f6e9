"""Opens the metadata store and the ledger stores that the settings and the catalog name."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

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
from anabranch.metadata.announced import Report
from anabranch.metadata.factory import open_store as open_metadata_store
from anabranch.metadata.features import check_features
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.seal import check_not_sealed
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.bulk_engines import bulk_engines
from anabranch.server.cluster_tie import tie, tie_bookies
from anabranch.server.credentials_file import load_credentials, load_ledger_credentials
from anabranch.server.data_folder import DataFolder, claim
from anabranch.server.ledger_ids_in_use import LedgerIdsInUse
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.server.replaced_metadata import refuse_replaced
from anabranch.server.settings import Settings
from anabranch.server.sole_server import may_be_shared, refuse_private
from anabranch.telemetry import get_logger

_log: Final = get_logger("stores")


@dataclass(frozen=True, slots=True)
class Stores:
    """What a server keeps its data in."""

    metadata: MetadataStore
    ledgers: StorageClusters
    metadata_url: Callable[[], str]
    """Where the metadata are now."""
    replaceable: ReplaceableMetadata | None = None
    """This process's part in replacing the metadata store; None if that is its own alone."""

    def failure(self) -> StoreFailed | None:
        """Why one of them accepts nothing more; None while all work."""
        for name, failure in (
            ("metadata", self.metadata.failure),
            ("ledger", self.ledgers.failure),
        ):
            if failure is not None:
                return StoreFailed(f"the {name} store has failed: {failure}")
        return None


@dataclass(frozen=True, slots=True)
class TakesPart:
    """A process that lives on when its metadata store is replaced."""

    me: Report
    tasks: Tasks


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
            that the catalog knows, or the credentials for a store are wrong.
    """
    folders = _Folders(runtime, settings.data, held)
    if settings.metadata_url.startswith(EMBEDDED) or settings.ledgers_url.startswith(EMBEDDED):
        await folders.data()
    metadata_url = await folders.located(settings.metadata_url, "metadata", held)
    ledgers_url = await folders.located(settings.ledgers_url, "ledgers", held)
    replaceable = None
    may_change = settings.metadata_migration_targets and may_be_shared(metadata_url)
    if takes_part is not None and may_change:
        replaceable = await open_replaceable(runtime, metadata_url, settings, takes_part)
        held.push_async_callback(replaceable.close)
        metadata: MetadataStore = replaceable.store
    else:
        metadata = await _open_metadata(runtime, metadata_url, settings)
        held.push_async_callback(metadata.close)
        await check_not_sealed(metadata)
        await refuse_replaced(metadata, metadata_url)
    opener = _LedgerOpener(runtime, folders, metadata, settings)
    # A store that belongs to other metadata is not opened, which may cut and close its ledgers.
    registry = await opener.tie(ledgers_url, held)
    await check_features(metadata)
    shared = shares_metadata(settings.ledgers_url)
    paths = LedgerPaths(parse_bookkeeper(settings.ledgers_url).root) if shared else LedgerPaths()

    def url_in_use() -> str:
        return metadata_url if replaceable is None else replaceable.url

    others = LedgerIdsInUse(metadata, runtime, url_in_use, paths)
    ids = SharedAuthority(LedgerIds(metadata, runtime), others)
    catalog = await StorageCatalog.open(metadata, ids, settings.ledgers_url)
    home = catalog.document.at(settings.ledgers_url)
    assert home is not None, "the catalog knows the store of the settings"
    store = await opener.open(ledgers_url, registry, None, held)
    ledgers = StorageClusters(ids, {home: store}, catalog=catalog, open_store=opener.open_other)
    held.push_async_callback(ledgers.close)
    return Stores(metadata, ledgers, url_in_use, replaceable)


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
        self._credentials = load_ledger_credentials(settings.ledgers_credentials, _warn)

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
            registry = await _open_metadata(self._runtime, address.metadata_url, self._settings)
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


async def open_replaceable(
    runtime: Runtime, url: str, settings: Settings, takes_part: TakesPart
) -> ReplaceableMetadata:
    """Open a store as a process does that takes part in replacing it; see `ReplaceableMetadata`."""

    async def open_store(url: str) -> MetadataStore:
        refuse_private(url)
        return await _open_metadata(runtime, url, settings)

    async def look_at(url: str) -> MetadataStore:
        refuse_private(url)
        return await _open_metadata(runtime, url, settings, may_make=False)

    return await ReplaceableMetadata.open(
        runtime,
        url,
        open_store,
        takes_part.me,
        takes_part.tasks,
        successors=settings.metadata_migration_targets.split(),
        look_at=look_at,
        engines=bulk_engines(
            settings.metadata_migration_spark,
            load_credentials(settings.metadata_credentials, _warn),
        ),
    )


async def _open_metadata(
    runtime: Runtime, url: str, settings: Settings, *, may_make: bool = True
) -> MetadataStore:
    return await open_metadata_store(
        url,
        runtime,
        may_make=may_make,
        session_timeout_s=settings.metadata_session_timeout_s,
        credentials=load_credentials(settings.metadata_credentials, _warn),
    )
