"""Opens the metadata store and the ledger store that the settings name."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from anabranch.errors import StoreFailed
from anabranch.ledgers.factory import open_ledgers
from anabranch.ledgers.store import LedgerStore
from anabranch.metadata.factory import open_store as open_metadata_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.server.cluster_tie import tie
from anabranch.server.credentials_file import load_credentials
from anabranch.server.data_folder import DataFolder, claim
from anabranch.server.settings import Settings
from anabranch.telemetry import get_logger

_EMBEDDED: Final = "embedded:"
_MEMORY: Final = "memory:"
"""Forgets whose it was, so that nothing can be tied to it."""
_log: Final = get_logger("stores")


@dataclass(frozen=True, slots=True)
class Stores:
    """What a server keeps its data in."""

    metadata: MetadataStore
    ledgers: LedgerStore

    def failure(self) -> StoreFailed | None:
        """Why one of them accepts nothing more; None while both work."""
        for name, store in (("metadata", self.metadata), ("ledger", self.ledgers)):
            if store.failure is not None:
                return StoreFailed(f"the {name} store has failed: {store.failure}")
        return None


async def open_stores(runtime: Runtime, settings: Settings, held: AsyncExitStack) -> Stores:
    """Open both; `held` closes them and releases their folders.

    Raises:
        FolderInUse: if another process has one of the folders.
        FormatError: if a folder or file is not ours.
        Corruption: if stored bytes are damaged.
        ConfigError: if the ledgers belong to the metadata of another cluster, or the credentials
            for the metadata store are wrong.
    """
    metadata_url, ledgers_url = settings.metadata_url, settings.ledgers_url
    if metadata_url.startswith(_EMBEDDED) or ledgers_url.startswith(_EMBEDDED):
        data = await claim(runtime, settings.data)
        held.callback(data.lock.release)
        metadata_url = await _located(runtime, metadata_url, "metadata", data, held)
        ledgers_url = await _located(runtime, ledgers_url, "ledgers", data, held)
    credentials = load_credentials(settings.metadata_credentials, _warn)
    metadata = await open_metadata_store(
        metadata_url,
        runtime,
        session_timeout_s=settings.metadata_session_timeout_s,
        credentials=credentials,
    )
    held.push_async_callback(metadata.close)
    if ledgers_url.startswith(_EMBEDDED) and metadata_url != _MEMORY:
        folder = ledgers_url.removeprefix(_EMBEDDED)
        await tie(runtime.disk, folder, metadata, data.cluster_id)
    ledgers = await open_ledgers(ledgers_url, runtime)
    held.push_async_callback(ledgers.close)
    return Stores(metadata, ledgers)


def _warn(sentence: str) -> None:
    _log.warning("credentials_open_to_others", problem=sentence)


async def _located(
    runtime: Runtime, url: str, name: str, data: DataFolder, held: AsyncExitStack
) -> str:
    """Return the address of an embedded store with its folder in it; others stay as they are."""
    if not url.startswith(_EMBEDDED):
        return url
    if url == _EMBEDDED:
        return f"{_EMBEDDED}{data.path}/{name}"
    elsewhere = await claim(runtime, url.removeprefix(_EMBEDDED), cluster_id=data.cluster_id)
    held.callback(elsewhere.lock.release)
    return f"{_EMBEDDED}{elsewhere.path}/{name}"
