"""Fewer searches for cycles of objects while millions of records pass by, which make none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEW_OBJECTS: Final = 50_000
"""So many come to life between two searches, instead of some hundred: a few MiB."""
_under_way = 0
_before: tuple[int, int, int] = gc.get_threshold()


@contextmanager
def few_collections() -> Iterator[None]:
    """Search rarely until the last of those who asked for it, perhaps side by side, is done."""
    global _under_way, _before
    if not _under_way:
        _before = gc.get_threshold()
        # One that is switched off, by a threshold of 0, stays so.
        if 0 < _before[0] < _NEW_OBJECTS:
            gc.set_threshold(_NEW_OBJECTS, *_before[1:])
    _under_way += 1
    try:
        yield
    finally:
        _under_way -= 1
        if not _under_way:
            gc.set_threshold(*_before)
