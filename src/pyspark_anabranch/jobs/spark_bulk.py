"""The bulk engine of Spark: parts of a tree are copied and compared by tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError, ConflictError, InputError, NotFound
from anabranch.metadata.access_rights import tell_open
from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials
from anabranch.metadata.paths import check_path
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.metadata.transfer.open_copies import OpenCopy
from anabranch.migrations.engine.bulk import (
    PLAIN_COMPARISON,
    PLAIN_COPY,
    CompareResult,
    CompareWishes,
    CopyResult,
    CopyWishes,
    OnNodes,
    StorePlace,
    compare_result_of,
    no_news,
)
from anabranch.migrations.engine.bulk_local import may_refuse, told_while_open
from anabranch.migrations.engine.bulk_places import opened
from anabranch.migrations.engine.bulk_settling import together
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from pyspark_anabranch.jobs.bulk_tasks import (
    Between,
    ComparePart,
    CopyPart,
    DigestPart,
    PartDigests,
    Survey,
)
from pyspark_anabranch.jobs.job_state import JobState
from pyspark_anabranch.jobs.part_runs import (
    Kept,
    OnParts,
    PartCount,
    each_part,
    no_parts,
    share_of,
)
from pyspark_anabranch.jobs.tree_parts import NOTHING, TreePart, cut, is_shared
from pyspark_anabranch.limits import PARTS_PER_CORE


class SparkBulk:
    """See `BulkEngine`. Stores are reached by their URLs, from wherever tasks run."""

    def __init__(
        self,
        spark: SparkSession,
        credentials: Credentials = NO_CREDENTIALS,
        state: JobState | None = None,
        on_parts: OnParts = no_parts,
    ) -> None:
        """What is done is kept in `state`, and not done again by whoever goes on with it.

        `on_parts` is told how many parts are done; a part that is looked at twice counts twice.
        """
        self._spark = spark
        self._credentials = credentials
        self._state = state
        self._on_parts = on_parts

    async def copy(
        self,
        source: StorePlace,
        target: StorePlace,
        prefix: str = "/",
        wishes: CopyWishes = PLAIN_COPY,
        on_nodes: OnNodes = no_news,
    ) -> CopyResult:
        """See `BulkEngine.copy`."""
        between = self.between(source, target)
        parts = await self.parts(between, prefix)
        surveys = may_refuse(keeping_of(source.url), keeping_of(target.url), wishes)
        count = PartCount(self._on_parts)
        count.expect(_real(parts) * (2 if surveys else 1))
        closed = 0
        if surveys:
            found = sum(await self._each(Survey(between, wishes), parts, count.one_more))
            closed = found if keeping_of(target.url).access else 0
        rest = parts[1:]
        wishes = replace(wishes, nodes_per_s=share_of(wishes.nodes_per_s, self._spark, len(rest)))
        done: list[CopyResult] = []

        def note(result: CopyResult) -> None:
            done.append(result)
            count.one_more()
            on_nodes(sum(part.nodes for part in done))

        async with self._told_while_open(source, target, prefix, closed):
            await self._copy_parts(between, wishes, parts, note, prefix if closed else None)
        total = CopyResult(
            sum(part.nodes for part in done),
            sum(part.copied for part in done),
            sum(part.overwritten for part in done),
            sum(part.ephemerals for part in done),
            sum(part.versions_changed for part in done),
        )
        if not total.nodes and not total.ephemerals:
            raise NotFound(f"{source.name} has nothing at or below {prefix}")
        on_nodes(total.nodes)
        return total

    async def _copy_parts(
        self,
        between: Between,
        wishes: CopyWishes,
        parts: Sequence[TreePart],
        note: Callable[[CopyResult], None],
        opened_below: str | None,
    ) -> None:
        """Copy the nodes above all parts, then the parts; parents come before children.

        Where nodes have access rights, `opened_below` says so: those above stay open until all
        that is below them is there, or has failed.
        """
        above, rest = parts[:1], parts[1:]
        close_above = CopyPart(between, wishes)
        try:
            await self._each(replace(close_above, closes=False), above, note)
            kept = self._kept("copy", asdict, _copied_of_json)
            await self._each(CopyPart(between, wishes), rest, note, kept)
            if keeping_of(between.right.url).access:
                await self._each(close_above, above, lambda _: None)
        except (ConflictError, InputError) as error:
            if opened_below is not None:
                try:
                    await self._each(close_above, above, lambda _: None)
                except AnabranchError as reason:
                    remedy = f"they could not be closed ({reason}): set their rights"
                    tell_open(error, opened_below, remedy)
            raise
        except (Exception, asyncio.CancelledError) as error:
            if opened_below is not None:
                tell_open(error, opened_below, "the same once more goes on and closes them")
            raise

    @asynccontextmanager
    async def _told_while_open(
        self, source: StorePlace, target: StorePlace, prefix: str, closed: int
    ) -> AsyncIterator[None]:
        """As `told_while_open`, for a target that nobody has open here."""
        if not closed:
            yield
            return
        runtime = real_runtime()
        copy = OpenCopy(source.name, prefix, runtime.clock.wall_ms())
        async with (
            opened(target, runtime, self._credentials, only_look=False) as store,
            told_while_open(store, copy, closed),
        ):
            yield

    async def compare(
        self,
        left: StorePlace,
        right: StorePlace,
        prefix: str = "/",
        wishes: CompareWishes = PLAIN_COMPARISON,
        on_nodes: OnNodes = no_news,
    ) -> CompareResult:
        """See `BulkEngine.compare`."""
        if wishes.by_digest and wishes.ephemerals:
            raise InputError("ephemeral nodes are in no digest: compare them side by side")
        between = self.between(left, right)
        found = await self.parts(between, prefix)
        parts = [part for part in found if part != NOTHING]
        wishes = replace(wishes, nodes_per_s=share_of(wishes.nodes_per_s, self._spark, len(parts)))
        buckets = len(parts) if wishes.by_digest else 0
        same: list[CompareResult] = []
        count = PartCount(self._on_parts)
        count.expect(len(parts))
        if wishes.by_digest:
            kept_digests = self._kept("digests", asdict, _digests_of_json)
            digests = await self._each(
                DigestPart(between, wishes), parts, count.one_more, kept_digests
            )
            doubtful = [is_doubtful(digest) for digest in digests]
            same = [
                CompareResult(digest.left[0], digest.right[0], {}, ())
                for digest, doubt in zip(digests, doubtful, strict=True)
                if not doubt
            ]
            parts = [part for part, doubt in zip(parts, doubtful, strict=True) if doubt]
            count.expect(len(parts))
        seen = sum(result.nodes_left for result in same)

        def note(result: CompareResult) -> None:
            nonlocal seen
            count.one_more()
            seen += result.nodes_left
            on_nodes(seen)

        kept = self._kept("compare", CompareResult.as_json, compare_result_of)
        compared = await self._each(ComparePart(between, wishes), parts, note, kept)
        on_nodes(seen)
        again = len(parts) if buckets else 0
        return replace(together([*same, *compared]), buckets=buckets, buckets_read_again=again)

    def between(self, left: StorePlace, right: StorePlace) -> Between:
        """Two stores as tasks reach them.

        Raises:
            InputError: if they cannot.
        """
        for place in (left, right):
            if place.store is not None or place.url.startswith("memory:"):
                raise InputError(f"{place.name} is in this process: workers of Spark cannot see it")
        return Between(left, right, self._credentials)

    async def parts(self, between: Between, prefix: str) -> list[TreePart]:
        """How the work is cut; the first part has the nodes above all others."""
        check_path(prefix)
        if not (is_shared(between.left) and is_shared(between.right)):
            return [NOTHING, TreePart((), (prefix,))]
        wanted = PARTS_PER_CORE * self._spark.sparkContext.defaultParallelism

        async def work(
            runtime: Runtime, ours: MetadataStore, theirs: MetadataStore
        ) -> list[TreePart]:
            return await cut((ours, theirs), prefix, wanted)

        return await between.within(work)

    async def _each(
        self,
        task: Callable[[TreePart], Any],
        parts: Sequence[TreePart],
        note: Callable[[Any], None],
        kept: Kept[Any] | None = None,
    ) -> list[Any]:
        """Do something for all parts."""
        parts = [part for part in parts if part != NOTHING]
        return await each_part(self._spark, task, parts, note, kept)

    def _kept(
        self, step: str, as_json: Callable[[Any], Any], of_json: Callable[[Any], Any]
    ) -> Kept[Any] | None:
        return None if self._state is None else Kept(self._state, step, as_json, of_json)


def _real(parts: Sequence[TreePart]) -> int:
    """How many parts there is work for."""
    return sum(part != NOTHING for part in parts)


def _copied_of_json(fields: dict[str, int]) -> CopyResult:
    return CopyResult(**fields)


def _digests_of_json(fields: dict[str, list[int]]) -> PartDigests:
    nodes_left, sum_left = fields["left"]
    nodes_right, sum_right = fields["right"]
    return PartDigests((nodes_left, sum_left), (nodes_right, sum_right))


def is_doubtful(digests: PartDigests) -> bool:
    """Whether a part has to be read again."""
    return digests.left != digests.right
