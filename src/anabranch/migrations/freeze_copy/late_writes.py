"""What is written to a store after it was left, by processes that write past their own freeze.

Each such write is applied to the store in use if nobody has touched its node there since; else it
is only reported, since two writers cannot both be right.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anabranch.errors import BadVersion, NotEmpty, NotFound
from anabranch.metadata.announced import stays_behind
from anabranch.metadata.paths import ROOT, order_key, parent_of
from anabranch.metadata.store import ABSENT, EventKind, MetadataStore, Node, Revision, Version
from anabranch.metadata.transfer.present_nodes import issue_numbers
from anabranch.migrations.engine.steps import Progress, Turn
from anabranch.migrations.freeze_copy.limits import LATE_LINES_MAX, LATE_LOOK_S
from anabranch.runtime import Clock
from anabranch.telemetry import get_logger

_LEFT_AT: Final = "left_at"
_USED_AT: Final = "used_at"
_OVER: Final = "late_over"
"""Names in a checkpoint."""
_log: Final = get_logger("migrations")
_MISSED: Final = "what was deleted there meanwhile is not known"


@dataclass(frozen=True, slots=True)
class LateWrite:
    """One write that came after the store was left."""

    path: str
    applied: bool
    words: str

    def __str__(self) -> str:
        return f"{self.path}: {'applied' if self.applied else 'NOT applied'}, {self.words}"


class LateWrites:
    """Finds and judges them."""

    def __init__(
        self,
        left: MetadataStore,
        used: MetadataStore,
        left_at: Revision,
        used_at: Revision,
        check: Callable[[], None],
    ) -> None:
        """`left_at` is up to where the copy goes, `used_at` when nobody had written there yet.

        `check` is called before each write; it raises `Fenced` once another one may write.
        """
        self._left = left
        self._used = used
        self._at = left_at
        self._left_at = left_at
        self._used_at = used_at
        self._check = check
        self._applied: dict[str, Version | None] = {}
        """What nodes became here by late writes, None if they were deleted: who is late twice is
        not another's rival."""
        self._reading = [left.watch(ROOT), used.watch(ROOT)]
        """A store tells what has changed only if somebody reads along."""

    async def look(self) -> list[LateWrite]:
        """Deal with all that was written since the last look."""
        await self._left.sync()
        now = await self._left.revision()
        found: list[LateWrite] = []
        changed: dict[str, EventKind] = {}
        async for event in self._left.changed_since(self._at):
            if event.kind is EventKind.GAP:
                found.append(LateWrite(ROOT, applied=False, words=_MISSED))
                changed.update(await self._newer())
            elif not stays_behind(event.path):
                changed[event.path] = event.kind
        gone = [path for path, kind in changed.items() if kind is EventKind.DELETED]
        kept = [path for path, kind in changed.items() if kind is not EventKind.DELETED]
        for path in [*sorted(kept, key=order_key), *sorted(gone, key=order_key, reverse=True)]:
            late = await self._settle(path, changed[path])
            if late is not None:
                found.append(late)
        self._at = now
        return found

    async def _newer(self) -> dict[str, EventKind]:
        """What was written since the store was left, by what the nodes themselves say."""
        return {
            node.stat.path: EventKind.MODIFIED
            async for node in self._left.scan(ROOT)
            if node.stat.revision > self._left_at and not stays_behind(node.stat.path)
        }

    async def _settle(self, path: str, kind: EventKind) -> LateWrite | None:
        """Apply one, if that takes nothing from anybody; None if there is nothing to do."""
        there, here = await asyncio.gather(self._left.get(path), self._used.get(path))
        if any(node is not None and node.stat.ephemeral for node in (there, here)):
            return None  # its owner sees to it
        value = None if there is None else there.value
        if value == (None if here is None else here.value):
            return None
        if here is not None and self._is_of_others(here):
            return LateWrite(path, applied=False, words="was changed in the new store, too")
        if here is None and await self._may_be_deleted(path, kind):
            return LateWrite(path, applied=False, words="was deleted in the new store, it seems")
        self._check()
        try:
            words = await self._apply(path, there, here)
        except (BadVersion, NotFound, NotEmpty) as error:
            return LateWrite(path, applied=False, words=f"was just changed there: {error}")
        return LateWrite(path, applied=True, words=words)

    def _is_of_others(self, here: Node) -> bool:
        """Whether somebody has written a node in the store in use."""
        stat = here.stat
        return stat.revision > self._used_at and self._applied.get(stat.path) != stat.version

    async def _may_be_deleted(self, path: str, kind: EventKind) -> bool:
        """Whether a node that the new store lacks was there, or nobody can tell."""
        if path in self._applied and self._applied[path] is None:
            return False
        async for event in self._used.changed_since(self._used_at, path):
            if event.kind is EventKind.GAP:
                return kind is not EventKind.CREATED
            if event.path == path:
                return True
        return False

    async def _apply(self, path: str, there: Node | None, here: Node | None) -> str:
        if there is None:
            assert here is not None
            await self._used.delete(path, here.stat.version)
            self._applied[path] = None
            return "deleted"
        expected = ABSENT if here is None else here.stat.version
        stat = await self._used.put(path, there.value, expected)
        self._applied[path] = stat.version
        if here is None:
            await self._pass_numbers(parent_of(path))
            return "created"
        return "written"

    async def _pass_numbers(self, path: str) -> None:
        """Have no number issued again that the other store has issued."""
        while True:
            there, here = await asyncio.gather(self._left.record(path), self._used.record(path))
            if there is None or here is None or there.next_sequence <= here.next_sequence:
                return
            self._check()
            await issue_numbers(self._used, path, there.next_sequence - here.next_sequence)


class LateWatch:
    """Looks for late writes for some time after a switch, whichever process drives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def begin(self, turn: Turn, left_at: Revision, used_at: Revision) -> None:
        """Make durable from where on a write is late, before anybody uses the new store."""
        at = {
            name: [revision.epoch, revision.index]
            for name, revision in ((_LEFT_AT, left_at), (_USED_AT, used_at))
        }
        await turn.keep({**turn.checkpoint, **at})

    async def settle(
        self, turn: Turn, left: MetadataStore, used: MetadataStore, wait_s: float
    ) -> None:
        """Apply or report every late write, until no more are expected.

        A driver that takes over begins the time anew.
        """
        if turn.checkpoint.get(_OVER):
            return
        left_at, used_at = (Revision(*turn.checkpoint[name]) for name in (_LEFT_AT, _USED_AT))
        late = LateWrites(left, used, left_at, used_at, turn.check)
        until_s = self._clock.monotonic_s() + wait_s
        count = 0
        while True:
            is_last = self._clock.monotonic_s() >= until_s
            for each in await late.look():
                count += 1
                _log.warning("late_write", path=each.path, applied=each.applied, words=each.words)
                if count <= LATE_LINES_MAX:
                    await turn.note("late write", str(each))
            if is_last:
                break
            turn.progress(Progress(words=f"{count} late writes to the source so far"))
            await asyncio.sleep(LATE_LOOK_S)
        if count > LATE_LINES_MAX:
            more = f"{count - LATE_LINES_MAX} more are in the logs of those who drove"
            await turn.note("late write", more)
        await turn.keep({**turn.checkpoint, _OVER: True})
