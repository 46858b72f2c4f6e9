"""Which storage clusters there are, which gets new ledgers, whose a ledger without a stamp is.

One document, `/anabranch/storage-catalog`, changed by conditional writes alone:

    {"format": "anabranch.storage-catalog", "version": 1, "epoch": 1,
     "origin": "main", "active": "main",
     "clusters": {"main": {"url": "embedded:", "first_ledger_id": 0}}}

Ledger ids are one sequence over all clusters (see `ledger_ids`). A cluster that had ledgers before
it was added has a floor, above which ids go on; the floor is raised before the cluster is added and
once more before it becomes the active one, for others may have created ledgers there meanwhile.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from anabranch import limits
from anabranch.errors import BadVersion, ConfigError, ConflictError, FormatError, NotFound
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.metadata.store import ABSENT, MetadataStore

PATH: Final = "/anabranch/storage-catalog"
ORIGIN: Final = "main"
"""What the first cluster is called."""
_FORMAT: Final = "anabranch.storage-catalog"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StorageCluster:
    """Where ledgers can be."""

    url: str
    """As in the settings; an embedded store is in the server's data folder, wherever that is."""
    first_ledger_id: int = 0
    """Ids below were given out by somebody else."""


@dataclass(frozen=True, slots=True)
class CatalogDocument:
    """What the document says."""

    epoch: int
    """Raised whenever another cluster becomes active."""
    origin: str
    """Has the ledgers that carry no stamp; never changes."""
    active: str
    """Gets new ledgers."""
    clusters: Mapping[str, StorageCluster]

    def with_cluster(self, name: str, cluster: StorageCluster) -> "CatalogDocument":
        """The same with one more.

        Raises:
            ConflictError: if there is another of that name.
        """
        if self.clusters.get(name, cluster) != cluster:
            raise ConflictError(f"there is a storage cluster {name} at {self.clusters[name].url}")
        return replace(self, clusters={**self.clusters, name: cluster})

    def with_active(self, name: str) -> "CatalogDocument":
        """The same with new ledgers going to a cluster.

        Raises:
            NotFound: if it is not in the catalog.
        """
        if name not in self.clusters:
            raise NotFound(f"there is no storage cluster {name}: add it first")
        if name == self.active:
            return self
        return replace(self, epoch=self.epoch + 1, active=name)


def encode_catalog(document: CatalogDocument) -> bytes:
    """The document as it is stored."""
    clusters = {
        name: {"url": cluster.url, "first_ledger_id": cluster.first_ledger_id}
        for name, cluster in sorted(document.clusters.items())
    }
    fields = {
        "format": _FORMAT,
        "version": _VERSION,
        "epoch": document.epoch,
        "origin": document.origin,
        "active": document.active,
        "clusters": clusters,
    }
    return json.dumps(fields, indent=1).encode()


def decode_catalog(value: bytes) -> CatalogDocument:
    """Undo `encode_catalog`.

    Raises:
        FormatError: if it is no such document, or of a version this build does not know.
    """
    try:
        fields = json.loads(value)
    except ValueError:
        raise FormatError(f"{PATH} is not JSON: {value[:40]!r}") from None
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise FormatError(f"{PATH} is not a document of format {_FORMAT}")
    if fields.get("version") != _VERSION:
        raise FormatError(
            f"{PATH} has version {fields.get('version')!r}; this build knows {_VERSION}"
        )
    document = _parse(fields)
    for role, name in (("origin", document.origin), ("active", document.active)):
        if name not in document.clusters:
            raise FormatError(f"{PATH} names {name!r} as {role}, which is not among its clusters")
    return document


def _parse(fields: dict[str, Any]) -> CatalogDocument:
    try:
        clusters = {}
        for name, cluster in fields["clusters"].items():
            url, first = cluster["url"], cluster["first_ledger_id"]
            if type(url) is not str or type(first) is not int or first < 0:
                raise ValueError(f"cluster {name}")
            clusters[name] = StorageCluster(url, first)
        epoch = fields["epoch"]
        if type(epoch) is not int or epoch < 1:
            raise ValueError("epoch")
        return CatalogDocument(epoch, fields["origin"], fields["active"], clusters)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{PATH} is malformed: {error!r}") from None


class StorageCatalog:
    """The catalog of a cluster, and the authority for its ledger ids."""

    def __init__(self, metadata: MetadataStore, ids: LedgerIds, document: CatalogDocument) -> None:
        """Use `open`."""
        self._metadata = metadata
        self.ids = ids
        self.document = document

    @classmethod
    async def open(cls, metadata: MetadataStore, ids: LedgerIds, url: str) -> "StorageCatalog":
        """Read the catalog; the first who comes writes it, with the store it uses as origin.

        Raises:
            ConfigError: if new ledgers belong to another store than the one at `url`.
            FormatError: if the document is of an unknown format.
        """
        kind = url if not url.startswith("embedded:") else "embedded:"
        found = await metadata.get(PATH)
        if found is None:
            first = CatalogDocument(1, ORIGIN, ORIGIN, {ORIGIN: StorageCluster(kind)})
            try:
                await metadata.put(PATH, encode_catalog(first), ABSENT)
            except BadVersion:
                return await cls.open(metadata, ids, url)
            return cls(metadata, ids, first)
        document = decode_catalog(found.value)
        active = document.clusters[document.active]
        if active.url != kind:
            raise ConfigError(
                f"the ledgers of this cluster are in {active.url!r} (storage cluster "
                f"{document.active}), and not in {kind!r}: use that store, or other metadata"
            )
        return cls(metadata, ids, document)

    async def add(self, name: str, cluster: StorageCluster) -> None:
        """Make a cluster known; harmless if it is.

        Raises:
            ConflictError: if another one has that name.
        """
        await self.ids.raise_floor(cluster.first_ledger_id)
        await self._change(lambda document: document.with_cluster(name, cluster))

    async def activate(self, name: str, *, above: int = 0) -> None:
        """Let new ledgers go to a cluster whose own ledgers are all below `above` by now.

        Raises:
            NotFound: if it was not added.
        """
        if name not in self.document.clusters:
            raise NotFound(f"there is no storage cluster {name}: add it first")
        await self.ids.raise_floor(max(above, self.document.clusters[name].first_ledger_id))
        await self._change(lambda document: document.with_active(name))

    async def _change(self, change: Callable[[CatalogDocument], CatalogDocument]) -> None:
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            node = await self._metadata.get(PATH)
            if node is None:
                raise NotFound(f"{PATH} was removed")
            before = decode_catalog(node.value)
            after = change(before)
            if after != before:
                try:
                    await self._metadata.put(PATH, encode_catalog(after), node.stat.version)
                except BadVersion:
                    continue
            self.document = after
            return
        raise ConflictError(
            f"{PATH} changed {limits.CONDITIONAL_WRITE_TRIES_MAX} times while it was being written"
        )
