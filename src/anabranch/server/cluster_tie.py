"""Ties ledgers to the cluster whose metadata names them.

The metadata say which cluster they are, in `/anabranch/cluster`; a folder says to which its ledgers
belong, in `cluster.json`, and so does `anabranch/bookies/<root>` in the store in which bookies
register, beside the root: so it is one node, however much of the path stands in the address of the
store, and how much in the root. The first start writes both, the metadata first. So ledgers are
never opened, which may cut and close them, on behalf of metadata that know nothing of them; and no
two clusters give the same ids to ledgers on the same bookies.

    {"format": "anabranch.cluster", "version": 1, "cluster_id": "…"}
"""

import json
from typing import Final

from anabranch.errors import BadVersion, ConfigError, FormatError, NotFound
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.runtime.disk import Disk

PATH: Final = "/anabranch/cluster"
TIE_FILE: Final = "cluster.json"
_FORMAT: Final = "anabranch.cluster"
_VERSION: Final = 1


async def tie(disk: Disk, folder: str, metadata: MetadataStore, proposed_id: str) -> str:
    """Make sure that the ledgers in a folder belong to these metadata; return whose both are.

    `proposed_id` is for metadata that have no name yet, of a folder that has no tie yet.

    Raises:
        ConfigError: if the ledgers belong to other metadata; nothing was changed.
        FormatError: if one of the documents is of an unknown format.
    """
    file = f"{folder}/{TIE_FILE}"
    tied = decode(file, await disk.read(file)) if await disk.exists(file) else None
    node = await metadata.get(PATH)
    if node is not None:
        cluster_id = decode(PATH, node.value)
    elif tied is not None or await _are_strangers(disk, folder, metadata):
        raise ConfigError(
            f"there are ledgers in {folder}{f' of cluster {tied}' if tied else ''}, but the "
            "metadata store is new or was emptied: use the metadata that they were written with, "
            "or another data folder"
        )
    else:
        cluster_id = decode(PATH, await _name(metadata, PATH, proposed_id))
    if tied is None:
        await disk.make_folder(folder)
        await disk.replace(file, encode(cluster_id))
    elif tied != cluster_id:
        raise ConfigError(
            f"the ledgers in {folder} belong to cluster {tied}, and the metadata store to cluster "
            f"{cluster_id}: use the metadata that they were written with, or another data folder"
        )
    return cluster_id


async def tie_bookies(
    metadata: MetadataStore, registry: MetadataStore, root: str, proposed_id: str
) -> str:
    """Make sure that the ledgers below a root belong to these metadata; return whose both are.

    `registry` is the store in which the bookies register, the same one or another.

    Raises:
        ConfigError: if the ledgers belong to other metadata; nothing was changed.
        FormatError: if one of the documents is of an unknown format.
    """
    path = tie_path(root)
    # The tie first: servers that start together name the metadata before they write the tie.
    tied = await owner_of_bookies(registry, root)
    cluster_id = await cluster_of(metadata)
    if cluster_id is None and tied is not None:
        raise ConfigError(
            f"the ledgers of these bookies below {root} belong to cluster {tied}, but the metadata "
            "store is new or was emptied: use the metadata that they were written with, or another "
            "root"
        )
    if cluster_id is None:
        cluster_id = decode(PATH, await _name(metadata, PATH, proposed_id))
    if tied is None:
        tied = decode(path, await _name(registry, path, cluster_id))
    if tied != cluster_id:
        raise ConfigError(
            f"the ledgers of these bookies below {root} belong to cluster {tied}, and the metadata "
            f"store to cluster {cluster_id}: use the metadata that they were written with, or "
            "another root"
        )
    return cluster_id


def tie_path(root: str) -> str:
    """Where it is noted whose ledgers are below a root of bookies."""
    above, _, name = root.rpartition("/")
    return f"{above}/anabranch/bookies/{name}"


async def owner_of_bookies(registry: MetadataStore, root: str) -> str | None:
    """The cluster whose ledgers are below a root of bookies; None if nobody noted it.

    Raises:
        FormatError: if the document is of an unknown format.
    """
    return await _noted(registry, tie_path(root))


async def cluster_of(metadata: MetadataStore) -> str | None:
    """Which cluster these metadata are; None if no server has named it.

    Raises:
        FormatError: if the document is of an unknown format.
    """
    return await _noted(metadata, PATH)


async def _noted(store: MetadataStore, path: str) -> str | None:
    node = await store.get(path)
    return None if node is None else decode(path, node.value)


async def check_tie(disk: Disk, folder: str, metadata: MetadataStore) -> None:
    """Make sure, without changing anything, that ledgers were written with these metadata.

    Raises:
        ConfigError: if they were not, or if nothing says so.
        FormatError: if one of the documents is of an unknown format.
    """
    file = f"{folder}/{TIE_FILE}"
    tied = decode(file, await disk.read(file)) if await disk.exists(file) else None
    node = await metadata.get(PATH)
    if tied is None or node is None:
        raise ConfigError(
            f"nothing says that the ledgers in {folder} were written with these metadata: "
            "start the server once, it notes that down"
        )
    if tied != (found := decode(PATH, node.value)):
        raise ConfigError(
            f"the ledgers in {folder} belong to cluster {tied}, the metadata to cluster {found}"
        )


async def _are_strangers(disk: Disk, folder: str, metadata: MetadataStore) -> bool:
    """Whether there are ledgers, of before there were ties, and metadata without anything."""
    return await disk.exists(f"{folder}/journal") and not await metadata.children("/")


async def _name(store: MetadataStore, path: str, cluster_id: str) -> bytes:
    """Write whose a place is, unless somebody else is faster; the document that is there then."""
    try:
        await store.put(path, encode(cluster_id), ABSENT)
    except BadVersion:
        pass
    else:
        return encode(cluster_id)
    node = await store.get(path)
    if node is None:
        raise NotFound(f"{path} was removed")
    return node.value


def encode(cluster_id: str) -> bytes:
    """The document."""
    fields = {"format": _FORMAT, "version": _VERSION, "cluster_id": cluster_id}
    return json.dumps(fields).encode()


def decode(place: str, value: bytes) -> str:
    """Whom the document at a place names.

    Raises:
        FormatError: if it is none, or of a version this build does not know.
    """
    try:
        fields = json.loads(value)
    except ValueError:
        raise FormatError(f"{place} is not JSON: {value[:40]!r}") from None
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise FormatError(f"{place} is not a document of format {_FORMAT}")
    if fields.get("version") != _VERSION:
        raise FormatError(
            f"{place} has version {fields.get('version')!r}; this build knows {_VERSION}"
        )
    cluster_id = fields.get("cluster_id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise FormatError(f"{place} names no cluster_id")
    return cluster_id
