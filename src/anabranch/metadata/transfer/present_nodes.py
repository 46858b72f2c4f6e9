"""Nodes of a copy that its target has already: from a copy that was interrupted, or to be replaced.

Some stores raise the counter of a node only after its children are there. So a copy that was
interrupted may have left a node whose counter is too low, and nothing else wrong with it.
"""

from collections.abc import Callable

from anabranch import limits
from anabranch.errors import AnabranchError, ConflictError
from anabranch.metadata.paths import ROOT, join
from anabranch.metadata.store import Delete, MetadataStore, Node, Put, Record, Stat
from anabranch.metadata.transfer.comparing import arrived
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.survey import is_occupied


class PresentNodes:
    """Finds and deals with them."""

    def __init__(
        self,
        target: MetadataStore,
        keeping: Keeping,
        note_version: Callable[[str, int, int], None],
        *,
        overwrite: bool,
    ) -> None:
        self._target = target
        self._keeping = keeping
        self._note_version = note_version
        self._overwrite = overwrite
        self._behind: dict[str, int] = {}
        """Nodes whose counters are to be raised, and how far."""
        self.overwritten = 0

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
        if not record.next_sequence and not record.indexes and not record.access:
            return True
        there = await self._exported(record.path)
        behind = there.next_sequence < record.next_sequence
        if behind and record.path != ROOT and not (self._keeping.sequences or self._overwrite):
            self._behind[record.path] = record.next_sequence
            there = there._replace(next_sequence=record.next_sequence)
        return arrived(record, there, self._keeping, overwritten=True)

    async def _exported(self, path: str) -> Record:
        records = self._target.export(path)
        try:
            async for record in records:
                return record
        finally:
            await records.aclose()  # type: ignore[attr-defined]
        raise ConflictError(f"somebody deleted {path} from the target meanwhile")

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

    async def raise_counters(self) -> None:
        """Issue numbers until nobody can get one that the source issued."""
        for path, wanted in self._behind.items():
            while (missing := wanted - (await self._exported(path)).next_sequence) > 0:
                await self._issue(path, min(missing, limits.METADATA_COPY_NUMBERS_MAX))
        self._behind.clear()

    async def _issue(self, path: str, count: int) -> None:
        # Nodes of our session go by themselves if we do not come to remove them.
        put = Put(join(path, "passed-"), b"", sequential=True, ephemeral=True)
        issued = await self._target.batch([put] * count)
        passed = [Delete(outcome.path) for outcome in issued if isinstance(outcome, Stat)]
        for outcome in (*issued, *await self._target.batch(passed)):
            if isinstance(outcome, AnabranchError):
                raise outcome
