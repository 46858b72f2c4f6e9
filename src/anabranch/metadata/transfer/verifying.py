"""Whether a target holds what was copied into it.

A target that was empty is compared by digest with what was read, so the source need not be read
again; any other one is compared node by node.
"""

from collections.abc import AsyncIterator

from anabranch import limits
from anabranch.errors import ConflictError
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import Record
from anabranch.metadata.transfer.comparing import arrived, compare
from anabranch.metadata.transfer.digest import Digest, Summing
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.sources import RecordSource
from anabranch.metadata.transfer.survey import PROGRESS_NODES, OnProgress


class Expectation:
    """What an empty target must hold after a copy, noted while the source is read. Pure."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._exact = 0
        self._counters: dict[str, int] = {}
        """Next sequence numbers; a target may have larger ones."""
        self.whole = True
        """Whether everything could be noted: otherwise only the source itself can tell."""

    def add(self, record: Record, exact: int | None) -> None:
        """One more node will be there; `exact` is its part of that digest, where that is known."""
        kept = record
        version = self._keeping.version_after(record)
        if version != record.native_version:
            kept = kept._replace(native_version=version)
        if record.next_sequence and not self._keeping.sequences:
            self._note_counter(record)
            kept = kept._replace(next_sequence=0)
        if record.access:
            kept = kept._replace(access=())
            self.whole = self.whole and not self._keeping.access
        if record.indexes and not self._keeping.indexes:
            kept = kept._replace(indexes=())
        self._exact += Summing().add(kept) if exact is None or kept is not record else exact

    def _note_counter(self, record: Record) -> None:
        if len(self._counters) < limits.METADATA_COPY_COUNTERS_MAX:
            self._counters[record.path] = record.next_sequence
        else:
            self.whole = False
            self._counters.clear()

    def _without_counter(self, record: Record) -> Record:
        if record.next_sequence < self._counters.get(record.path, 0):
            raise ConflictError(
                f"{record.path} in the target would issue sequence numbers from "
                f"{record.next_sequence} on again"
            )
        return record._replace(next_sequence=0) if record.next_sequence else record

    async def check(
        self,
        there: AsyncIterator[Record],
        copied: Digest,
        on_progress: OnProgress,
        *,
        has_root: bool,
    ) -> None:
        """Compare with everything that the target has.

        Raises:
            ConflictError: if it is not the same.
        """
        summing = Summing()
        async for record in there:
            if record.path == ROOT and not has_root:
                continue  # every store has one, even if nobody copied it
            if record.session is not None:
                raise ConflictError(f"{record.path} in the target belongs to a session")
            if record.access:
                record = record._replace(access=())
            if not self._keeping.sequences:
                record = self._without_counter(record)
            summing.add(record)
            if summing.nodes % PROGRESS_NODES == 0:
                on_progress("verify", summing.digest, copied.nodes)
        found = summing.digest
        wanted = copied._replace(exact=0).with_exact(self._exact)
        if found != wanted:
            raise ConflictError(
                f"the target has {found.nodes} nodes with digest {found.exact_text}, "
                f"{wanted.nodes} with {wanted.exact_text} were copied: somebody writes to it"
            )


async def first_difference(
    source: RecordSource,
    there: AsyncIterator[Record],
    keeping: Keeping,
    *,
    overwritten: bool,
    drops_access: bool,
    was_empty: bool,
) -> str | None:
    """The first path of a source that is not in a target, in path order, as well as it can be.

    If the target was empty, also one that is only there.
    """
    async for difference in compare(_lasting(source), there, ephemerals=True):
        left, right = difference.left, difference.right
        if left is None:
            same = not was_empty or difference.path == ROOT
        else:
            same = right is not None and arrived(left, right, keeping, overwritten=overwritten)
            same = same and (keeping.access or drops_access or not left.access)
        if not same:
            return difference.path
    return None


async def _lasting(source: RecordSource) -> AsyncIterator[Record]:
    async for record in source.records():
        if record.session is None:
            yield record
