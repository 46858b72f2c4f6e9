"""The job `inventory`: which ledgers bookies have, who needs them, which nobody does.

Ledgers are listed before names are: one that was being created has its name by then, or is young.
Nothing is removed here. What is found is a table; whoever removes ledgers looks at each again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from anabranch.errors import InputError
from anabranch.ledgers.addresses import parse_bookkeeper
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.managed_ledger.references import KNOWN_MAKERS, NAMING_ROOTS
from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.migrations.engine.bulk_places import opened
from anabranch.migrations.engine.under_way import operation_under_way
from anabranch.runtime.real import real_runtime
from pyspark_anabranch.jobs.contract import Outcome, PlanStep, StepWatch
from pyspark_anabranch.jobs.inventory_rows import (
    Inventory,
    JudgedLedger,
    Kind,
    LedgerRow,
    NameRow,
    largest,
)
from pyspark_anabranch.jobs.inventory_tasks import ListLedgers, ListNames, LookAgain, Looking, Proof
from pyspark_anabranch.jobs.job_state import JobState, kept_state
from pyspark_anabranch.jobs.part_runs import Kept, PartCount, each_part, share_of
from pyspark_anabranch.jobs.tree_parts import NOTHING, TreePart, cut, is_shared
from pyspark_anabranch.limits import (
    INVENTORY_AGE_S_MIN,
    INVENTORY_SHOWN_MAX,
    PARTS_PER_CORE,
    SIZES_SHOWN_MAX,
    SUSPECTS_PER_TASK,
)

_TABLE_FILE: Final = "ledgers.parquet"
_MAKERS: Final = tuple(maker.decode() for maker in KNOWN_MAKERS)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What an inventory looks through."""

    registry: StorePlace
    naming: tuple[StorePlace, ...]
    paths: LedgerPaths
    ledger_parts: list[TreePart]
    name_parts: list[list[TreePart]]
    """For each of `naming`."""


@dataclass(slots=True)
class LedgerInventory:
    """Takes stock of the ledgers on bookies."""

    ledgers: str
    """`bookkeeper:zk:HOST:PORT/CHROOT`: where the bookies register."""
    metadata: str = ""
    """The store in which topics name ledgers; empty if it is the same."""
    age_s_min: float = INVENTORY_AGE_S_MIN
    """A ledger that is younger may be about to be named."""
    nodes_per_s: float | None = None
    table: Path | None = None
    """A folder for the whole table, as Parquet."""
    credentials: Credentials = NO_CREDENTIALS
    keep: Path | None = None
    """Where to keep what is done, for a run that goes on if this one is ended."""
    name: str = field(default="inventory", init=False)

    def plan(self, spark: SparkSession) -> Sequence[PlanStep]:
        """See `Job.plan`."""
        ground = asyncio.run(self._ground(spark))
        named = " and ".join(place.name for place in ground.naming)
        roots = " and ".join(NAMING_ROOTS)
        names = sum(map(len, ground.name_parts))
        where = f"{ground.registry.name}, {ground.paths.root} and below"
        return [
            PlanStep("ledgers", f"ledgers that exist: {where}", len(ground.ledger_parts), "parts"),
            PlanStep("names", f"what names ledgers: {named}, {roots} and below", names, "parts"),
            PlanStep("again", "a second look at what seems unused", 0, "ledgers"),
        ]

    def run(
        self, spark: SparkSession, watches: Mapping[str, StepWatch]
    ) -> tuple[Outcome, Mapping[str, Any]]:
        """See `Job.run`."""
        registry, root = parse_place(self.ledgers, self.metadata)
        of = {"ledgers": registry.name, "root": root, "metadata": StorePlace(self.metadata).name}
        with kept_state(self.keep, self.name, of) as state:
            return asyncio.run(_Taking(self, spark, watches, state).result())

    async def _ground(self, spark: SparkSession) -> _Ground:
        registry, root = parse_place(self.ledgers, self.metadata)
        metadata = StorePlace(self.metadata) if self.metadata else registry
        # Where bookies register in a store of their own, topics may name ledgers there as well.
        naming = (metadata,) if metadata == registry else (metadata, registry)
        for place in naming:
            if not is_shared(place):
                raise InputError(
                    f"{place.name} is the store of one process, which the workers of Spark cannot "
                    "share: use anabranch ledgers ls --orphans"
                )
        wanted = PARTS_PER_CORE * spark.sparkContext.defaultParallelism
        runtime = real_runtime()
        async with AsyncExitStack() as held:
            stores = [
                await held.enter_async_context(opened(place, runtime, self.credentials))
                for place in (registry, *naming)
            ]
            found = await LedgerRegistry.open(stores[0], runtime, root)
            ledger_parts = await cut(stores[:1], root, wanted)
            name_parts = [
                [part for root in NAMING_ROOTS for part in await cut([store], root, wanted)]
                for store in stores[1:]
            ]
        return _Ground(registry, naming, found.paths, ledger_parts, name_parts)


def parse_place(url: str, otherwise: str = "") -> tuple[StorePlace, str]:
    """Where bookies register, and below which node.

    Raises:
        ConfigError: if the URL is wrong.
        InputError: if it does not say so.
    """
    address = parse_bookkeeper(url)
    registry = address.metadata_url or otherwise
    if not url.startswith("bookkeeper:") or not registry:
        raise InputError(f"{url!r} does not say where bookies register: bookkeeper:zk:HOST:PORT")
    return StorePlace(registry), address.root


class _Taking:
    """One run of the job."""

    def __init__(
        self,
        job: LedgerInventory,
        spark: SparkSession,
        watches: Mapping[str, StepWatch],
        state: JobState,
    ) -> None:
        self._job = job
        self._spark = spark
        self._watches = watches
        self._state = state
        self._began_ms = real_runtime().clock.wall_ms()

    async def result(self) -> tuple[Outcome, Mapping[str, Any]]:
        ground = await self._job._ground(self._spark)
        ledgers = await self._listed(ground)
        names = await self._named(ground)
        found = Inventory.of(ledgers, names)
        doubt = found.doubt() or await self._under_way(ground)
        before_ms = self._began_ms - round(self._job.age_s_min * 1000)
        found.judge(before_ms, _MAKERS, doubt)
        await self._prove(ground, found)
        if self._job.table is not None:
            _write_table(self._job.table, found, self._began_ms)
        return _outcome(found, doubt), self._as_json(found, doubt)

    async def _listed(self, ground: _Ground) -> list[LedgerRow]:
        parts = _some(ground.ledger_parts)
        task = ListLedgers(self._looking(ground.registry, len(parts)), ground.paths)
        kept = Kept(self._state, "ledgers", list, _ledgers_of_json)
        told = _counting(self._watches["ledgers"], len(parts))
        rows = await each_part(self._spark, task, parts, told.one_more, kept)
        return [row for part in rows for row in part]

    async def _named(self, ground: _Ground) -> list[NameRow]:
        found = []
        total = sum(len(_some(parts)) for parts in ground.name_parts)
        told = _counting(self._watches["names"], total)
        for number, (place, parts) in enumerate(zip(ground.naming, ground.name_parts, strict=True)):
            kept = Kept(self._state, f"names-{number}", list, _names_of_json)
            some = _some(parts)
            task = ListNames(self._looking(place, len(some)))
            rows = await each_part(self._spark, task, some, told.one_more, kept)
            found += [row for part in rows for row in part]
        return found

    async def _under_way(self, ground: _Ground) -> str:
        """Whether the metadata are being moved, so that names may be elsewhere."""
        for place in ground.naming:
            async with opened(place, real_runtime(), self._job.credentials) as store:
                if words := await operation_under_way(store):
                    return f"{place.name}: {words}"
        return ""

    async def _prove(self, ground: _Ground, found: Inventory) -> None:
        """Look again at every orphan; one that is named by now, or gone, was none."""
        suspects = [
            (each.row.ledger_id, each.row.key, each.row.made_for)
            for each in found.of_kind(Kind.ORPHAN)
        ]
        suspects.sort(key=lambda each: each[1:])
        groups = [
            tuple(suspects[at : at + SUSPECTS_PER_TASK])
            for at in range(0, len(suspects), SUSPECTS_PER_TASK)
        ]
        naming = tuple(self._looking(place, len(groups)) for place in ground.naming)
        task = LookAgain(self._looking(ground.registry, len(groups)), naming, ground.paths)
        told = _counting(self._watches["again"], len(groups))
        proofs = await each_part(self._spark, task, groups, told.one_more)
        by_id = {proof.ledger_id: proof for some in proofs for proof in some}
        proven = (_proven(each, by_id.get(each.row.ledger_id)) for each in found.judged)
        found.judged = [each for each in proven if each is not None]

    def _looking(self, place: StorePlace, parts: int) -> Looking:
        share = share_of(self._job.nodes_per_s, self._spark, parts)
        return Looking(place, self._job.credentials, share)

    def _as_json(self, found: Inventory, doubt: str) -> dict[str, Any]:
        return {
            "whole": found.whole.as_json(),
            "counts": found.counts(),
            "doubt": doubt,
            "namespaces": largest(found.namespaces(), "namespace", SIZES_SHOWN_MAX),
            "topics": largest(found.topics, "topic", SIZES_SHOWN_MAX),
            "orphans": [
                _orphan_json(each, self._began_ms)
                for each in found.of_kind(Kind.ORPHAN)[:INVENTORY_SHOWN_MAX]
            ],
            "missing": [
                {"ledger": name.ledger_id, "named_by": name.user}
                for name in found.missing[:INVENTORY_SHOWN_MAX]
            ],
            "unreadable": [
                {"ledger": each.row.ledger_id, "reason": each.row.problem}
                for each in found.of_kind(Kind.UNREADABLE)[:INVENTORY_SHOWN_MAX]
            ],
        }


def _counting(watch: StepWatch, parts: int) -> PartCount:
    count = PartCount(lambda done, total: watch.tell(done, total, "parts"))
    count.expect(parts)
    return count


def _some(parts: Sequence[TreePart]) -> list[TreePart]:
    return [part for part in parts if part != NOTHING]


def _ledgers_of_json(rows: list[list[Any]]) -> list[LedgerRow]:
    return [LedgerRow(*row) for row in rows]


def _names_of_json(rows: list[list[Any]]) -> list[NameRow]:
    return [NameRow(*row) for row in rows]


def _proven(each: JudgedLedger, proof: Proof | None) -> JudgedLedger | None:
    """The same after a second look; None if it is gone."""
    if proof is None:
        return each
    return None if proof.kind is None else JudgedLedger(each.row, proof.kind, proof.words)


def _outcome(found: Inventory, doubt: str) -> Outcome:
    if doubt:
        return Outcome.INCOMPLETE
    counts = found.counts()
    wrong = counts[Kind.ORPHAN] or counts[Kind.UNREADABLE] or counts["missing"]
    return Outcome.FOUND if wrong else Outcome.CLEAN


def _orphan_json(each: JudgedLedger, now_ms: int) -> dict[str, Any]:
    row = each.row
    return {
        "ledger": row.ledger_id,
        "state": row.state,
        "entries": row.entries,
        "bytes": row.size_bytes,
        "age_s": (now_ms - row.created_ms) // 1000,
        "maker": row.maker,
        "made_for": row.made_for,
        "proof": each.proof,
    }


def _write_table(folder: Path, found: Inventory, now_ms: int) -> None:
    """The whole inventory, one row for each ledger that exists or is missed."""
    rows = [
        {
            **_orphan_json(each, now_ms),
            "kind": each.kind.value,
            "named_by": [name.user for name in found.names.get(each.row.ledger_id, ())],
        }
        for each in found.judged
    ]
    rows += [
        {"ledger": name.ledger_id, "kind": "missing", "named_by": [name.user]}
        for name in found.missing
    ]
    schema = pa.schema(
        [
            ("ledger", pa.int64()), ("kind", pa.string()), ("state", pa.string()),
            ("entries", pa.int64()), ("bytes", pa.int64()), ("age_s", pa.int64()),
            ("maker", pa.string()), ("made_for", pa.string()), ("proof", pa.string()),
            ("named_by", pa.list_(pa.string())),
        ]
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{_TABLE_FILE}.new"
    pq.write_table(pa.Table.from_pylist(rows, schema), beside)
    beside.replace(folder / _TABLE_FILE)
