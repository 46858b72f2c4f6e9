"""Brings a target up to its source: what is missing is written, what is there is left alone.

Both trees are read side by side, in path order, so it does not matter whether the target is empty,
holds what an interrupted copy left, or holds everything.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from anabranch.errors import InputError
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.comparing import Kind, compare
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.present_nodes import PresentNodes
from anabranch.metadata.transfer.rights_last import HoldsRights
from anabranch.metadata.transfer.survey import PROGRESS_NODES
from anabranch.runtime import Clock


@dataclass(slots=True)
class CaughtUp:
    """What was done."""

    nodes: int = 0
    """Of the source, ephemeral ones left out."""
    copied: int = 0
    overwritten: int = 0
    ephemerals: int = 0
    versions_changed: int = 0


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """How it is done."""

    clock: Clock
    target: MetadataStore
    source_keeping: Keeping = EVERYTHING
    keeping: Keeping = EVERYTHING
    overwrite: bool = False
    drop_acls: bool = False
    nodes_per_s: float | None = None
    on_nodes: Callable[[int], None] = lambda _: None
    closes: bool = True
    """Whether nodes get their own rights; otherwise the same once more does it, at the end."""

    async def run(self, ours: AsyncIterator[Record], there: AsyncIterator[Record]) -> CaughtUp:
        """Write what `ours` has and `there`, read from the target, has not. Both in path order.

        Raises:
            ConflictError: if another node is in the way of one, and must not be overwritten.
            InputError: if the target cannot hold a node.
        """
        done = CaughtUp()
        present = PresentNodes(
            self.target, self.keeping, lambda path, was, now: None, overwrite=self.overwrite
        )
        rights = self.target if isinstance(self.target, HoldsRights) else None
        restore = self.target.restore
        if rights is not None and not self.closes:
            restore = rights.restore_open
        done.copied = await restore(self._missing(ours, there, present, done))
        # A node with children cannot be deleted: it was written over where it is.
        done.copied += present.overwritten - done.overwritten
        done.overwritten = present.overwritten
        await present.raise_counters()
        if rights is not None and self.closes:
            await rights.set_rights(present.rights_due, again=True)
        self.on_nodes(done.nodes)
        return done

    async def _missing(
        self,
        ours: AsyncIterator[Record],
        there: AsyncIterator[Record],
        present: PresentNodes,
        done: CaughtUp,
    ) -> AsyncIterator[Record]:
        pace = Pace(self.nodes_per_s)
        keepings = (self.source_keeping, self.keeping)
        async for difference in compare(self._counted(ours, done), there, keepings=keepings):
            record = difference.left
            if difference.kind is Kind.ONLY_RIGHT or record is None:
                continue
            if difference.kind is Kind.DIFFERS:
                replaced = present.overwritten
                if not await present.is_missing(record):
                    continue
                # Deleted to be written anew: counted where all written nodes are.
                done.overwritten += present.overwritten - replaced
            done.versions_changed += not self.keeping.keeps_version(record)
            yield record
            if pace.is_limited:
                delay_s = pace.take(self.clock.monotonic_s(), len(record.value))
                if delay_s > 0:
                    await asyncio.sleep(delay_s)

    async def _counted(
        self, records: AsyncIterator[Record], done: CaughtUp
    ) -> AsyncIterator[Record]:
        async for record in records:
            if record.session is not None:
                done.ephemerals += 1
                continue
            if (reason := self.keeping.why_not(record)) is not None:
                raise InputError(f"the target cannot hold {record.path[:200]}: {reason}")
            if record.access and not self.keeping.access:
                if not self.drop_acls:
                    raise InputError(
                        f"{record.path} has access rights, which the target cannot hold: "
                        "drop_acls copies without them"
                    )
                record = record._replace(access=())
            done.nodes += 1
            if done.nodes % PROGRESS_NODES == 0:
                self.on_nodes(done.nodes)
            yield record
