"""How a driver has a tail come so close that writes wait for little, and then come to the end."""

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch.migrations.engine.steps import Progress, Turn
from anabranch.migrations.freeze_copy.limits import LAG_MAX, TAIL_LOOK_S, TAIL_ROUNDS_MIN
from anabranch.migrations.freeze_copy.tail import Tail

_SOMEBODY_WAITS: Final = ("halting", "reverifying")
"""For what the driver does: processes that stopped writing, or whoever wants the way back."""


async def copied(tail: Tail, turn: Turn) -> Tail:
    """Copy everything, unless that was done."""
    tail.in_a_hurry = turn.announced.phase in _SOMEBODY_WAITS
    if not tail.complete:
        await tail.copy(shown_by(turn))
    return tail


async def until_little_is_left(tail: Tail, turn: Turn) -> None:
    """Follow a store that is being written, until writes may be told to wait."""
    rounds, lag = 0, LAG_MAX + 1
    while lag > LAG_MAX or rounds < TAIL_ROUNDS_MIN:
        turn.check()
        lag = await tail.catch_up(hurries=False)
        rounds += 1
        turn.progress(Progress(lag=lag))
        await asyncio.sleep(TAIL_LOOK_S)


async def complete(tail: Tail, *, some_write: bool = False) -> None:
    """Copy the last changes and prove it.

    Nobody writes to the store that is copied; with `some_write`, others may, see `late_writes`.
    """
    while await tail.catch_up() and not some_write:
        pass
    await tail.verify_touched(some_write=some_write)


def shown_by(turn: Turn) -> Callable[[int, int], None]:
    """Shows how much was copied of what the plan has counted."""
    total = turn.figures.get("nodes")
    return lambda nodes, size_bytes: turn.progress(Progress(nodes, total, size_bytes))
