"""How much memory a piece of work takes at its peak, told apart from what happens beside it."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

_TRIES_MAX: Final = 4


def least_peak_bytes(work: Callable[[], object], *, enough_bytes: int = 0) -> int:
    """Do some work up to four times and return the least of its peaks.

    Caches that the interpreter fills meanwhile can only add to a peak, so the least is nearest to
    the work's own. A peak below `enough_bytes` ends the tries.
    """
    least: int | None = None
    for _ in range(_TRIES_MAX):
        peak = _peak_bytes(work)
        least = peak if least is None else min(least, peak)
        if least < enough_bytes:
            break
    assert least is not None
    return least


def _peak_bytes(work: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
