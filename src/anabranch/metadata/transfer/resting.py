"""Reading a large store in a process that serves others: they get a share of the time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from anabranch.metadata.store import Record
from anabranch.runtime import Clock

TURN_NODES: Final = 64
"""Read in one go, which takes some milliseconds."""
TURN_S_MAX: Final = 0.5
"""So much of a turn counts at most: who waited for a store for a minute does not rest for three."""
REST_PER_TURN: Final = 3
"""How long a rest is, as a multiple of the turn before it. At 1, publishing took five times as long
in the 99th percentile while a store was replaced on a machine that all servers shared."""


class Rests:
    """Pure: when to rest, and for how long.

    What is counted is the time that went by, not only that of this process: the servers that are
    read and written are spared as well.
    """

    def __init__(self) -> None:
        self._nodes = 0
        self._begun_s: float | None = None

    def take(self, now_s: float) -> float:
        """Count one more node; return how long to rest before the next one."""
        if self._begun_s is None:
            self._begun_s = now_s
        self._nodes += 1
        if self._nodes < TURN_NODES:
            return 0.0
        rest_s = REST_PER_TURN * min(max(now_s - self._begun_s, 0.0), TURN_S_MAX)
        self._nodes, self._begun_s = 0, now_s + rest_s
        return rest_s


async def rest(rests: Rests | None, clock: Clock) -> None:
    """One more node was looked at; None never rests."""
    if rests is not None and (rest_s := rests.take(clock.monotonic_s())) > 0:
        await asyncio.sleep(rest_s)


async def with_rests(
    records: AsyncIterator[Record], rests: Rests | None, clock: Clock
) -> AsyncIterator[Record]:
    """The same records."""
    try:
        async for record in records:
            yield record
            await rest(rests, clock)
    finally:
        if isinstance(records, AsyncGenerator):
            await records.aclose()  # whoever stops it does so while it rests
