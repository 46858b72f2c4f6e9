"""A configuration store beside the metadata store, and what keeps a server off a wrong one.

The configuration store has an id of its own, and each metadata store that goes with it notes that
id. So no server works with tenants and policies that are not those of its topics: not with another
configuration store, not with none, and not with one beside tenants that are in the metadata store.

    /anabranch/configuration/id        {"format": "anabranch.configuration", "version": 1, "id": …}
    /anabranch/configuration/used      the same, in the metadata store

Both documents are copied with the store that they are in, so each store can be replaced.
"""

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from anabranch.errors import BadVersion, ConfigError, FormatError, InputError
from anabranch.metadata.features import check_features
from anabranch.metadata.parted import PartedStore
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.engine.reports import read_reports
from anabranch.migrations.engine.steps import Blocker
from anabranch.migrations.freeze_copy.planning import Configuration, refuse_same_store
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.ownership.addresses import BROKERS
from anabranch.policies.paths import CLUSTERS, TENANTS
from anabranch.runtime import Runtime
from anabranch.server.metadata_stores import MetadataInUse, TakesPart, open_in_use
from anabranch.server.settings import Settings

ID_PATH: Final = "/anabranch/configuration/id"
USED_PATH: Final = "/anabranch/configuration/used"
_FORMAT: Final = "anabranch.configuration"
_VERSION: Final = 1
_SETTING: Final = "configuration_metadata_url"


async def open_configuration(
    runtime: Runtime,
    settings: Settings,
    local: MetadataInUse,
    held: AsyncExitStack,
    takes_part: TakesPart | None,
) -> MetadataInUse | None:
    """Open the configuration store of the settings; None if that is the metadata store.

    Raises:
        ConfigError: if it is not the one that belongs to this metadata store.
        FormatError: if a document is of an unknown format.
    """
    if not settings.has_configuration_store:
        await refuse_without(local.store)
        return None
    url = settings.configuration_metadata_url
    found = await open_in_use(runtime, url, settings, held, takes_part, Configuration.ALONE)
    check_apart(local.url(), found.url())
    await check_features(found.store)
    await tie_configuration(local.store, found.store, runtime.entropy.token_hex(16))
    return found


async def beside(
    urls: Sequence[str], stores: Sequence[MetadataStore], runtime: Runtime, *, dry_run: bool
) -> MetadataStore:
    """One tree of a metadata store and, if there is a second one, its configuration store.

    Raises:
        ConfigError: if they do not belong together.
        FormatError: if a document is of an unknown format.
    """
    local, *others = stores
    if not others:
        await refuse_without(local)
        return local
    (configuration,) = others
    check_apart(*urls)
    if dry_run:
        await check_belongs(local, configuration)
    else:
        await tie_configuration(local, configuration, runtime.entropy.token_hex(16))
    return PartedStore(local, configuration)


def check_apart(metadata_url: str, configuration_url: str) -> None:
    """Make sure that a configuration store is another one, and neither is within the other.

    Raises:
        ConfigError: if it is not.
    """
    try:
        refuse_same_store(metadata_url, configuration_url)
    except InputError:
        raise ConfigError(
            f"{_SETTING} leads to {shown(configuration_url)} and metadata_url to "
            f"{shown(metadata_url)}, which is the same store or has a part of the other: give the "
            "same URL twice, or a chroot beside it"
        ) from None


async def refuse_without(local: MetadataStore) -> None:
    """Make sure that a metadata store has its configuration within it.

    Raises:
        ConfigError: if it notes that there is a store for that.
    """
    if await local.get(USED_PATH) is not None:
        raise ConfigError(
            "the clusters, tenants and policies that belong to this metadata store are in a "
            f"configuration store: name it in the setting {_SETTING}"
        )


async def check_belongs(local: MetadataStore, configuration: MetadataStore) -> None:
    """Make sure that two stores may belong together. Changes nothing.

    Raises:
        ConfigError: if they do not.
        FormatError: if a document is of an unknown format.
    """
    used, own = await _noted(local, USED_PATH), await _noted(configuration, ID_PATH)
    if own is not None and await _noted(local, ID_PATH) == own:
        raise ConfigError(
            f"{_SETTING} and metadata_url name the same store in two ways: give the same URL twice"
        )
    if used is None:
        await _refuse_tenants_in(local)
    elif own is None:
        raise ConfigError(
            f"the store in {_SETTING} is new or was emptied, and the metadata store belongs to "
            f"configuration store {used}: name that one"
        )
    elif used != own:
        raise ConfigError(
            f"the metadata store belongs to configuration store {used}, and {_SETTING} names "
            f"{own}: name the one that has the tenants of these topics"
        )


async def tie_configuration(
    local: MetadataStore, configuration: MetadataStore, proposed_id: str
) -> None:
    """Make sure that two stores belong together, and note that they do.

    `proposed_id` is for a configuration store that has none yet. Raises as `check_belongs` does.
    """
    await check_belongs(local, configuration)
    await _note(local, USED_PATH, await _note(configuration, ID_PATH, proposed_id))
    await check_belongs(local, configuration)  # others may have noted something else meanwhile


async def _refuse_tenants_in(local: MetadataStore) -> None:
    for path in (CLUSTERS, TENANTS):
        if names := await local.children(path):
            raise ConfigError(
                f"{_SETTING} is set, and the metadata store has {path}/{names[0]} itself: copy "
                "what it has to the configuration store while no server runs, and delete it here "
                "(see the guide to replacing the metadata store)"
            )


async def _noted(store: MetadataStore, path: str) -> str | None:
    node = await store.get(path)
    return None if node is None else _decode(path, node.value)


async def _note(store: MetadataStore, path: str, store_id: str) -> str:
    """Write an id, unless there is one or somebody else is faster; the one that is there then."""
    present = await _noted(store, path)
    if present is not None:
        return present
    document = {"format": _FORMAT, "version": _VERSION, "id": store_id}
    try:
        await store.put(path, json.dumps(document).encode(), ABSENT)
    except BadVersion:
        return await _noted(store, path) or store_id
    return store_id


def _decode(path: str, value: bytes) -> str:
    try:
        document = json.loads(value)
        known = (document["format"], document["version"]) == (_FORMAT, _VERSION)
        store_id = str(document["id"])
    except (ValueError, KeyError, TypeError):
        known, store_id = False, ""
    if not known or not store_id:
        raise FormatError(f"{path} is not a document that this build knows: {value[:40]!r}")
    return store_id


async def brokers_apart(local: MetadataStore, configuration: MetadataStore) -> Sequence[Blocker]:
    """The brokers of this cluster that would go on with a configuration store all others left.

    Brokers are known by their nodes in the metadata store, and who takes part by its report.
    """
    reports = await read_reports(configuration, FreezeCopy.kind)
    known = {report.id.rpartition("-")[0] for report in reports}
    return [
        Blocker(
            name,
            "is a broker of this cluster that takes no part in replacing the configuration store: "
            f"it is not ours, or its setting {_SETTING} or metadata_migration_targets is empty. "
            "Stop it",
        )
        for name in await local.children(BROKERS)
        if name not in known
    ]
