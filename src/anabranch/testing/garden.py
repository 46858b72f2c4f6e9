"""Nodes that each have one writer, who knows at any time what they hold or may hold.

Written, written over and deleted by the versions that the writer knows, while the store under it is
replaced. Of what was answered exactly that must be there in the end; a path of which an answer was
lost may hold what was before or what was written, and is not touched again.
"""

import asyncio
from collections.abc import Callable

from anabranch.errors import (
    AnabranchError,
    BadVersion,
    Fenced,
    OutcomeUnknown,
    SessionExpired,
    Unreachable,
)
from anabranch.metadata.store import ABSENT, Delete, Expected, MetadataStore, Outcome, Put, Stat
from anabranch.runtime import Entropy
from anabranch.testing.simulation.world import World

FOLDER = "/garden"
PATHS = 6
"""That a writer has at a time."""
PAUSE_S_MAX = 0.3
Held = bytes | None
"""None: no node."""


class Garden:
    """What every path may hold."""

    def __init__(self, world: World) -> None:
        self.may_hold: dict[str, tuple[Held, ...]] = {}
        self._world = world
        self._paths = 0

    def new_path(self) -> str:
        """A path that nobody has written."""
        self._paths += 1
        return f"{FOLDER}/{self._paths % 3}/{self._paths}"

    def begin(self, path: str, held: Held) -> None:
        """A write is sent: from now on it may be there."""
        (before,) = self.may_hold.get(path, (None,))
        self.may_hold[path] = (before, held)

    def done(self, path: str) -> None:
        """It was answered, and is there."""
        self.may_hold[path] = self.may_hold[path][-1:]

    def refused(self, path: str) -> None:
        """It was answered, and is not there."""
        self.may_hold[path] = self.may_hold[path][:1]

    def saw(self, path: str, held: Held) -> None:
        """The writer of a path read it, with none of its writes under way."""
        assert held in self.may_hold.get(path, (None,)), f"{path} holds {held!r} for its writer"

    def reach(self, mark: str) -> None:
        """See `World.reach`."""
        self._world.reach(mark)

    def check(self, found: Callable[[str], Held]) -> None:
        """Compare all with what is in the store."""
        for path, held in self.may_hold.items():
            assert found(path) in held, f"{path} holds {found(path)!r}, and may hold {held}"


class Gardener:
    """One life of one writer."""

    def __init__(self, garden: Garden, store: MetadataStore, entropy: Entropy) -> None:
        self._garden = garden
        self._store = store
        self._entropy = entropy
        self._known: dict[str, Expected] = {}
        """Versions by path; nobody else writes them."""

    async def run(self) -> None:
        """Write on and on."""
        number = 0
        while True:
            while len(self._known) < PATHS:
                self._known[self._garden.new_path()] = ABSENT
            number += 1
            path = list(self._known)[self._entropy.below(PATHS)]
            if self._entropy.below(4) == 0:
                await self._look(path)
            await self._change(path, b"%d" % number)
            await asyncio.sleep(self._entropy.uniform(0.0, PAUSE_S_MAX))

    async def _change(self, path: str, value: bytes) -> None:
        garden, expected = self._garden, self._known[path]
        deletes = expected is not ABSENT and self._entropy.below(3) == 0
        garden.begin(path, None if deletes else value)
        stat: Stat | None = None
        try:
            if deletes:
                await self._delete(path)
            else:
                stat = await self._put(path, value)
        except OutcomeUnknown:
            del self._known[path]  # left alone: what is under way may come at any time
            return
        except (Unreachable, SessionExpired, Fenced):
            garden.refused(path)
            return
        except BadVersion:
            garden.refused(path)
            garden.reach("token refused")
            await self._look(path)
            return
        garden.done(path)
        self._known[path] = ABSENT if stat is None else stat.version
        garden.reach("planted")

    async def _put(self, path: str, value: bytes) -> Stat:
        expected = self._known[path]
        if self._entropy.below(2):
            return await self._store.put(path, value, expected)
        (outcome,) = await self._store.batch([Put(path, value, expected)])
        stat = _answered(outcome)
        assert stat is not None
        return stat

    async def _delete(self, path: str) -> None:
        expected = self._known[path]
        if self._entropy.below(2):
            await self._store.delete(path, expected)
            return
        (outcome,) = await self._store.batch([Delete(path, expected)])
        _answered(outcome)

    async def _look(self, path: str) -> None:
        """Read it, and know the version anew."""
        try:
            node = await self._store.get(path)
        except AnabranchError:
            return
        self._garden.saw(path, None if node is None else node.value)
        self._known[path] = ABSENT if node is None else node.stat.version


def _answered(outcome: Outcome) -> Stat | None:
    if isinstance(outcome, AnabranchError):
        raise outcome
    return outcome
