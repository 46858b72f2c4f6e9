"""Drill of bulk work on metadata: large trees copied and compared by Spark between real servers.

    python -m anabranch.testing.spark_metadata_drill --nodes 1000000 --copy-s 180 --compare-s 30
    python -m anabranch.testing.spark_metadata_drill --nodes 10000000 --from oxia --to oxia \
        --value-bytes 50 --fill-both

A tree is copied, a second copy must write nothing, and a comparison must find nothing; with
`--fill-both` both trees are made, and nothing is copied. Then three
nodes are made others, and digests of parts must lead to exactly these by reading three parts again
at most; then seven more, and a comparison must find exactly ten, each by its kind. `--copy-s` and
`--compare-s` bound how long the first copy and the comparisons of equal trees may take. The verdict
is JSON; exit code 0 says that all this was so.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.metadata.factory import open_store
from anabranch.migrations.engine.bulk import (
    BulkEngine,
    CompareResult,
    CompareWishes,
    Mismatch,
    StorePlace,
)
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each, made_tree
from anabranch.testing.servers.oxia import oxia
from anabranch.testing.servers.zookeeper import zookeeper
from anabranch.testing.stopping import run_program
from pyspark_anabranch.jobs.spark_bulk import SparkBulk
from pyspark_anabranch.session import spark_session

NODES_MIN: Final = 200
_ALL: Final = 10
_FIRST: Final = 3
_BY_DIGEST: Final = CompareWishes(by_digest=True)
_KINDS: Final = (Mismatch.DIFFERS, Mismatch.MISSING, Mismatch.EXTRA)
_SESSION_TIMEOUT_S: Final = 30.0
_SERVERS: Final = ("zookeeper", "oxia")
_MEMORY: Final = ("-Xmx4g",)
_SETTINGS: Final = {"maxSessionTimeout": "40000"}
"""As ensembles usually have it: with so many nodes a server may stand still for seconds."""


def planned_differences(nodes: int) -> list[tuple[str, Mismatch]]:
    """Ten places all over a made tree, and how its copy is to differ there."""
    # Above the topics are the root and one node for each thousand of them.
    topics = (nodes - nodes // 4000 - 6) // 4
    found = []
    for number in range(_ALL):
        topic = (2 * number + 1) * topics // (2 * _ALL)
        kind = _KINDS[number % len(_KINDS)]
        name = "stray" if kind is Mismatch.EXTRA else "cursor-1"
        path = f"/namespace-{topic // 1000:05}/topic-{topic % 1000:04}/{name}"
        found.append((path, kind))
    # The first three are far from each other, too.
    return [*found[::4], *(one for at, one in enumerate(found) if at % 4)]


@dataclass(slots=True)
class Work:
    """Everything that is done with one tree and its copy."""

    engine: BulkEngine
    left: StorePlace
    right: StorePlace
    nodes: int
    copies: bool = True
    """Otherwise both trees are made, and only compared."""
    figures: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    async def run(self, value_bytes: int) -> None:
        """Do it; the stores are empty before."""
        await self._fill(self.left, value_bytes)
        if self.copies:
            await self._copy()
        else:
            await self._fill(self.right, value_bytes)
        await self._compare("compare_s", CompareWishes(), [])
        await self._compare("digests_s", _BY_DIGEST, [])
        planned = planned_differences(self.nodes)
        await self._differ(planned[:_FIRST])
        found = await self._compare("digests_with_3_s", _BY_DIGEST, planned[:_FIRST])
        self.figures["buckets"] = found.buckets
        self.figures["buckets_read_again"] = found.buckets_read_again
        if found.buckets_read_again > _FIRST:
            self.violations.append(
                f"{found.buckets_read_again} of {found.buckets} parts were read again"
            )
        await self._differ(planned[_FIRST:])
        await self._compare("compare_with_10_s", CompareWishes(), planned)

    async def _fill(self, place: StorePlace, value_bytes: int) -> None:
        store = await open_store(place.url, real_runtime(), session_timeout_s=_SESSION_TIMEOUT_S)
        try:
            began_s = time.monotonic()
            tree = made_tree(self.nodes, value_bytes)
            next(tree)  # the root, which every store has
            await store.restore(each(tree))
            self._took("fill_s", began_s)
        finally:
            await store.close()

    async def _copy(self) -> None:
        began_s = time.monotonic()
        done = await self.engine.copy(self.left, self.right)
        self._took("copy_s", began_s)
        # The root is a node of its own in some stores, and is there in all others.
        if self.nodes - done.copied not in (0, 1):
            self.violations.append(f"{done.copied} nodes were copied, not {self.nodes}")
        began_s = time.monotonic()
        again = await self.engine.copy(self.left, self.right)
        self._took("copy_again_s", began_s)
        if again.copied:
            self.violations.append(f"{again.copied} nodes were copied again")

    async def _compare(
        self, name: str, wishes: CompareWishes, planned: Sequence[tuple[str, Mismatch]]
    ) -> CompareResult:
        began_s = time.monotonic()
        found = await self.engine.compare(self.left, self.right, wishes=wishes)
        self._took(name, began_s)
        if min(found.nodes_left, found.nodes_right) < self.nodes - 1:
            self.violations.append(f"{name}: {found.nodes_left} and {found.nodes_right} were read")
        # A store may count changed children of a node, which is then another one, too.
        seen = {(one.path, one.kind) for one in found.mismatches if one.fields != ("sequence",)}
        for path, kind in sorted(set(planned) - seen):
            self.violations.append(f"{name}: {path} was not found to be {kind.value}")
        for path, kind in sorted(seen - set(planned)):
            self.violations.append(f"{name}: {path} is said to be {kind.value}")
        return found

    async def _differ(self, planned: Sequence[tuple[str, Mismatch]]) -> None:
        store = await open_store(
            self.right.url, real_runtime(), session_timeout_s=_SESSION_TIMEOUT_S
        )
        try:
            for path, kind in planned:
                if kind is Mismatch.MISSING:
                    await store.delete(path)
                else:
                    await store.put(path, b"another")
        finally:
            await store.close()

    def _took(self, name: str, began_s: float) -> None:
        self.figures[name] = round(time.monotonic() - began_s, 1)
        print(f"{name}: {self.figures[name]}", file=sys.stderr, flush=True)


def verdict_of(work: Work, copy_s: float | None, compare_s: float | None) -> dict[str, Any]:
    """What came of it, and whether it was fast enough."""
    slow = [
        f"{name} is {work.figures[name]}, more than {most}"
        for name, most in (("copy_s", copy_s), ("compare_s", compare_s), ("digests_s", compare_s))
        if most is not None and work.figures.get(name, 0) > most
    ]
    return {
        "drill": "spark metadata",
        "nodes": work.nodes,
        "figures": work.figures,
        "violations": [*work.violations, *slow],
    }


def main(arguments: Sequence[str]) -> int:
    """Run the drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.spark_metadata_drill")
    add = parser.add_argument
    add("--nodes", type=int, default=1_000_000, help="default: %(default)s")
    add("--from", dest="source", choices=_SERVERS, default="zookeeper")
    add("--to", dest="target", choices=_SERVERS, default="zookeeper")
    add("--value-bytes", type=int, default=500, help="in each node (default: %(default)s)")
    add("--fill-both", action="store_true", help="make both trees, and copy nothing")
    add("--copy-s", type=float, default=None, help="seconds for the first copy, at most")
    add("--compare-s", type=float, default=None, help="seconds for a comparison, at most")
    add("--master", default="local[2,4]")
    asked = parser.parse_args(arguments)
    if asked.nodes < NODES_MIN:
        parser.error(f"at least {NODES_MIN} nodes are needed")
    with ExitStack() as held:
        urls = []
        for kind in (asked.source, asked.target):
            if kind == "oxia":
                urls.append(held.enter_context(oxia()).url)
            else:
                server = zookeeper(memory=_MEMORY, settings=_SETTINGS)
                urls.append(held.enter_context(server).url)
        spark = spark_session(asked.master, {"spark.log.level": "ERROR"})
        held.callback(spark.stop)
        left, right = map(StorePlace, urls)
        work = Work(SparkBulk(spark), left, right, asked.nodes, not asked.fill_both)
        asyncio.run(work.run(asked.value_bytes))
    verdict = verdict_of(work, asked.copy_s, asked.compare_s)
    print(json.dumps(verdict, indent=1))
    return 1 if verdict["violations"] else 0


if __name__ == "__main__":
    run_program(main)
