"""Looking before writing: what a copy would bring, and what stands in its way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from anabranch import limits
from anabranch.errors import ConflictError, InputError
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import MetadataStore, Node, Record
from anabranch.metadata.transfer.digest import NO_NODES, Digest, Summing
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.rights_last import HoldsRights
from anabranch.metadata.transfer.sources import RecordSource
from anabranch.runtime import Clock

OnProgress = Callable[[str, Digest, int | None], None]
"""Told the present phase, how much of it is done, and of how many nodes; None: nobody knows."""
PROGRESS_NODES = 256


def no_progress(phase: str, done: Digest, whole: int | None) -> None:
    """For callers that do not want to know."""


async def paced(
    records: AsyncIterator[Record],
    clock: Clock,
    nodes_per_s: float | None,
    bytes_per_s: float | None,
    on_progress: OnProgress,
    phase: str = "export",
) -> AsyncIterator[Record]:
    """The same records, not faster than wanted, with word of how many they were."""
    pace = Pace(nodes_per_s, bytes_per_s)
    nodes = value_bytes = 0
    async for record in records:
        yield record
        nodes += 1
        value_bytes += len(record.value)
        if nodes % PROGRESS_NODES == 0:
            on_progress(phase, Digest(nodes, value_bytes), None)
        delay_s = pace.take(clock.monotonic_s(), len(record.value) + len(record.path))
        if delay_s > 0:
            await asyncio.sleep(delay_s)


@dataclass
class Survey:
    """What was found."""

    nodes: int = 0
    """Ephemeral ones are in no other count than their own."""
    digest: Digest = NO_NODES
    ephemerals: int = 0
    acls: int = 0
    """Nodes with access rights."""
    first_with_acls: str = ""
    occupied: int = 0
    """Nodes that the target has something at the path of."""
    first_occupied: tuple[str, ...] = ()
    impossible: int = 0
    """Nodes that the target cannot hold at all."""
    first_impossible: str = ""
    """The path of one, and why."""

    def refuse_impossible(self) -> None:
        """Refuse to begin what cannot be brought to an end.

        Raises:
            InputError: if there are nodes that the target cannot hold.
        """
        if self.impossible:
            raise InputError(
                f"the target cannot hold {self.impossible} of these nodes; "
                f"the first is {self.first_impossible}"
            )

    def refuse_acls(self) -> None:
        """Refuse to lose access rights.

        Raises:
            InputError: if there are any.
        """
        if self.acls:
            raise InputError(
                f"{self.acls} nodes have access rights, which the target cannot hold "
                f"(first {self.first_with_acls}): --drop-acls copies without them"
            )

    def refuse_conflicts(self) -> None:
        """Refuse to write over nodes.

        Raises:
            ConflictError: if there are any.
        """
        if self.occupied:
            names = ", ".join(self.first_occupied)
            more = ", ..." if self.occupied > len(self.first_occupied) else ""
            raise ConflictError(
                f"the target has {self.occupied} of these nodes already ({names}{more}): "
                "--overwrite replaces them"
            )


async def survey(
    source: RecordSource,
    target: MetadataStore | None,
    keeping: Keeping = EVERYTHING,
    on_progress: OnProgress = no_progress,
    *,
    digest: bool = True,
    rights: HoldsRights | None = None,
    may_be_there: bool = False,
) -> Survey:
    """Read the source once; look at each of its paths in the target, if one is given.

    Who holds `rights` is asked whether it takes those of each node, which `may_be_there` already.
    """
    found = Survey()
    paths: list[str] = []
    nodes = value_bytes = 0
    summing = Summing()
    # How large a node is matters only to some.
    whole = digest or keeping.refuses_some
    async for record in source.records() if whole else source.outlines():
        if record.session is not None:
            found.ephemerals += 1
            continue
        nodes += 1
        value_bytes += len(record.value)
        if digest:
            summing.add(record)
        if record.access:
            found.acls += 1
            found.first_with_acls = found.first_with_acls or record.path
        reason = keeping.why_not(record)
        if reason is None and record.access and rights is not None:
            reason = await rights.why_no_rights(
                record.path, record.access, may_be_there=may_be_there
            )
        if reason is not None:
            found.impossible += 1
            found.first_impossible = found.first_impossible or f"{record.path[:200]}: {reason}"
        elif target is not None:
            paths.append(record.path)
            if len(paths) >= limits.METADATA_COPY_READS_MAX:
                await _look_up(target, paths, found)
                paths.clear()
        if nodes % PROGRESS_NODES == 0:
            on_progress("look", Digest(nodes, value_bytes), None)
    if target is not None:
        await _look_up(target, paths, found)
    found.nodes, found.digest = nodes, summing.digest
    return found


async def _look_up(target: MetadataStore, paths: list[str], found: Survey) -> None:
    nodes = await asyncio.gather(*map(target.get, paths))
    for path, node in zip(paths, nodes, strict=True):
        if is_occupied(path, node):
            found.occupied += 1
            if found.occupied <= limits.METADATA_COPY_CONFLICTS_SHOWN_MAX:
                found.first_occupied += (path,)


def is_occupied(path: str, node: Node | None) -> bool:
    """Whether a node is in the way of a restored one; a root nobody wrote to is not."""
    if node is None:
        return False
    return path != ROOT or bool(node.value) or node.stat.version.native != 0


async def is_empty(target: MetadataStore, prefix: str) -> bool:
    """Whether there is nothing at or below a path."""
    return not is_occupied(prefix, await target.get(prefix)) and not await target.children(prefix)
