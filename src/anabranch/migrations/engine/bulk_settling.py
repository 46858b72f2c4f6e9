"""Second looks at what two trees that may be written to seemed to differ in.

A path is judged by two looks, a pause apart, that show the same. One whose nodes come out the same
is settled; one that shows something new every time is somebody's work in progress.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.comparing import Difference, Kind, compare
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.migrations.engine.bulk import CompareResult, Mismatch, TreeMismatch
from anabranch.migrations.engine.limits import (
    LOOK_AGAIN_S,
    LOOKS_AT_ONCE_MAX,
    LOOKS_MAX,
    MISMATCHES_SHOWN_MAX,
)

_KINDS = {
    Kind.ONLY_LEFT: Mismatch.MISSING,
    Kind.ONLY_RIGHT: Mismatch.EXTRA,
    Kind.DIFFERS: Mismatch.DIFFERS,
}


class Settling:
    """Takes the differences of a comparison one by one, and says at the end what they were."""

    def __init__(
        self,
        left: MetadataStore,
        right: MetadataStore,
        keepings: tuple[Keeping, Keeping],
        *,
        ephemerals: bool = False,
    ) -> None:
        self._left = left
        self._right = right
        self._keepings = keepings
        self._ephemerals = ephemerals
        self.doubtful: list[Difference] = []
        """As they were when they were last looked at."""
        self._counts: Counter[Mismatch] = Counter()
        self._mismatches: list[TreeMismatch] = []
        self._settled = 0

    async def add(self, difference: Difference) -> None:
        """One more."""
        if len(self._mismatches) >= MISMATCHES_SHOWN_MAX:
            # These trees are no copies of each other: nobody wants to look at all of it twice.
            self._counts[_KINDS[difference.kind]] += 1
            return
        self.doubtful.append(difference)
        if len(self.doubtful) >= LOOKS_AT_ONCE_MAX:
            await self._settle()

    async def result(self, nodes_left: int, nodes_right: int) -> CompareResult:
        """What is left when everything was looked at again."""
        await self._settle()
        return CompareResult(
            nodes_left,
            nodes_right,
            dict(self._counts),
            tuple(sorted(self._mismatches)),
            self._settled,
        )

    async def _settle(self) -> None:
        for look in range(LOOKS_MAX):
            if not self.doubtful:
                return
            await self._pause(look)
            found = await asyncio.gather(*(self._look(before.path) for before in self.doubtful))
            moving: list[Difference] = []
            for before, now in zip(self.doubtful, found, strict=True):
                if now is None:
                    self._settled += 1
                elif (now.left, now.right) == (before.left, before.right):
                    self._report(now.path, _KINDS[now.kind], now.fields)
                else:
                    moving.append(now)
            self.doubtful = moving
        for difference in self.doubtful:
            self._report(difference.path, Mismatch.CHANGED, ())
        self.doubtful = []

    async def _pause(self, look: int) -> None:
        # Before the first, too: two looks at once are one, and a copy may be about to follow.
        await asyncio.sleep(LOOK_AGAIN_S * 2**look)

    def _report(self, path: str, kind: Mismatch, fields: tuple[str, ...]) -> None:
        self._counts[kind] += 1
        if len(self._mismatches) < MISMATCHES_SHOWN_MAX:
            self._mismatches.append(TreeMismatch(path, kind, fields))

    async def _look(self, path: str) -> Difference | None:
        ours, theirs = await asyncio.gather(self._left.record(path), self._right.record(path))
        async for difference in compare(
            _one(ours), _one(theirs), keepings=self._keepings, ephemerals=self._ephemerals
        ):
            return difference
        return None


async def _one(record: Record | None) -> AsyncIterator[Record]:
    if record is not None:
        yield record


def together(results: Sequence[CompareResult]) -> CompareResult:
    """The result of a whole tree from those of its parts."""
    counts: Counter[Mismatch] = Counter()
    for result in results:
        counts.update(result.counts)
    mismatches = sorted(found for result in results for found in result.mismatches)
    return CompareResult(
        sum(result.nodes_left for result in results),
        sum(result.nodes_right for result in results),
        dict(counts),
        tuple(mismatches[:MISMATCHES_SHOWN_MAX]),
        sum(result.settled for result in results),
        sum(result.buckets for result in results),
        sum(result.buckets_read_again for result in results),
    )
