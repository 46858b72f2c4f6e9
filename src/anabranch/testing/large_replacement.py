"""The metadata store of brokers of ours is replaced, with a tree of any size in it, under load.

What is measured: how long writes waited, by the operation's own trail and by who wrote; how long
everything took; and which of the writes that were acknowledged are not in the new store.
"""

import asyncio
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from anabranch.client.admin import AdminClient
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each, made_tree
from anabranch.testing.namespace_load import NamespaceLoad
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, replaceable_cluster

SOURCE_MEMORY: Final = ("-Xmx3g",)
SOURCE_SETTINGS: Final = {"maxSessionTimeout": "40000"}
"""As ensembles usually have it: with so many nodes a server may stand still for seconds."""
SESSION_TIMEOUT_S: Final = 30.0
_TREE: Final = "/large"
_BEFORE_S: Final = 3.0
"""Of load before the start, and after the end."""
_LOOK_S: Final = 0.2
_REQUEST_S_MAX: Final = 900.0
_WHOLE_S_MAX: Final = 3600.0


@dataclass(slots=True)
class Replacement:
    """What came of it. Times are in seconds."""

    nodes: int
    total_s: float
    """From the request until the new store was in use."""
    freeze_s: float
    """While the operation held writes."""
    copy_s: float
    """Of the phase in which everything is copied."""
    longest_write_s: float
    """That anybody waited for one write meanwhile."""
    acknowledged: int
    """Writes, from the request until the new store was in use."""
    lost: list[str]
    """Of all that were acknowledged, also before and after."""
    refused: dict[int, int] = field(default_factory=dict)
    """Answers that said that a write was not done, by status."""
    phases_ms: dict[str, int] = field(default_factory=dict)

    @property
    def nodes_per_s(self) -> float:
        """How fast everything was copied."""
        return self.nodes / self.copy_s if self.copy_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "lost": len(self.lost), "nodes_per_s": round(self.nodes_per_s)}


async def fill(url: str, nodes: int) -> None:
    """Put a tree below one place of a store, about 500 bytes in each node."""
    store = await open_store(f"{url}{_TREE}", real_runtime(), session_timeout_s=SESSION_TIMEOUT_S)
    try:
        await store.restore(each(made_tree(nodes)))
    finally:
        await store.close()


async def missing(url: str, nodes: int) -> list[str]:
    """Which nodes of the tree are not what they were, in a store that it was copied to."""
    store = await open_store(url, real_runtime(), session_timeout_s=SESSION_TIMEOUT_S)
    try:
        wanted = {record.path: record.value for record in made_tree(nodes)}
        async for record in store.export(_TREE, access=False):
            path = record.path.removeprefix(_TREE) or "/"
            if wanted.get(path) == record.value:
                del wanted[path]
    finally:
        await store.close()
    return list(wanted)


def replaced_by_ours(nodes: int, folder: Path, brokers: int = 1) -> Replacement:
    """From ZooKeeper to Oxia, with brokers of ours; servers are started for it.

    Raises:
        ServerFailed: if the attempt does not come to the new store.
    """
    with replaceable_cluster(
        folder,
        brokers,
        session_timeout_s=SESSION_TIMEOUT_S,
        source_memory=SOURCE_MEMORY,
        source_settings=SOURCE_SETTINGS,
    ) as cluster:
        asyncio.run(fill(cluster.source.url, nodes))
        with NamespaceLoad(cluster.brokers.web_ports) as load:
            return asyncio.run(_measured(cluster, load, nodes))


async def _measured(cluster: ReplaceableCluster, load: NamespaceLoad, nodes: int) -> Replacement:
    await asyncio.sleep(_BEFORE_S)
    began_s = time.time()
    async with AdminClient(cluster.web_urls[-1], timeout_s=_REQUEST_S_MAX) as admin:
        await admin.metadata_migration.start({"target": cluster.target.url})
        found: dict[str, Any] = {}
        while found.get("phase") != "switched":
            await asyncio.sleep(_LOOK_S)
            found = await admin.metadata_migration.status()
            if found["error"] or time.time() - began_s > _WHOLE_S_MAX:
                raise ServerFailed(f"{found['phase']}: {found['error']}")
    await asyncio.sleep(_BEFORE_S)
    load.stop()
    begun_ms = _begun_ms(found["trail"])
    over_s = begun_ms["switched"] / 1000
    meanwhile = load.within(began_s, over_s + _BEFORE_S)
    return Replacement(
        nodes=nodes,
        total_s=over_s - began_s,
        freeze_s=(begun_ms["switched"] - begun_ms["freezing"]) / 1000,
        copy_s=(begun_ms["tailing"] - begun_ms["copying"]) / 1000,
        longest_write_s=max((each.took_s for each in meanwhile), default=0.0),
        acknowledged=len(load.within(began_s, over_s)),
        lost=[
            *await load.lost(cluster.target.url),
            *await missing(cluster.target.url, nodes),
        ],
        refused=load.answers,
        phases_ms=_phases_ms(begun_ms),
    )


def _begun_ms(trail: list[dict[str, Any]]) -> dict[str, int]:
    """When each phase of an attempt began, by the wall clock of who drove."""
    begun: dict[str, int] = {}
    for line in trail:
        begun.setdefault(line["phase"], line["at_ms"])
    return begun


def _phases_ms(begun_ms: dict[str, int]) -> dict[str, int]:
    phases = pairwise(begun_ms.items())
    return {name: later - begun for (name, begun), (_, later) in phases}
