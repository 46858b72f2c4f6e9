"""What a task of a bulk job does with its part of a tree: it opens the stores by itself.

Errors come back as values: raised within a task they would end as a page of Spark's.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from anabranch.errors import (
    AnabranchError,
    ConflictError,
    FormatError,
    InputError,
    NotFound,
    OutcomeUnknown,
)
from anabranch.metadata.credentials import Credentials
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.catching_up import CatchingUp
from anabranch.metadata.transfer.digest import Summing
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.transfer.survey import paced
from anabranch.migrations.engine.bulk import CompareWishes, CopyResult, CopyWishes, StorePlace
from anabranch.migrations.engine.bulk_local import refuse_what_cannot_be, side_by_side
from anabranch.migrations.engine.bulk_places import opened, tree_of
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from pyspark_anabranch.jobs.tree_parts import TreePart

T = TypeVar("T")
_CARRIED: Final = (
    ConflictError,
    InputError,
    NotFound,
    OutcomeUnknown,
    FormatError,
    AnabranchError,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that a task met."""

    kind: int
    detail: str

    def error(self) -> AnabranchError:
        """The same error again."""
        return _CARRIED[self.kind](self.detail)


@dataclass(frozen=True, slots=True)
class Between:
    """Two stores, and how they are opened."""

    left: StorePlace
    right: StorePlace
    credentials: Credentials

    async def within(
        self,
        work: Callable[[Runtime, MetadataStore, MetadataStore], Awaitable[T]],
        *,
        writes: bool = False,
    ) -> T:
        """Do something with both stores open."""
        runtime = real_runtime()
        async with (
            opened(self.left, runtime, self.credentials) as ours,
            opened(self.right, runtime, self.credentials, only_look=not writes) as theirs,
        ):
            return await work(runtime, ours, theirs)

    def attempt(
        self,
        work: Callable[[Runtime, MetadataStore, MetadataStore], Awaitable[T]],
        *,
        writes: bool = False,
    ) -> T | Failure:
        """The same in a process that has no event loop yet."""
        return attempted(self.within(work, writes=writes))


def attempted(work: Coroutine[Any, Any, T]) -> T | Failure:
    """Do something in a process that has no event loop yet; an error comes back as a value."""
    try:
        return asyncio.run(work)
    except AnabranchError as error:
        kind = next(at for at, kind in enumerate(_CARRIED) if isinstance(error, kind))
        return Failure(kind, str(error))


@dataclass(frozen=True, slots=True)
class Survey:
    """Refuses what the target cannot hold, before anything is written; counts access rights."""

    between: Between
    wishes: CopyWishes

    def __call__(self, part: TreePart) -> int | Failure:
        """Do it for one part."""

        async def work(runtime: Runtime, ours: MetadataStore, theirs: MetadataStore) -> int:
            left, right = self.between.left, self.between.right
            closed = 0
            for tree in (
                NodesAlone(ours, left, part.alone),
                *(tree_of(ours, left, path, runtime) for path in part.below),
            ):
                with suppress(NotFound):  # it may be in the target alone
                    closed += await refuse_what_cannot_be(tree, right, theirs, self.wishes)
            return closed

        return self.between.attempt(work)


class NodesAlone(StoreSource):
    """Some nodes of a store, without what is below them."""

    def __init__(self, store: MetadataStore, place: StorePlace, paths: Sequence[str]) -> None:
        keeping = replace(keeping_of(place.url), path_order=True)  # that of `paths`
        super().__init__(store, place.url, ROOT, keeping)
        self._paths = paths

    async def records(self) -> AsyncIterator[Record]:
        """See `RecordSource.records`."""
        for path in self._paths:
            if (record := await self._store.record(path)) is not None:
                yield record

    def outlines(self) -> AsyncIterator[Record]:
        """See `RecordSource.outlines`."""
        return self.records()


@dataclass(frozen=True, slots=True)
class CopyPart:
    """Brings a part of the target up to the source."""

    between: Between
    wishes: CopyWishes
    closes: bool = True
    """Whether nodes get their own rights, which may shut out the tasks of other parts."""

    def __call__(self, part: TreePart) -> CopyResult | Failure:
        """Do it for one part."""

        async def work(runtime: Runtime, ours: MetadataStore, theirs: MetadataStore) -> CopyResult:
            left, right = self.between.left, self.between.right
            catching_up = CatchingUp(
                runtime.clock,
                theirs,
                keeping_of(left.url),
                keeping_of(right.url),
                self.wishes.overwrite,
                self.wishes.drop_acls,
                self.wishes.nodes_per_s,
                closes=self.closes,
            )
            done = await catching_up.run(
                part.records(ours, left, runtime), part.records(theirs, right, runtime)
            )
            return CopyResult(
                done.nodes, done.copied, done.overwritten, done.ephemerals, done.versions_changed
            )

        return self.between.attempt(work, writes=True)


@dataclass(frozen=True, slots=True)
class ComparePart:
    """Lays a part of two trees side by side."""

    between: Between
    wishes: CompareWishes

    def __call__(self, part: TreePart) -> Any:
        """Do it for one part."""

        async def work(runtime: Runtime, ours: MetadataStore, theirs: MetadataStore) -> Any:
            left, right = self.between.left, self.between.right
            trees = (part.records(ours, left, runtime), part.records(theirs, right, runtime))
            return await side_by_side((ours, theirs), trees, (left, right), runtime, self.wishes)

        return self.between.attempt(work)


@dataclass(frozen=True, slots=True)
class PartDigests:
    """What a part is on both sides, in a few bytes."""

    left: tuple[int, int]
    """Nodes, and the sum of their hashes."""
    right: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DigestPart:
    """Makes digests of a part that are the same if the right one is a copy of the left one."""

    between: Between
    wishes: CompareWishes

    def __call__(self, part: TreePart) -> PartDigests | Failure:
        """Do it for one part."""

        async def work(runtime: Runtime, ours: MetadataStore, theirs: MetadataStore) -> PartDigests:
            keepings = keeping_of(self.between.left.url), keeping_of(self.between.right.url)
            counters = all(keeping.sequences for keeping in keepings)
            sums = []
            for store, place in ((ours, self.between.left), (theirs, self.between.right)):
                summing = Summing()
                records = part.records(store, place, runtime)
                rate = self.wishes.nodes_per_s
                async for record in paced(records, runtime.clock, rate, None, lambda *_: None):
                    kept = record if store is theirs else as_copied(record, keepings[1])
                    summing.add(kept if counters else kept._replace(next_sequence=0))
                sums.append((summing.nodes, summing.digest.exact))
            return PartDigests(*sums)

        return self.between.attempt(work)


def as_copied(record: Record, keeping: Keeping) -> Record:
    """A record as a store has it after a copy."""
    version = keeping.version_after(record)
    return record if version == record.native_version else record._replace(native_version=version)
