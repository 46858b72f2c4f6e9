"""A copy of a store that follows it: everything once, and then what has changed since.

The operation's own documents are never copied, nor are nodes of sessions. Where changes were
missed, both trees are laid side by side; so does a copy go on that another driver began.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError, ConflictError
from anabranch.metadata.announced import OPERATIONS, stays_behind
from anabranch.metadata.paths import ROOT, parent_of
from anabranch.metadata.store import EventKind, MetadataStore, Record, Revision
from anabranch.metadata.transfer.comparing import arrived, compare
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.ordering import Sorting
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.resting import Rests, with_rests
from anabranch.migrations.engine.bulk import BulkEngine, CompareWishes, StorePlace
from anabranch.migrations.freeze_copy.converging import (
    Converging,
    InTurns,
    Predecessor,
    turns,
    with_parents,
)
from anabranch.migrations.freeze_copy.limits import DIFFERENCE_LOOKS_MAX, READ_AT_ONCE_S
from anabranch.runtime import Runtime
from anabranch.telemetry import get_logger

_ABOVE_OURS: Final = parent_of(OPERATIONS)
"""A node that every target has: the operation's own documents are below it."""
_log: Final = get_logger("migrations")
OnNodes = Callable[[int, int], None]
"""Told nodes and bytes so far."""


def _unheard(nodes: int, size_bytes: int) -> None:
    """For what nobody counts."""


@dataclass(frozen=True, slots=True)
class End:
    """One of the two stores."""

    url: str
    store: MetadataStore
    again: Callable[[], Awaitable[MetadataStore]] | None = None
    """Opens it once more, for a session that ends with what it is for."""

    @property
    def keeping(self) -> Keeping:
        """What it holds of a record."""
        return keeping_of(self.url)


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a copy is made."""

    nodes_per_s: float | None = None
    """Without a rate, most of the time is left to others."""
    drop_acls: bool = False
    sorting_folder: str = field(default_factory=tempfile.gettempdir)
    compared_by: BulkEngine | None = None
    """Who compares everything; None: this process, by the handles it has, which finds the same."""


class Tail:
    """One direction of copying."""

    def __init__(
        self,
        runtime: Runtime,
        source: End,
        target: End,
        wishes: Wishes,
        check: Callable[[], None] = lambda: None,
        back_since: Revision | None = None,
    ) -> None:
        """`check` is called before each write; it raises `Fenced` once another one may write.

        With `back_since`, `source` has replaced `target` in that moment of its history.
        """
        self._check = check
        self._runtime = runtime
        self._source = source
        self._target = target
        self._wishes = wishes
        self._converging = Converging(
            source.store,
            target.store,
            target.keeping,
            check,
            drop_acls=wishes.drop_acls,
            passing=target.again,
            back_to=None if back_since is None else Predecessor(source.keeping, back_since),
        )
        self._sorting = Sorting(runtime, wishes.sorting_folder)
        self.in_a_hurry = False
        """Whether somebody waits for what is done next: then it does not rest."""
        self._missed = False
        """Whether the store did not tell all its changes when it was last asked."""
        # A store tells what has changed only if somebody reads along.
        self._reading = [source.store.watch("/")]
        self._at: Revision | None = None
        self._there_at: Revision | None = None
        """Up to where it is known what was changed in the target, by this copy or by others."""
        self._disturbed: dict[str, None] = {}
        """What was changed there since it was compared."""
        self._is_blind = False
        """Whether it is not known what was changed there since a comparison began."""
        self._touched: dict[str, None] | None = None
        """What was changed since `verify` began; None: not asked for."""
        self.complete = False
        """Whether everything was copied at least once."""
        self.compared = False
        """Whether everything was the same once, and what was changed since is known."""

    @property
    def copied_until(self) -> Revision:
        """Up to where all that was written to the source is in the target."""
        assert self._at is not None, "call `copy` first"
        return self._at

    # --- everything ---------------------------------------------------------------------------

    async def copy(self, on_nodes: OnNodes) -> None:
        """Copy all that is missing or different, and remove what is not in the source.

        Raises:
            ConflictError: if the target cannot hold a node.
        """
        if self._at is None:
            self._at = await self._source.store.revision()
        self._check()
        if await self._is_empty():
            await self._target.store.restore(self._paced(on_nodes))
            # It was there already, and where a store counts children it has a counter.
            await self._converging.converge([_ABOVE_OURS])
        else:
            await self._reconcile(on_nodes, Pace(self._wishes.nodes_per_s), self._rests())
        self.complete = True

    async def _is_empty(self) -> bool:
        names = await self._target.store.children(ROOT)
        for name in names:
            path = f"/{name}"
            below = await self._target.store.children(path)
            if path != _ABOVE_OURS or below != ["migrations"]:
                return False
        node = await self._target.store.get(ROOT)
        return node is None or not node.value

    def _rests(self) -> Rests | None:
        return Rests() if self._wishes.nodes_per_s is None and not self.in_a_hurry else None

    async def _lasting(self, end: End, rests: Rests | None) -> AsyncIterator[Record]:
        async for record in with_rests(end.store.export(ROOT), rests, self._runtime.clock):
            if record.session is None and not stays_behind(record.path):
                yield record

    async def _paced(self, on_nodes: OnNodes) -> AsyncIterator[Record]:
        pace = Pace(self._wishes.nodes_per_s)
        keeping, nodes, size_bytes = self._target.keeping, 0, 0
        async for record in self._lasting(self._source, self._rests()):
            if (why := keeping.why_not(record)) is not None:
                raise ConflictError(f"{record.path} cannot be copied: {why}")
            if record.path == _ABOVE_OURS:
                continue
            if self._wishes.drop_acls and not keeping.access and record.access:
                record = record._replace(access=())
            self._check()
            yield record
            nodes, size_bytes = nodes + 1, size_bytes + len(record.value)
            if nodes % limits.METADATA_PAGE_NODES_MAX == 0:
                on_nodes(nodes, size_bytes)
            await self._keep_to(pace)
        on_nodes(nodes, size_bytes)

    async def _keep_to(self, pace: Pace) -> None:
        """One more node was read."""
        if pace.is_limited:
            delay_s = pace.take(self._runtime.clock.monotonic_s(), 0)
            if delay_s > 0:
                await asyncio.sleep(delay_s)

    async def _slow_turns(self, paths: Sequence[str]) -> AsyncIterator[Sequence[str]]:
        rate = self._wishes.nodes_per_s
        if rate is None:
            async for some in turns(paths):
                yield some
            return
        pace = Pace(rate)
        at_once = min(max(1, int(rate * READ_AT_ONCE_S)), limits.METADATA_COPY_READS_MAX)
        async for some in turns(paths, at_once):
            yield some
            for _ in some:
                await self._keep_to(pace)

    async def _slowed(self, records: AsyncIterator[Record], pace: Pace) -> AsyncIterator[Record]:
        async for record in records:
            yield record
            await self._keep_to(pace)

    async def _reconcile(self, on_nodes: OnNodes, pace: Pace, rests: Rests | None) -> None:
        """Lay both trees side by side and mend what differs."""
        some: dict[str, None] = {}
        async for path in self._differences(on_nodes, pace, rests):
            some[path] = None
            if len(some) >= limits.METADATA_PAGE_NODES_MAX:
                await self._converging.converge(some)
                some.clear()
        await self._converging.converge(some)

    async def _differences(
        self, on_nodes: OnNodes, pace: Pace, rests: Rests | None
    ) -> AsyncIterator[str]:
        source, target = self._source, self._target
        read = self._slowed(self._lasting(source, rests), pace)
        left = self._sorting.in_path_order(read, source.keeping)
        right = self._sorting.in_path_order(self._lasting(target, rests), target.keeping)
        # Where they wait in memory or in files, they have to be put side by side yet.
        left, right = (with_rests(each, rests, self._runtime.clock) for each in (left, right))
        nodes = 0
        async for found in compare(
            left, right, keepings=(source.keeping, target.keeping), content_only=False
        ):
            nodes += 1
            on_nodes(nodes, 0)
            if found.path == ROOT and found.left is None:
                continue
            left_one, right_one = found.left, found.right
            if left_one is None:
                await self._keep_to(pace)
            if (
                left_one is None
                or right_one is None
                or not arrived(left_one, right_one, target.keeping, overwritten=False)
            ):
                yield found.path

    # --- what has changed -----------------------------------------------------------------------

    async def catch_up(self, *, hurries: bool = True) -> int:
        """Copy what has changed since the last call; returns how many paths that were.

        Unless it hurries, it reads as slowly as was asked for.
        """
        assert self._at is not None, "call `copy` first"
        store = self._source.store
        now = await store.revision()
        changed: dict[str, None] = {}
        missed = False
        async for event in store.changed_since(self._at):
            if event.kind is EventKind.GAP:
                missed = True
            elif not stays_behind(event.path):
                changed[event.path] = None
        if missed:
            # At no rate: as much may be missed meanwhile. Writes may be waiting for it, too.
            rests = None if hurries or self._missed else self._rests()
            await self._reconcile(_unheard, Pace(), rests)
        self._missed = missed
        paths = with_parents(changed)
        if self._touched is not None:
            self._touched.update(paths)
        await self._converging.converge(paths, turns if hurries else self._slow_turns)
        self._at = now
        await self._notice_others()
        return len(changed)

    async def _notice_others(self) -> None:
        """Look what was changed in the target: a write that came late may have undone something.

        It may be of a driver that was replaced, or of a process that was left behind. What this
        copy wrote is among it.
        """
        if self._there_at is None:
            return  # nothing was compared that could have been undone
        store = self._target.store
        now = await store.revision()
        async for event in store.changed_since(self._there_at):
            if event.kind is EventKind.GAP:
                self._is_blind, self.compared = True, False
            elif not stays_behind(event.path):
                self._disturbed[event.path] = None
        self._there_at = now

    # --- whether it is the same -----------------------------------------------------------------

    async def verify(self) -> None:
        """Compare everything, while the source is being written.

        Raises:
            ConflictError: naming a node that is not what it should be, and did not change.
        """
        self._touched, self._disturbed = {}, {}
        self._is_blind = False
        if self._there_at is None:
            # Not before: to be told of all that is copied would cost more than to copy it.
            self._reading.append(self._target.store.watch("/"))
        self._there_at = await self._target.store.revision()
        doubtful: dict[str, None] = {}
        async for path in self._doubtful():
            doubtful[path] = None
        if doubtful:
            # Most of them were only being written, or are counted in another way.
            await self.catch_up(hurries=False)
            for path in await self._differ(doubtful, self._slow_turns):
                await self._settle(path)
        self.compared = not self._is_blind

    async def _doubtful(self) -> AsyncIterator[str]:
        """Paths that may differ; each is looked at again by whoever asks.

        An engine reads both stores by handles of its own, and writes nothing. If it fails, or finds
        more than it can name, everything is laid side by side here.
        """
        engine = self._wishes.compared_by
        if engine is not None:
            wishes = CompareWishes(nodes_per_s=self._wishes.nodes_per_s)
            places = StorePlace(self._source.url), StorePlace(self._target.url)
            try:
                found = await engine.compare(*places, wishes=wishes)
            except AnabranchError as error:
                _log.warning("comparing here", because=str(error))
            else:
                if sum(found.counts.values()) == len(found.mismatches):
                    _log.info(
                        "compared_by_an_engine",
                        nodes=found.nodes_left,
                        nodes_of_the_copy=found.nodes_right,
                        doubtful=len(found.mismatches),
                    )
                    for mismatch in found.mismatches:
                        if not stays_behind(mismatch.path):
                            yield mismatch.path
                    return
        pace, rests = Pace(self._wishes.nodes_per_s), self._rests()
        async for path in self._differences(_unheard, pace, rests):
            yield path

    async def _settle(self, path: str) -> None:
        assert self._touched is not None
        for _ in range(DIFFERENCE_LOOKS_MAX):
            await self.catch_up(hurries=False)
            if (why := await self._converging.difference(path)) is None:
                return
            if path not in self._touched:
                raise ConflictError(f"{path} {why}, and nobody has changed it meanwhile")
        self._touched[path] = None  # written all the time: compared when nobody writes any more

    async def verify_touched(self, *, some_write: bool = False) -> None:
        """Compare what was changed since `verify` began. Nobody may write to the source.

        With `some_write`, others may all the same: what they have changed since the last look is
        left to whoever looks for it later.

        Raises:
            ConflictError: naming a node that is not what it should be, or if it is not known
                what was changed.
        """
        if self._is_blind:
            raise ConflictError("the store that is written did not tell all that was changed in it")
        differ = await self._differ(self._all_touched())
        being_written = await self._changed_since_then() if some_write and differ else {}
        for path, why in differ.items():
            if path not in being_written:
                raise ConflictError(f"{path} {why}, although nobody writes to either any more")
        self._touched, self._disturbed = {}, {}

    async def _changed_since_then(self) -> dict[str, None]:
        """What was changed in the source since the last changes were copied."""
        found = self._source.store.changed_since(self.copied_until)
        return with_parents([event.path async for event in found])

    async def look_again(self) -> None:
        """Compare what was changed since `verify` began, so that less is left for later.

        What is the same need not be compared again, unless it is changed again.
        """
        differ = await self._differ(self._all_touched(), self._slow_turns)
        self._touched, self._disturbed = dict.fromkeys(differ), {}

    def _all_touched(self) -> dict[str, None]:
        return {**(self._touched or {}), **self._disturbed}

    async def _differ(self, paths: Iterable[str], in_turns: InTurns = turns) -> dict[str, str]:
        """Which of some nodes are not the same, and why."""
        found: dict[str, str] = {}
        async for some in in_turns(list(paths)):
            whys = await asyncio.gather(*map(self._converging.difference, some))
            found.update((path, why) for path, why in zip(some, whys, strict=True) if why)
        return found
