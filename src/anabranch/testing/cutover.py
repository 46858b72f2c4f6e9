"""What two simulated services hold at the moment in which the one replaces the other.

Looked at from outside, when the journal says so: nodes that last are the same in both, and none is
in one alone. Nodes of sessions belong to the same processes in both. What is of the operation
itself, or of Pulsar's own, went with no copy.
"""

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.metadata.announced import (
    OPERATIONS,
    PULSARS_OPERATION,
    Announced,
    journal_path,
    read_announced,
    stays_behind,
)
from anabranch.metadata.paths import parent_of
from anabranch.metadata.store import Operation, Put, Record
from anabranch.metadata.transfer.comparing import arrived
from anabranch.metadata.transfer.keeping import EVERYTHING
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.testing.replaced_story import OWN_DOCUMENTS
from anabranch.testing.simulation.whole_store import WholeService

_COMES_INTO_USE: Final = {
    ("leading", "switched"): "target",
    ("reverting", "rolled back"): "source",
}
"""Which store, by the phases before and after."""
_COPIED: Final = frozenset({"rejoining", "fencing", "switching", "leading"})
_COPIED_BACK: Final = frozenset({"returning", "refencing", "reverting"})


class Cutover:
    """Listens to both services."""

    def __init__(
        self, source: WholeService, target: WholeService, is_alive: Callable[[object], bool]
    ) -> None:
        """`is_alive` is whether a life of a process goes on."""
        self.seen = 0
        """How many moments were looked at."""
        self._services = {"source": source, "target": target}
        self._is_alive = is_alive
        self._head: Announced | None = None
        self._late: dict[str, None] = {}
        """Written in the store that is left by somebody whom nobody waited for."""
        source.on_write = lambda _, operation: self._written("source", operation)
        target.on_write = lambda _, operation: self._written("target", operation)

    def _written(self, store: str, operation: Operation) -> None:
        if store == "source" and operation.path == journal_path(FreezeCopy.kind):
            assert isinstance(operation, Put)
            self._announced(read_announced(operation.value))
        elif self._head is not None and not stays_behind(operation.path):
            left = _COPIED if store == "source" else _COPIED_BACK
            if self._head.phase in left:
                self._late[operation.path] = None

    def _announced(self, head: Announced) -> None:
        before, self._head = self._head, head
        arrow = ("" if before is None else before.phase, head.phase)
        if arrow in _COMES_INTO_USE:
            used = self._services[_COMES_INTO_USE[arrow]]
            (left,) = [service for service in self._services.values() if service is not used]
            self._compare(left, used)
            check_own_documents(self._services["target"])
            self.seen += 1
        if head.phase in ("freezing", "refreezing"):
            self._late.clear()

    def _compare(self, left: WholeService, used: WholeService) -> None:
        old, new = _by_path(left), _by_path(used)
        for path in sorted({*old, *new}):
            if self._is_late(path):
                continue
            before, after = old.get(path), new.get(path)
            if before is not None and before.session is not None:
                before = None
            if after is not None and after.session is not None:
                self._check_owner(path, left, old.get(path), used, after)
                after = None
            assert _is_same(before, after, used), f"{path} became another: {before} is {after}"

    def _is_late(self, path: str) -> bool:
        """Whether a late write may have changed a node: itself, the counter above it, its name."""
        return path in self._late or any(
            parent_of(late) in (path, parent_of(path)) for late in self._late
        )

    def _check_owner(
        self,
        path: str,
        left: WholeService,
        before: Record | None,
        used: WholeService,
        after: Record,
    ) -> None:
        """A node of a session is of the process that had it, if that lives and has it still."""
        owner = used.owners.get(after.session or 0)
        if before is None or before.session is None or not self._is_alive(owner):
            return
        had = left.owners.get(before.session)
        assert owner == had, f"{path} of {had} was made anew by {owner}"


def check_own_documents(target: WholeService) -> None:
    """A target has of an operation what is made for a target, and nothing that was copied."""
    assert not target.records(PULSARS_OPERATION), "Pulsar's flag was copied to the target"
    names = {
        record.path.removeprefix(f"{OPERATIONS}/").partition("/")[0]
        for record in target.records(OPERATIONS)
        if record.path != OPERATIONS
    }
    assert names <= OWN_DOCUMENTS, f"the target has documents of the operation: {names}"


def _is_same(before: Record | None, after: Record | None, used: WholeService) -> bool:
    """Exactly, but for what cannot be of a node that has children: it is written over."""
    if before is None or after is None:
        return before is after
    if used.machine.tree.children(after.path):
        return arrived(before, after, EVERYTHING, overwritten=True)
    return before == after


def _by_path(service: WholeService) -> Mapping[str, Record]:
    """All that a copy has, without what every store says of itself: when it was written."""
    return {
        record.path: record._replace(created_ms=0, modified_ms=0)
        for record in service.records("/")
        if not stays_behind(record.path) and record.path not in ("/", "/anabranch")
    }
