"""Which storage clusters there are, which gets new ledgers, whose a ledger without a stamp is.

One document, `/anabranch/storage-catalog`, changed by conditional writes alone:

    {"format": "anabranch.storage-catalog", "version": 1, "epoch": 1,
     "origin": "main", "active": "main",
     "clusters": {"main": {"url": "embedded:", "first_ledger_id": 0}}}

Ledger ids are one sequence over all clusters (see `ledger_ids`). A cluster that had ledgers before
it was added has a floor, above which ids go on; the floor is raised before the cluster is added and
once more before it becomes the active one, for others may have created ledgers there meanwhile.

Who creates a ledger publishes it under a guard on this document as it was when the ledger was
created: a cluster that is not the active one any more gets no ledger published.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from anabranch import limits
from anabranch.errors import BadVersion, ConfigError, ConflictError, FormatError, NotFound
from anabranch.ledgers.addresses import EMBEDDED, identity, shares_metadata
from anabranch.ledgers.ledger_ids import LedgerIdAuthority, SharedAuthority
from anabranch.ledgers.stamps import NO_STAMP, Stamp
from anabranch.metadata.store import ABSENT, Guard, MetadataStore, Node, Version

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
            ConflictError: if there is another of that name, or of another name at that URL.
        """
        if self.clusters.get(name, cluster) != cluster:
            raise ConflictError(f"there is a storage cluster {name} at {self.clusters[name].url}")
        for other, known in self.clusters.items():
            if other != name and identity(known.url) == identity(cluster.url):
                raise ConflictError(f"{cluster.url!r} is storage cluster {other}")
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

    def at(self, url: str) -> str | None:
        """The name of the cluster that a URL of the settings leads to; None if there is none."""
        by_url = {identity(cluster.url): name for name, cluster in self.clusters.items()}
        return by_url.get(identity(url)) or by_url.get(_wherever(url))

    @property
    def shares_ids(self) -> bool:
        """Whether others may create ledgers by the same metadata: then ids are theirs too."""
        return any(shares_metadata(cluster.url) for cluster in self.clusters.values())

    def stamp(self) -> Stamp:
        """What a ledger created now is stamped with.

        Nothing as long as no other cluster was ever known: what has no stamp is the origin's.
        """
        return NO_STAMP if len(self.clusters) == 1 else Stamp(self.active, self.epoch)


def _wherever(url: str) -> str:
    """A URL of the settings as the catalog has it: a data folder may be moved."""
    return EMBEDDED if url.startswith(EMBEDDED) else identity(url)


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


def _refuse_unknown(document: CatalogDocument, url: str) -> None:
    if document.at(url) is None:
        known = ", ".join(f"{c.url!r} ({name})" for name, c in sorted(document.clusters.items()))
        raise ConfigError(
            f"the ledgers of this cluster are in {known}, and not in {_wherever(url)!r}: "
            "use that store, or other metadata"
        )


async def check_known(metadata: MetadataStore, url: str) -> None:
    """Make sure, before anything is opened or written, that no catalog speaks against a store.

    Raises:
        ConfigError: if there is one that does not know it.
        FormatError: if the document is of an unknown format.
    """
    node = await metadata.get(PATH)
    if node is not None:
        _refuse_unknown(decode_catalog(node.value), url)


class StorageCatalog:
    """The catalog of a cluster, and the authority for its ledger ids."""

    def __init__(self, metadata: MetadataStore, ids: LedgerIdAuthority, node: Node) -> None:
        """Use `open`."""
        self._metadata = metadata
        self.ids = ids
        self.document = decode_catalog(node.value)
        self._version: Version = node.stat.version

    @classmethod
    async def open(
        cls, metadata: MetadataStore, ids: LedgerIdAuthority, url: str
    ) -> "StorageCatalog":
        """Read the catalog; the first who comes writes it, with the store it uses as origin.

        Raises:
            ConfigError: if the store at `url` is none of its clusters.
            FormatError: if the document is of an unknown format.
        """
        node = await metadata.get(PATH)
        if node is None:
            first = CatalogDocument(1, ORIGIN, ORIGIN, {ORIGIN: StorageCluster(_wherever(url))})
            with suppress(BadVersion):
                await metadata.put(PATH, encode_catalog(first), ABSENT)
            node = await metadata.get(PATH)
        if node is None:
            raise NotFound(f"{PATH} was removed")
        catalog = cls(metadata, ids, node)
        _refuse_unknown(catalog.document, url)
        await catalog._share_ids(catalog.document)
        return catalog

    def guard(self) -> Guard:
        """Makes a write count only while the catalog is as `document` says."""
        return Guard(PATH, self._version)

    async def refresh(self) -> None:
        """Read it again.

        Raises:
            ConflictError: if it is not a later state of the same catalog.
            FormatError: if the document is of an unknown format.
        """
        self._learn(await self._read())
        await self._share_ids(self.document)

    async def _share_ids(self, document: CatalogDocument) -> None:
        if document.shares_ids and isinstance(self.ids, SharedAuthority):
            await self.ids.share()

    async def add(self, name: str, cluster: StorageCluster) -> None:
        """Make a cluster known; harmless if it is.

        Raises:
            ConflictError: if another one has that name, or another name that URL.
        """
        await self._share_ids(self.document.with_cluster(name, cluster))
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
            node = await self._read()
            before = decode_catalog(node.value)
            after = change(before)
            if after != before:
                value = encode_catalog(after)
                try:
                    stat = await self._metadata.put(PATH, value, node.stat.version)
                except BadVersion:
                    continue
                node = Node(value, stat)
            self._learn(node)
            return
        raise ConflictError(
            f"{PATH} changed {limits.CONDITIONAL_WRITE_TRIES_MAX} times while it was being written"
        )

    async def _read(self) -> Node:
        await self._metadata.sync()
        node = await self._metadata.get(PATH)
        if node is None:
            raise NotFound(f"{PATH} was removed")
        return node

    def _learn(self, node: Node) -> None:
        known, found = self.document, decode_catalog(node.value)
        if found.origin != known.origin or found.epoch < known.epoch:
            raise ConflictError(
                f"{PATH} was origin {known.origin} and epoch {known.epoch}, and is origin "
                f"{found.origin} and epoch {found.epoch}: it was replaced by an older or another "
                "one, which does not know where ledgers are"
            )
        self.document, self._version = found, node.stat.version
