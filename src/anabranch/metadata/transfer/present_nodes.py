"""Nodes of a copy that its target has already: from a copy that was interrupted, or to be replaced.

Some stores raise the counter of a node only after its children are there. So a copy that was
interrupted may have left a node whose counter is too low, and nothing else wrong with it.
"""

from collections.abc import Callable
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError, ConflictError
from anabranch.metadata.access_rights import is_born_open
from anabranch.metadata.paths import ROOT, join
from anabranch.metadata.store import Delete, MetadataStore, Node, Put, Record, Stat
from anabranch.metadata.transfer.comparing import arrived
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.rights_last import Rights
from anabranch.metadata.transfer.survey import is_occupied

PASSED: Final = "passed-"
"""With it begin the names of nodes that are made to pass over numbers."""


class PresentNodes:
    """Finds and deals with them."""

    def __init__(
        self,
        target: MetadataStore,
        keeping: Keeping,
        note_version: Callable[[str, int, int], None],
        *,
        overwrite: bool,
        rights_later: bool = False,
    ) -> None:
        self._target = target
        self._keeping = keeping
        self._note_version = note_version
        self._overwrite = overwrite
        self._rights_later = rights_later
        """Whether rights are set when all nodes are there, so that they tell nothing before."""
        self._behind: dict[str, int] = {}
        """Nodes whose counters are to be raised, and how far."""
        self.overwritten = 0
        self.rights_due: list[tuple[str, Rights]] = []
        """What an interrupted copy left open, and what was written over where it is."""

    async def is_missing(self, record: Record) -> bool:
        """Whether a node is to be restored; one that is there is dealt with.

        Raises:
            ConflictError: if another one is there and must stay.
        """
        node = await self._target.get(record.path)
        if node is None:
            return True
        if await self._is_there(record, node):
            self._note_version(record.path, record.native_version, node.stat.version.native)
            return False
        if not is_occupied(record.path, node):
            return True
        if node.stat.ephemeral:
            raise ConflictError(f"{record.path} in the target belongs to a session: not replaced")
        if not self._overwrite:
            raise ConflictError(f"{record.path} exists in the target and is another one")
        self.overwritten += 1
        if record.path != ROOT and not await self._target.children(record.path):
            await self._target.delete(record.path, node.stat.version)
            return True
        await self._replace_parent(record, node)
        return False

    async def _is_there(self, record: Record, node: Node) -> bool:
        kept = self._keeping.keeps_version(record)
        if node.value != record.value or node.stat.ephemeral:
            return False
        if kept and node.stat.version.native != record.native_version:
            return False
        if self._rights_later:
            record = record._replace(access=())
        if not record.next_sequence and not record.indexes and not record.access:
            return True
        there = await self._exported(record.path)
        behind = there.next_sequence < record.next_sequence
        if behind and record.path != ROOT and not (self._keeping.sequences or self._overwrite):
            self._behind[record.path] = record.next_sequence
            there = there._replace(next_sequence=record.next_sequence)
        # A root is not born with rights: they are set when all else is there.
        left_open = bool(record.access) and (
            record.path == ROOT or is_born_open(record.access, there.access)
        )
        if left_open:
            there = there._replace(access=record.access)
        there_already = arrived(record, there, self._keeping, overwritten=True)
        if left_open and there_already:
            self.rights_due.append((record.path, record.access))
        return there_already

    async def _exported(self, path: str) -> Record:
        record = await self._target.record(path)
        if record is None:
            raise ConflictError(f"somebody deleted {path} from the target meanwhile")
        return record

    async def _replace_parent(self, record: Record, node: Node) -> None:
        """Write over a node that cannot be deleted, since it has children."""
        there = await self._exported(record.path)
        if there.next_sequence < record.next_sequence:
            raise ConflictError(
                f"{record.path} in the target has children and would issue sequence numbers "
                f"from {there.next_sequence} on again; the source issued all below "
                f"{record.next_sequence}: delete it first"
            )
        stat = await self._target.put(
            record.path, record.value, node.stat.version, indexes=record.indexes
        )
        self._note_version(record.path, record.native_version, stat.version.native)
        if record.access and self._keeping.access and not self._rights_later:
            self.rights_due.append((record.path, record.access))

    async def raise_counters(self) -> None:
        """Issue numbers until nobody can get one that the source issued."""
        for path, wanted in self._behind.items():
            while (missing := wanted - (await self._exported(path)).next_sequence) > 0:
                await issue_numbers(self._target, path, missing)
        self._behind.clear()


async def issue_numbers(target: MetadataStore, path: str, count: int) -> None:
    """Pass over some of a node's next sequence numbers, as many as can be at once."""
    # Nodes of our session go by themselves if we do not come to remove them.
    put = Put(join(path, PASSED), b"", sequential=True, ephemeral=True)
    issued = await target.batch([put] * min(count, limits.METADATA_COPY_NUMBERS_MAX))
    passed = [Delete(outcome.path) for outcome in issued if isinstance(outcome, Stat)]
    for outcome in (*issued, *await target.batch(passed)):
        if isinstance(outcome, AnabranchError):
            raise outcome
