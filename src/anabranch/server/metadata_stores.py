"""Opens metadata stores as a server uses them: such that they may be replaced under it, or not."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from anabranch.metadata.announced import Report
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.seal import check_not_sealed
from anabranch.migrations.freeze_copy.planning import Configuration
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.bulk_engines import bulk_engines
from anabranch.server.credentials_file import load_credentials
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.server.replaced_metadata import refuse_replaced
from anabranch.server.settings import Settings
from anabranch.server.sole_server import may_be_shared, refuse_private
from anabranch.telemetry import get_logger

_log: Final = get_logger("stores")


@dataclass(frozen=True, slots=True)
class TakesPart:
    """A process that lives on when its metadata store is replaced."""

    me: Report
    tasks: Tasks


@dataclass(frozen=True, slots=True)
class MetadataInUse:
    """A store, and this process's part in replacing it."""

    store: MetadataStore
    url: Callable[[], str]
    """Where it is now."""
    replaceable: ReplaceableMetadata | None = None
    """None if this process takes no part."""


async def open_in_use(
    runtime: Runtime,
    url: str,
    settings: Settings,
    held: AsyncExitStack,
    takes_part: TakesPart | None,
    configuration: Configuration = Configuration.WITHIN,
) -> MetadataInUse:
    """Open a store; `held` closes it. One that others share may be replaced if targets are allowed.

    Raises:
        ConfigError: if it was left for another one, or is about to be, and this process cannot
            follow.
    """
    may_change = settings.metadata_migration_targets and may_be_shared(url)
    if takes_part is not None and may_change:
        replaceable = await open_replaceable(runtime, url, settings, takes_part, configuration)
        held.push_async_callback(replaceable.close)
        return MetadataInUse(replaceable.store, lambda: replaceable.url, replaceable)
    store = await open_metadata(runtime, url, settings)
    held.push_async_callback(store.close)
    shared = configuration is Configuration.ALONE
    setting = "configuration_metadata_url" if shared else "metadata_url"
    await check_not_sealed(store, setting)
    await refuse_replaced(store, url, setting)
    return MetadataInUse(store, lambda: url)


async def open_replaceable(
    runtime: Runtime,
    url: str,
    settings: Settings,
    takes_part: TakesPart,
    configuration: Configuration = Configuration.WITHIN,
) -> ReplaceableMetadata:
    """Open a store as a process does that takes part in replacing it; see `ReplaceableMetadata`."""

    async def open_store(url: str) -> MetadataStore:
        refuse_private(url)
        return await open_metadata(runtime, url, settings)

    async def look_at(url: str) -> MetadataStore:
        refuse_private(url)
        return await open_metadata(runtime, url, settings, may_make=False)

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
            load_credentials(settings.metadata_credentials, warn_of_credentials),
        ),
        configuration=configuration,
    )


async def open_metadata(
    runtime: Runtime, url: str, settings: Settings, *, may_make: bool = True
) -> MetadataStore:
    """Open a store with the credentials of the settings; see `open_store`."""
    return await open_store(
        url,
        runtime,
        may_make=may_make,
        session_timeout_s=settings.metadata_session_timeout_s,
        credentials=load_credentials(settings.metadata_credentials, warn_of_credentials),
    )


def warn_of_credentials(sentence: str) -> None:
    """Say that others can read a file of secrets."""
    _log.warning("credentials_open_to_others", problem=sentence)
