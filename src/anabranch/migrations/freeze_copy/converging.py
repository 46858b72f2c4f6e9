"""Makes single nodes of one store what they are in another, while nobody else writes to it.

A node that has no children is removed and restored, with its version, times, indexes and counter.
One that has children stays and is written over: where the store counts a node's changes one by one,
so often that the count is the same, if that is not too often.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConflictError,
    Fenced,
    NotEmpty,
    NotFound,
    Unreachable,
)
from anabranch.limits import METADATA_COPY_READS_MAX
from anabranch.metadata.announced import stays_behind
from anabranch.metadata.paths import ROOT, join, order_key, parent_of
from anabranch.metadata.store import ABSENT, Expected, MetadataStore, Record, Revision
from anabranch.metadata.transfer.comparing import arrived
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.present_nodes import PASSED, issue_numbers
from anabranch.migrations.engine.retries import may_pass
from anabranch.migrations.freeze_copy.limits import (
    READ_AGAIN_S,
    READ_TRIES_MAX,
    REPEATED_WRITES_MAX,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Predecessor:
    """Of the store that is read: the one that is written now was copied to it."""

    keeping: Keeping
    """What the store that is read holds of a record."""
    left_at: Revision
    """The moment in the history of the store that is read in which it came into use instead."""


@dataclass(slots=True)
class _Work:
    """What is to be done to some paths."""

    remove: list[str] = field(default_factory=list)
    restore: list[Record] = field(default_factory=list)
    write_over: list[tuple[Record, Record]] = field(default_factory=list)
    """As it should be, and as it is."""
    counters: list[Record] = field(default_factory=list)


class Converging:
    """From one store to another."""

    def __init__(
        self,
        source: MetadataStore,
        target: MetadataStore,
        keeping: Keeping,
        check: Callable[[], None],
        *,
        drop_acls: bool,
        passing: Callable[[], Awaitable[MetadataStore]] | None = None,
        back_to: Predecessor | None = None,
    ) -> None:
        """Begin.

        Args:
            source: read.
            target: written.
            keeping: what the target holds of a record.
            check: called right before each write, so that a driver which was stopped and replaced
                meanwhile sends none; raises `Fenced` then.
            drop_acls: whether access rights that the target cannot hold are left out.
            passing: opens the target once more, to pass over numbers: whatever is left of that
                goes with its session. Without it they are passed over by `target` itself.
            back_to: if `target` was copied to `source` before. A node whose version did not come
                along then keeps it, as long as nobody has changed it: callers may have it still.
        """
        self._back_to = back_to
        self._check = check
        self._source = source
        self._target = target
        self._keeping = keeping
        self._drops_acls = drop_acls and not keeping.access
        self._passing = passing
        self._unclean: dict[str, None] = {}
        """Below them numbers were passed over, and nodes that hold some may be left."""

    async def converge(self, paths: Iterable[str], in_turns: "InTurns | None" = None) -> int:
        """Make some nodes the same; returns how many were not.

        `in_turns` says which of them are read at a time, and when.

        Raises:
            Unreachable: if somebody else writes to the target.
            InputError: if the target cannot hold one.
        """
        wanted = sorted({path for path in paths if not stays_behind(path)}, key=order_key)
        await self._sweep()
        work = _Work()
        async for some in (in_turns or turns)(wanted):
            await asyncio.gather(*(self._look(path, work) for path in some))
        for _, level in groupby(sorted(work.remove, key=_depth, reverse=True), key=_depth):
            await _side_by_side(self._remove, list(level))
        if work.restore:
            await self._restore(sorted(work.restore, key=lambda record: order_key(record.path)))
        await _side_by_side(self._write_over, work.write_over)
        for record in work.counters:
            await self._raise_counter(record)
        return len(work.remove) + len(work.restore) + len(work.write_over) + len(work.counters)

    async def difference(self, path: str) -> str | None:
        """In what a node of the target is not what it should be, in words; None if it is."""
        if stays_behind(path):
            return None
        record, there = await self._both(path)
        if record is None:
            return None if there is None or path == ROOT else "is in the target only"
        if there is None:
            return "is missing in the target"
        if arrived(record, there, self._keeping, overwritten=False):
            return None
        if await self._is_parent(path) and arrived(record, there, self._keeping, overwritten=True):
            return None
        return "is not the same in the target"

    async def _both(self, path: str) -> tuple[Record | None, Record | None]:
        record, there = await asyncio.gather(
            read(lambda: self._source.record(path)), read(lambda: self._target.record(path))
        )
        if record is not None and record.session is not None:
            record = None  # whoever owns it makes it anew
        if there is not None and there.session is not None:
            there = None
        if record is not None and self._drops_acls and record.access:
            record = record._replace(access=())
        if record is not None and there is not None and await self._lost_version(record, there):
            record = record._replace(native_version=there.native_version)
        return record, there

    async def _lost_version(self, record: Record, there: Record) -> bool:
        """Whether a version is another one only because it could not be kept on the way here."""
        came = self._back_to
        if (
            came is None
            or came.keeping.native_version_max is None
            or came.keeping.keeps_version(there)
            or came.keeping.version_after(there) != record.native_version
        ):
            return False
        node = await read(lambda: self._source.get(record.path))
        return node is not None and node.stat.revision <= came.left_at

    async def _is_parent(self, path: str) -> bool:
        return path == ROOT or bool(await read(lambda: self._target.children(path)))

    async def _look(self, path: str, work: _Work) -> None:
        record, there = await self._both(path)
        if record is None:
            if there is not None and path != ROOT:
                work.remove.append(path)
            return
        if (why := self._keeping.why_not(record)) is not None:
            raise ConflictError(f"{path} cannot be copied: {why}")
        if there is None:
            work.restore.append(record)
            return
        if arrived(record, there, self._keeping, overwritten=False):
            return
        if not await self._is_parent(path):
            work.remove.append(path)
            work.restore.append(record)
            return
        if not arrived(record, there._replace(next_sequence=record.next_sequence), self._keeping,
                       overwritten=not self._counts_changes):  # fmt: skip
            work.write_over.append((record, there))
        if there.next_sequence < record.next_sequence:
            work.counters.append(record)

    @property
    def _counts_changes(self) -> bool:
        """Whether a version is how often a node was written."""
        return not self._keeping.sequences_count_as_versions

    async def _restore(self, records: list[Record]) -> None:
        try:
            await self._target.restore(self._each(records))
        except Fenced:
            raise
        except ConflictError as error:
            # A request that nobody waits for any more was served after the target was looked at.
            raise Unreachable(f"a node came into the target meanwhile: {error}") from error

    async def _each(self, records: list[Record]) -> AsyncIterator[Record]:
        for record in records:
            self._check()
            yield record

    async def _remove(self, path: str) -> None:
        node = await self._target.get(path)
        if node is None:
            return
        self._check()
        with _as_it_was(path):
            try:
                await self._target.delete(path, node.stat.version)
            except NotFound:
                return
            except NotEmpty:
                return  # what is below it goes when its turn comes, and then it

    async def _write_over(self, pair: tuple[Record, Record]) -> None:
        record, there = pair
        wanted = self._keeping.version_after(record)
        times = wanted - there.native_version if self._counts_changes else 1
        if not 1 <= times <= REPEATED_WRITES_MAX:
            times = 1
        path = record.path
        node = await self._target.get(path)
        expected: Expected = ABSENT if node is None else node.stat.version
        with _as_it_was(path):
            for _ in range(times):
                self._check()
                stat = await self._target.put(path, record.value, expected, indexes=record.indexes)
                expected = stat.version

    async def _raise_counter(self, record: Record) -> None:
        while True:
            there = await self._target.record(record.path)
            if there is None:
                raise ConflictError(f"somebody deleted {record.path} from the target meanwhile")
            missing = record.next_sequence - there.next_sequence
            if missing <= 0:
                return
            await self._pass_over(record.path, missing)

    async def _pass_over(self, path: str, count: int) -> None:
        if self._passing is not None:
            by = await self._passing()
            try:
                self._check()
                await issue_numbers(by, path, count)
            finally:
                await by.close()
            return
        self._unclean[path] = None
        self._check()
        await issue_numbers(self._target, path, count)
        del self._unclean[path]

    async def _sweep(self) -> None:
        """Remove what an unanswered request left of numbers that were passed over."""
        for path in list(self._unclean):
            for name in await self._target.children(path):
                if name.startswith(PASSED):
                    node = await self._target.get(join(path, name))
                    if node is not None and node.stat.created_by_self:
                        await self._remove(node.stat.path)
            del self._unclean[path]


async def _side_by_side(do: Callable[[T], Awaitable[None]], work: Sequence[T]) -> None:
    """Do what is independent, some at a time: each takes as long as a store takes to sync.

    Raises:
        AnabranchError: that of the first that failed, once none of them is under way any more.
    """
    for start in range(0, len(work), METADATA_COPY_READS_MAX):
        some = work[start : start + METADATA_COPY_READS_MAX]
        for outcome in await asyncio.gather(*map(do, some), return_exceptions=True):
            if outcome is not None:
                raise outcome


def _depth(path: str) -> int:
    return path.count("/")


InTurns = Callable[[Sequence[str]], AsyncIterator[Sequence[str]]]


async def turns(
    paths: Sequence[str], at_once: int = METADATA_COPY_READS_MAX
) -> AsyncIterator[Sequence[str]]:
    """Some of the paths at a time, until all had their turn."""
    for start in range(0, len(paths), at_once):
        yield paths[start : start + at_once]


async def read(ask: Callable[[], Awaitable[T]]) -> T:
    """Read something, and again if no answer came.

    Many nodes are read before one is written: with one answer in a hundred lost, a copy that began
    anew for each of them would never end.
    """
    for tries in range(READ_TRIES_MAX - 1):
        try:
            return await ask()
        except AnabranchError as error:
            if not may_pass(error):
                raise
        await asyncio.sleep(READ_AGAIN_S * 2**tries)
    return await ask()


@contextmanager
def _as_it_was(path: str) -> Iterator[None]:
    """A write counts only for what was seen before it: one that comes late changes nothing."""
    try:
        yield
    except BadVersion as error:
        raise Unreachable(f"{path} was changed in the target meanwhile: {error}") from error


def with_parents(paths: Iterable[str]) -> dict[str, None]:
    """Paths, and those above them whose counters may have risen with them."""
    found: dict[str, None] = {}
    for path in paths:
        if path != ROOT:
            found[parent_of(path)] = None
        found[path] = None
    return found
