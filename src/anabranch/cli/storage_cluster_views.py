"""Where a command looks for a ledger: in the store it was given, or in another of the catalog."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from anabranch.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from anabranch.ledgers.catalog import CatalogDocument
    from anabranch.ledgers.stamps import Stamp
    from anabranch.managed_ledger.inspection import LedgerView
    from anabranch.metadata.store import MetadataStore

OpenView = Callable[[str], "Awaitable[LedgerView]"]
"""Opens a view of the ledgers at a URL of the catalog."""


class StorageClusterViews:
    """The views of all storage clusters; each is opened when a ledger there is first needed."""

    def __init__(
        self, catalog: "CatalogDocument | None", home: str, view: "LedgerView", open_view: OpenView
    ) -> None:
        self._catalog = catalog
        self._views = {home: view}
        self._open_view = open_view
        self._opening = asyncio.Lock()

    async def __call__(self, stamp: "Stamp") -> "LedgerView":
        """The view of the cluster that a stamp names.

        Raises:
            StorageError: if the catalog does not know it, or there is none.
            ConfigError: if its ledgers are where this command cannot find them.
        """
        catalog = self._catalog
        cluster = stamp.cluster or ("" if catalog is None else catalog.origin)
        async with self._opening:
            found = self._views.get(cluster)
            if found is not None:
                return found
            if catalog is None or cluster not in catalog.clusters:
                known = "there is no catalog" if catalog is None else _names(catalog)
                raise StorageError(f"a ledger is in storage cluster {cluster}, and {known}")
            found = self._views[cluster] = await self._open_view(catalog.clusters[cluster].url)
            return found


async def read_catalog(metadata: "MetadataStore") -> "CatalogDocument | None":
    """The catalog; None in a metadata store that only Pulsar has used.

    Raises:
        FormatError: if it cannot be read.
    """
    from anabranch.ledgers.catalog import PATH, decode_catalog

    node = await metadata.get(PATH)
    return None if node is None else decode_catalog(node.value)


def home_of(catalog: "CatalogDocument | None", url: str) -> str:
    """The name of the cluster whose store a command was given.

    Raises:
        ConfigError: if it may be any of several.
    """
    if catalog is None:
        return ""
    if len(catalog.clusters) == 1:
        return catalog.origin
    # Commands are given the folder of the ledgers, servers the one around it.
    found = catalog.at(url.removesuffix("/ledgers"))
    if found is None:
        raise ConfigError(f"{url!r} is none of the storage clusters: {_names(catalog)}")
    return found


def _names(catalog: "CatalogDocument") -> str:
    clusters = (f"{name} at {cluster.url!r}" for name, cluster in sorted(catalog.clusters.items()))
    return f"the catalog names {', '.join(clusters)}"
