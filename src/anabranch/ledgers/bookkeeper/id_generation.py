"""Ledger ids drawn as BookKeeper and Pulsar draw theirs, so that nobody gets one twice.

Short ids come from `idgen`. Once these are used up, or `idgen-long` is there for another reason,
ids have an upper half, the largest `HOB-<n>` below it, and a lower one drawn from that node. How a
node numbers those who draw from it depends on the store, and there is no asking the store which
way others go: the caller says it.

An id whose answer was lost is never used. Ids have gaps, and rise for each who draws them.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConflictError,
    OutcomeUnknown,
    SessionExpired,
)
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.id_forms import SHORT_ID_MAX
from anabranch.metadata.counters import Numbering
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.runtime import Runtime

_CHILD: Final = "ID-"
_UPPER_NAME: Final = re.compile(r"HOB-([0-9]{10})")
_UPPER_MAX: Final = 2**31 - 1
T = TypeVar("T")


class SharedLedgerIds:
    """Draws ledger ids from the generator that a cluster's Java clients use too."""

    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        *,
        numbering: Numbering,
        paths: LedgerPaths | None = None,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._numbering = numbering
        self._paths = paths or LedgerPaths()
        self._made: dict[str, None] = {}

    async def next(self) -> int:
        """Return an id above every one drawn here before, and that nobody else gets.

        Raises:
            ConflictError: if all ids are used up.
            OutcomeUnknown: if answers were lost again and again.
            Unreachable: if there is no connection to the store.
        """
        if not await self._store.exists(self._paths.long_ids):
            short = await self._draw(self._paths.short_ids)
            if _is_half(short):
                return short
        upper = await self._largest_upper()
        if upper is None:
            upper = await self._make_upper(1)
        lower = await self._draw(self._upper_path(upper))
        while not _is_half(lower):
            upper = await self._make_upper(max(upper + 1, await self._largest_upper() or 0))
            lower = await self._draw(self._upper_path(upper))
        return upper << 32 | lower

    async def issued_below(self) -> int:
        """Every id that anybody ever drew is below this one."""
        upper = await self._largest_upper()
        if upper is not None:
            return upper << 32 | await self._drawn_below(self._upper_path(upper))
        return await self._drawn_below(self._paths.short_ids)

    async def raise_floor(self, floor: int) -> None:
        """Make every id from now on at least `floor`, whoever draws it.

        A floor near by is reached by drawing what is below it, one far away by turning to ids with
        an upper half. A client of BookKeeper that runs already may not notice the turn: have none.

        Raises:
            ConflictError: if there are no ids above the floor.
        """
        below = await self.issued_below()
        if below >= floor:
            return
        if floor - below <= limits.LEDGER_ID_FLOOR_DRAWS_MAX:
            while await self.next() < floor - 1:
                pass
        else:
            await self._make_upper(-(-floor >> 32))

    # --- drawing ------------------------------------------------------------------------------

    async def _draw(self, path: str) -> int:
        await self._make(path)
        if self._numbering is Numbering.BY_CHANGES:
            stat = await self._persist(lambda: self._store.put(path, b""))
            return stat.version.native
        prefix = f"{path}/{_CHILD}"
        # Ephemeral: what is left of an unanswered request goes with the session.
        stat = await self._persist(
            lambda: self._store.put(prefix, b"", ephemeral=True, sequential=True)
        )
        # The number is drawn in any case, and a node that stays goes with the session.
        with suppress(AnabranchError):
            await self._store.delete(stat.path)
        return int(stat.path[len(prefix) :])

    async def _drawn_below(self, path: str) -> int:
        """Above every number drawn from a node."""
        if self._numbering is Numbering.BY_CHANGES:
            node = await self._store.get(path)
            return 0 if node is None else node.stat.version.native + 1
        record = await self._store.record(path)
        return 0 if record is None else record.next_sequence

    # --- nodes --------------------------------------------------------------------------------

    async def _make(self, path: str) -> None:
        """Make sure that a node is there that stays, whoever draws from it."""
        if path in self._made:
            return
        with suppress(BadVersion):
            await self._persist(lambda: self._store.put(path, b"", ABSENT))
        self._made[path] = None

    async def _make_upper(self, upper: int) -> int:
        if upper > _UPPER_MAX:
            raise ConflictError(f"all ledger ids below {self._paths.root} are used up")
        await self._make(self._paths.long_ids)
        await self._make(self._upper_path(upper))
        return upper

    async def _largest_upper(self) -> int | None:
        names = await self._store.children(self._paths.long_ids)
        uppers = [int(found[1]) for name in names if (found := _UPPER_NAME.fullmatch(name))]
        return max(uppers, default=None)

    def _upper_path(self, upper: int) -> str:
        return f"{self._paths.long_ids}/HOB-{upper:010d}"

    async def _persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write again after a lost answer: whatever the first one drew, nobody uses."""
        delay_s = limits.UPDATE_BACKOFF_S_MIN
        for tries_left in range(limits.LEDGER_ID_TRIES_MAX - 1, -1, -1):
            try:
                return await write()
            except (OutcomeUnknown, SessionExpired):
                if not tries_left:
                    raise
            await asyncio.sleep(self._runtime.entropy.uniform(delay_s / 2, delay_s))
            delay_s = min(delay_s * 2, limits.UPDATE_BACKOFF_S_MAX)
        raise AssertionError("the last try returns or raises")


def _is_half(number: int) -> bool:
    """Whether a number that was drawn is an id or half of one; ZooKeeper's turn negative."""
    return 0 <= number <= SHORT_ID_MAX
