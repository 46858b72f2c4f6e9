"""Collections of garbage look at what is new: few objects at once, however many there are."""

import gc
import weakref
from contextlib import contextmanager

import pytest

from anabranch.server.short_collections import GROWN_OBJECTS_MIN, ShortCollections

OBJECTS = 300_000
LOOKED_AT_MAX = 60_000


class Thing:
    """Something that only the collector can free: it refers to itself."""

    def __init__(self):
        self.itself = self


@contextmanager
def short_collections(ended=lambda: 0):
    collections = ShortCollections(ended)
    collections.start()
    try:
        yield collections
    finally:
        collections.stop()


@pytest.mark.goal("core.B30", part="garbage", broken_by="survivors_are_looked_at_again")
async def test_no_collection_looks_at_everything():
    looked_at = []

    def collecting(phase, info):
        if phase == "start" and info["generation"] == 2:
            looked_at.append(len(gc.get_objects()))

    with short_collections() as collections:
        gc.collect()  # what the tests before this one left is aside
        gc.callbacks.append(collecting)
        try:
            kept = [[] for _ in range(OBJECTS)]
        finally:
            gc.callbacks.remove(collecting)
        (figure,) = collections.metrics()
        (sample,) = figure.samples
        assert sample.value > OBJECTS / 2
    assert len(kept) == OBJECTS
    assert len(looked_at) > 3
    assert max(looked_at) < LOOKED_AT_MAX


@pytest.mark.goal("core.B30", part="garbage", broken_by="what_is_aside_stays_for_good")
async def test_what_was_closed_is_freed_in_the_end():
    ended = 0
    with short_collections(lambda: ended) as collections:
        things = [Thing() for _ in range(100)]
        gone = weakref.ref(things[0])
        gc.collect()
        things.clear()
        gc.collect()
        collections.look()
        assert gone() is not None, "it is aside, and nothing was closed"
        ended = gc.get_freeze_count()
        collections.look()
        assert gone() is None
        before = gc.get_freeze_count()
        assert before > 0, "what is left is aside again"


async def test_what_grows_is_looked_at_though_nothing_was_closed():
    with short_collections() as collections:
        collections.look()
        things = [Thing() for _ in range(max(gc.get_freeze_count() // 2, GROWN_OBJECTS_MIN))]
        gone = weakref.ref(things[0])
        gc.collect()
        things.clear()
        gc.collect()
        assert gone() is not None, "it is aside"
        collections.look()
        assert gone() is None
        looked = []
        gc.callbacks.append(lambda phase, info: looked.append(phase))
        try:
            collections.look()
        finally:
            gc.callbacks.pop()
        assert not looked, "nothing has grown since"


async def test_it_leaves_nothing_behind():
    thresholds = gc.get_threshold()
    with short_collections():
        assert gc.get_threshold() != thresholds
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() == 0
