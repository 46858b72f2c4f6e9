"""The metadata store of brokers of ours is replaced, with a tree of any size in it, under load.

What is measured: how long writes waited, by the operation's own trail and by who wrote; how long
everything took; which of the writes that were acknowledged are not in the new store; and, if it is
wanted, how publishing fared before and meanwhile.
"""

import asyncio
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from anabranch.client.admin import AdminClient
from anabranch.client.admin.refusals import AdminConflict
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each, made_tree
from anabranch.testing.namespace_load import NamespaceLoad
from anabranch.testing.publish_times import Span
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, replaceable_cluster
from anabranch.testing.steady_publishing import (
    HOLD,
    OPERATION,
    STEADY,
    Published,
    SteadyPublishing,
)

SOURCE_MEMORY: Final = ("-Xmx3g",)
SOURCE_SETTINGS: Final = {"maxSessionTimeout": "40000"}
"""As ensembles usually have it: with so many nodes a server may stand still for seconds."""
SESSION_TIMEOUT_S: Final = 30.0
_TREE: Final = "/large"
_BEFORE_S: Final = 3.0
"""Of load before the start, and after each end."""
_WARM_S: Final = 5.0
_STEADY_S: Final = 20.0
"""Of publishing before the start: long enough for one message in a hundred to be many."""
_LOOK_S: Final = 0.2
_REQUEST_S_MAX: Final = 900.0
_START_S_MAX: Final = 60.0
_WHOLE_S_MAX: Final = 3600.0


@dataclass(slots=True)
class Replacement:
    """What came of it. Times are in seconds."""

    nodes: int
    total_s: float
    """From the request until the new store was in use."""
    freeze_s: float
    """While the operation held writes; the longest time, if it went there more than once."""
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
    """Of the first time."""
    freezes_s: list[float] = field(default_factory=list)
    """There, back, there and so on."""
    holds_ms: list[dict[str, int]] = field(default_factory=list)
    """Of each of these, the phases in which writes were held."""
    published: Published | None = None
    """What became of messages, if some were sent."""

    @property
    def nodes_per_s(self) -> float:
        """How fast everything was copied."""
        return self.nodes / self.copy_s if self.copy_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        told = asdict(self) | {"lost": len(self.lost), "nodes_per_s": round(self.nodes_per_s)}
        del told["published"]
        return told


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


@dataclass(frozen=True, slots=True)
class _Way:
    """From one store to the other, once; moments are by the wall clock."""

    asked_s: float
    held_s: float
    """From then on writes were held."""
    over_s: float
    phases_ms: dict[str, int]

    held: str
    """The first phase of those that held writes."""

    @property
    def freeze_s(self) -> float:
        return self.over_s - self.held_s

    @property
    def hold_ms(self) -> dict[str, int]:
        names = list(self.phases_ms)
        return {name: self.phases_ms[name] for name in names[names.index(self.held) :]}


def replaced_by_ours(
    nodes: int, folder: Path, brokers: int = 1, *, rounds: int = 1, publish_rate: float = 0.0
) -> Replacement:
    """From ZooKeeper to Oxia, with brokers of ours; servers are started for it.

    It goes there `rounds` times, and back in between. With a `publish_rate` so many messages a
    second are sent from before the first start until after the last switch.

    Raises:
        ServerFailed: if an attempt does not come to the new store.
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
            if not publish_rate:
                return asyncio.run(_measured(cluster, load, nodes, rounds))
            publishing = SteadyPublishing(
                cluster.brokers.service_url, folder / "messages", rate=publish_rate
            )
            return asyncio.run(_published(publishing, cluster, load, nodes, rounds))


async def _published(
    publishing: SteadyPublishing,
    cluster: ReplaceableCluster,
    load: NamespaceLoad,
    nodes: int,
    rounds: int,
) -> Replacement:
    async with publishing:
        await asyncio.sleep(_WARM_S)
        steady_s = time.time()
        await asyncio.sleep(_STEADY_S)
        publishing.open_window()
        ways = await _gone(cluster, rounds)
        await publishing.finish()
    spans = [Span(STEADY, steady_s, ways[0].asked_s)]
    for way in ways:
        spans.append(Span(OPERATION, way.asked_s, way.over_s))
        spans.append(Span(HOLD, way.held_s, way.over_s))
    found = await _judged(cluster, load, nodes, ways)
    found.published = await asyncio.to_thread(publishing.judge, spans)
    return found


async def _measured(
    cluster: ReplaceableCluster, load: NamespaceLoad, nodes: int, rounds: int
) -> Replacement:
    await asyncio.sleep(_BEFORE_S)
    return await _judged(cluster, load, nodes, await _gone(cluster, rounds))


async def _gone(cluster: ReplaceableCluster, rounds: int) -> list[_Way]:
    """Go there, and back and there again so often as wanted; the load goes on a little longer."""
    async with AdminClient(cluster.web_urls[-1], timeout_s=_REQUEST_S_MAX) as admin:
        ways = [await _there(admin, cluster.target.url)]
        for _ in range(rounds - 1):
            await asyncio.sleep(_BEFORE_S)
            ways.append(await _back(admin))
            await asyncio.sleep(_BEFORE_S)
            ways.append(await _there(admin, cluster.target.url))
    await asyncio.sleep(_BEFORE_S)
    return ways


async def _judged(
    cluster: ReplaceableCluster, load: NamespaceLoad, nodes: int, ways: list[_Way]
) -> Replacement:
    await asyncio.to_thread(load.stop)
    first, began_s, over_s = ways[0], ways[0].asked_s, ways[-1].over_s
    meanwhile = load.within(began_s, over_s + _BEFORE_S)
    return Replacement(
        nodes=nodes,
        total_s=first.over_s - began_s,
        freeze_s=round(max(way.freeze_s for way in ways), 3),
        copy_s=first.phases_ms["copying"] / 1000,
        longest_write_s=max((each.took_s for each in meanwhile), default=0.0),
        acknowledged=len(load.within(began_s, over_s)),
        lost=[
            *await load.lost(cluster.target.url),
            *await missing(cluster.target.url, nodes),
        ],
        refused=load.answers,
        phases_ms=first.phases_ms,
        freezes_s=[round(way.freeze_s, 3) for way in ways],
        holds_ms=[way.hold_ms for way in ways],
    )


async def _there(admin: AdminClient, target: str) -> _Way:
    asked_s = time.time()
    while True:
        try:
            await admin.metadata_migration.start({"target": target})
        except AdminConflict:
            # After a way back somebody may still have to let go of the target.
            if time.time() - asked_s > _START_S_MAX:
                raise
            await asyncio.sleep(_LOOK_S)
        else:
            return await _way(admin, "freezing", "switched", asked_s)


async def _back(admin: AdminClient) -> _Way:
    asked_s = time.time()
    await admin.metadata_migration.ask("rollback")
    return await _way(admin, "refreezing", "rolled back", asked_s)


async def _way(admin: AdminClient, held: str, over: str, asked_s: float) -> _Way:
    found: dict[str, Any] = {}
    while found.get("phase") != over:
        await asyncio.sleep(_LOOK_S)
        found = await admin.metadata_migration.status()
        if found["error"] or time.time() - asked_s > _WHOLE_S_MAX:
            raise ServerFailed(f"{found['phase']}: {found['error']}")
    begun_ms = _begun_ms(found["trail"])
    held_s, over_s = begun_ms[held] / 1000, begun_ms[over] / 1000
    return _Way(asked_s, held_s, over_s, _phases_ms(begun_ms), held)


def _begun_ms(trail: list[dict[str, Any]]) -> dict[str, int]:
    """When each phase of an attempt began, by the wall clock of who drove."""
    begun: dict[str, int] = {}
    for line in trail:
        begun.setdefault(line["phase"], line["at_ms"])
    return begun


def _phases_ms(begun_ms: dict[str, int]) -> dict[str, int]:
    phases = pairwise(begun_ms.items())
    return {name: later - begun for (name, begun), (_, later) in phases}
