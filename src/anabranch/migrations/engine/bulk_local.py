"""Bulk work in this process: one stream per tree, in bounded memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.catching_up import CatchingUp
from anabranch.metadata.transfer.comparing import compare
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.open_copies import Announcement, OpenCopy
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.rights_last import HoldsRights
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.transfer.survey import PROGRESS_NODES, survey
from anabranch.migrations.engine.bulk import (
    PLAIN_COMPARISON,
    PLAIN_COPY,
    CompareResult,
    CompareWishes,
    CopyResult,
    CopyWishes,
    OnNodes,
    StorePlace,
    no_news,
)
from anabranch.migrations.engine.bulk_places import opened, or_nothing, tree_of
from anabranch.migrations.engine.bulk_settling import Settling
from anabranch.runtime import Clock, Runtime


class LocalBulk:
    """See `BulkEngine`."""

    def __init__(self, runtime: Runtime, credentials: Credentials = NO_CREDENTIALS) -> None:
        self._runtime = runtime
        self._credentials = credentials

    async def copy(
        self,
        source: StorePlace,
        target: StorePlace,
        prefix: str = "/",
        wishes: CopyWishes = PLAIN_COPY,
        on_nodes: OnNodes = no_news,
    ) -> CopyResult:
        """See `BulkEngine.copy`."""
        keeping = keeping_of(target.url)
        async with (
            opened(source, self._runtime, self._credentials) as ours,
            opened(target, self._runtime, self._credentials, only_look=False) as theirs,
        ):
            tree = tree_of(ours, source, prefix, self._runtime)
            closed = 0
            if may_refuse(keeping_of(source.url), keeping, wishes):
                closed = await refuse_what_cannot_be(tree, target, theirs, wishes)
            begun_ms = self._runtime.clock.wall_ms()
            async with told_while_open(theirs, OpenCopy(source.name, prefix, begun_ms), closed):
                done = await CatchingUp(
                    self._runtime.clock,
                    theirs,
                    keeping_of(source.url),
                    keeping,
                    wishes.overwrite,
                    wishes.drop_acls,
                    wishes.nodes_per_s,
                    on_nodes,
                ).run(
                    tree.records(),
                    or_nothing(tree_of(theirs, target, prefix, self._runtime).records()),
                )
        return CopyResult(
            done.nodes, done.copied, done.overwritten, done.ephemerals, done.versions_changed
        )

    async def compare(
        self,
        left: StorePlace,
        right: StorePlace,
        prefix: str = "/",
        wishes: CompareWishes = PLAIN_COMPARISON,
        on_nodes: OnNodes = no_news,
    ) -> CompareResult:
        """See `BulkEngine.compare`. Everything is laid side by side, whatever is wished."""
        async with (
            opened(left, self._runtime, self._credentials) as ours,
            opened(right, self._runtime, self._credentials) as theirs,
        ):
            return await side_by_side(
                (ours, theirs),
                (
                    tree_of(ours, left, prefix, self._runtime).records(),
                    tree_of(theirs, right, prefix, self._runtime).records(),
                ),
                (left, right),
                self._runtime,
                wishes,
                on_nodes,
            )


def may_refuse(source: Keeping, target: Keeping, wishes: CopyWishes) -> bool:
    """Whether a target of some kind may be unable to hold what a source of some kind has."""
    return target.refuses_some or (source.access and not target.access and not wishes.drop_acls)


async def refuse_what_cannot_be(
    tree: StoreSource, target: StorePlace, store: MetadataStore, wishes: CopyWishes
) -> int:
    """Look through a tree before anything of it is written; how many nodes have access rights.

    Raises:
        InputError: if there are nodes that the target cannot hold.
        NotFound: if there is nothing.
    """
    keeping = keeping_of(target.url)
    found = await survey(
        tree,
        None,
        keeping,
        digest=False,
        rights=store if isinstance(store, HoldsRights) else None,
        may_be_there=wishes.overwrite,
    )
    found.refuse_impossible()
    if not keeping.access and not wishes.drop_acls:
        found.refuse_acls()
    return found.acls


@asynccontextmanager
async def told_while_open(
    target: MetadataStore, copy: OpenCopy, closed: int
) -> AsyncIterator[None]:
    """Leave word of a copy while nodes that are to be closed may be open; it stays after a failure.

    Raises:
        InputError: if somebody else made the same copy, and it has not ended.
    """
    if not closed or not isinstance(target, HoldsRights):
        yield
        return
    announcement = Announcement(target.open_notes, copy)
    await announcement.make()
    yield
    await announcement.withdraw()


async def side_by_side(
    stores: tuple[MetadataStore, MetadataStore],
    trees: tuple[AsyncIterator[Record], AsyncIterator[Record]],
    places: tuple[StorePlace, StorePlace],
    runtime: Runtime,
    wishes: CompareWishes,
    on_nodes: OnNodes = no_news,
) -> CompareResult:
    """Compare the same part of two open stores, which come in path order."""
    keepings = (keeping_of(places[0].url), keeping_of(places[1].url))
    settling = Settling(*stores, keepings, ephemerals=wishes.ephemerals)
    pace = _CommonPace(runtime.clock, wishes.nodes_per_s)
    ours = _Counted(trees[0], pace, wishes, on_nodes)
    theirs = _Counted(trees[1], pace, wishes, no_news)
    async for difference in compare(
        ours.records(), theirs.records(), keepings=keepings, ephemerals=wishes.ephemerals
    ):
        await settling.add(difference)
    on_nodes(ours.nodes)
    return await settling.result(ours.nodes, theirs.nodes)


class _CommonPace:
    """How fast two trees are read that are read side by side: a node of both is waited for once."""

    def __init__(self, clock: Clock, nodes_per_s: float | None) -> None:
        self._clock = clock
        self._pace = Pace(nodes_per_s)
        self._farthest = 0

    async def rest(self, read: int) -> None:
        """So many nodes of one of the trees were read."""
        if read <= self._farthest:
            return
        self._farthest = read
        delay_s = self._pace.take(self._clock.monotonic_s(), 0)
        if delay_s > 0:
            await asyncio.sleep(delay_s)


class _Counted:
    """Records that are counted as they go by, not faster than wished."""

    def __init__(
        self,
        records: AsyncIterator[Record],
        pace: _CommonPace,
        wishes: CompareWishes,
        on_nodes: OnNodes,
    ) -> None:
        self._records = or_nothing(records)
        self._pace = pace
        self._ephemerals = wishes.ephemerals
        self._on_nodes = on_nodes
        self._read = 0
        self.nodes = 0

    async def records(self) -> AsyncIterator[Record]:
        async for record in self._records:
            self._read += 1
            if record.session is None or self._ephemerals:
                self.nodes += 1
                if self.nodes % PROGRESS_NODES == 0:
                    self._on_nodes(self.nodes)
            yield record
            await self._pace.rest(self._read)
