"""Planted bugs of the metadata stores that live in one process."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from anabranch.errors import AnabranchError, BadVersion, ConfigError, Fenced
from anabranch.metadata.commands import Command
from anabranch.metadata.credentials import Credentials
from anabranch.metadata.embedded import EmbeddedBacking
from anabranch.metadata.entries import Entry
from anabranch.metadata.indexes import SecondaryIndexes
from anabranch.metadata.local_handle import Answer
from anabranch.metadata.operation_checks import check_operation
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.paths import parent_of
from anabranch.metadata.snapshot import _BLOCK, SnapshotReader
from anabranch.metadata.state_machine import StateMachine
from anabranch.metadata.store import (
    Event,
    EventKind,
    Expected,
    Guard,
    IndexKey,
    Operation,
    Outcome,
    Put,
    Record,
    Revision,
    Version,
)
from anabranch.metadata.tree import Applied, Tree
from anabranch.metadata.tree_view import Page
from anabranch.metadata.watching import EventHistory
from anabranch.runtime.channels import CallFailed
from anabranch.testing.planted import original, planted


@planted("any_version_will_do", target="anabranch.metadata.entries:mismatch")
def any_version_will_do(path: str, entry: Entry | None, expected: Expected) -> BadVersion | None:
    """A conditional write does not look at the version."""
    if isinstance(expected, Version):
        return None
    found: BadVersion | None = original("any_version_will_do")(path, entry, expected)
    return found


@planted("absent_is_not_checked", target="anabranch.metadata.entries:mismatch")
def absent_is_not_checked(path: str, entry: Entry | None, expected: Expected) -> BadVersion | None:
    """A node that must not exist is overwritten."""
    if not isinstance(expected, Version):
        return None
    found: BadVersion | None = original("absent_is_not_checked")(path, entry, expected)
    return found


@planted("everybody_is_the_owner", target="anabranch.metadata.entries:owned_by")
def everybody_is_the_owner(entry: Entry, session: int) -> bool:
    """An ephemeral node seems to belong to whoever looks at it."""
    del session
    return entry.owner != 0


@planted("sequences_count_down", target="anabranch.metadata.tree:Tree._next_number")
def sequences_count_down(self: Tree, put: Put) -> int:
    """Sequential nodes get smaller and smaller numbers."""
    number: int = original("sequences_count_down")(self, put)
    return 10**6 - number


@planted("sequences_count_children", target="anabranch.metadata.tree:Tree._next_number")
def sequences_count_children(self: Tree, put: Put) -> int:
    """A number is given out again once its node was deleted."""
    return len(self.children(parent_of(put.path)))


@planted("snapshot_forgets_sequences", target="anabranch.metadata.snapshot:encode_nodes")
def snapshot_forgets_sequences(nodes: Sequence[tuple[str, Entry]]) -> bytes:
    """The counters of sequential nodes are not stored."""
    poorer = [(path, entry._replace(next_sequence=0)) for path, entry in nodes]
    encoded: bytes = original("snapshot_forgets_sequences")(poorer)
    return encoded


@planted(
    "snapshot_checksums_are_passed_over",
    target="anabranch.metadata.snapshot:SnapshotReader._next_block",
)
def snapshot_checksums_are_passed_over(self: SnapshotReader) -> tuple[int, bytes]:
    """Whatever is in a block is taken for what was written."""
    kind, length, _ = _BLOCK.unpack_from(self._content, self._offset)
    start = self._offset + _BLOCK.size
    self._offset = start + length
    return kind, self._content[start : self._offset]


@planted(
    "dead_process_keeps_its_session",
    target="anabranch.metadata.state_machine:StateMachine.local_sessions",
)
def dead_process_keeps_its_session(self: StateMachine) -> tuple[int, ...]:
    """Whoever opens a folder leaves the session of the process before as it is."""
    del self
    return ()


@planted("modifications_are_not_told", target="anabranch.metadata.watching:EventHistory.publish")
def modifications_are_not_told(self: EventHistory, events: Sequence[Event]) -> None:
    """Watches hear of new and of deleted nodes only."""
    told = [event for event in events if event.kind is not EventKind.MODIFIED]
    original("modifications_are_not_told")(self, told)


@planted("gap_is_passed_over", target="anabranch.metadata.watching:EventHistory.number_after")
def gap_is_passed_over(self: EventHistory, since: Revision) -> int:
    """Who resumes from a point that is not known any more is not told so."""
    number: int = original("gap_is_passed_over")(self, since)
    return number if number >= 0 else self.end_number


@planted("batch_stops_at_a_refusal", target="anabranch.metadata.tree:Tree.apply")
def batch_stops_at_a_refusal(
    self: Tree, operations: Sequence[Operation], *, epoch: int, wall_ms: int, session: int = 0
) -> Applied:
    """One refused operation takes those behind it along."""
    outcomes: list[Outcome] = []
    events: list[Event] = []
    for operation in operations:
        if outcomes and isinstance(outcomes[-1], AnabranchError):
            outcomes.append(outcomes[-1])
            continue
        one: Applied = original("batch_stops_at_a_refusal")(
            self, [operation], epoch=epoch, wall_ms=wall_ms, session=session
        )
        outcomes += one.outcomes
        events += one.events
    return Applied(outcomes, events)


@planted("batch_goes_out_singly", target="anabranch.metadata.operation_checks:split_checked")
def batch_goes_out_singly(
    operations: Sequence[Operation], outcomes: list[Outcome]
) -> Iterator[tuple[list[int], list[Operation]]]:
    """Every operation of a batch is a command of its own."""
    for place, operation in enumerate(operations):
        try:
            check_operation(operation)
        except AnabranchError as refusal:
            outcomes[place] = refusal
            continue
        yield [place], [operation]


@planted("one_write_at_a_time", target="anabranch.metadata.embedded:EmbeddedBacking.propose")
async def one_write_at_a_time(self: EmbeddedBacking, command: Command) -> Answer:
    """A write is begun only when the one before is durable."""
    while self._answers:
        await asyncio.wait(list(self._answers.values()))
    answer: Answer = await original("one_write_at_a_time")(self, command)
    return answer


@planted("children_are_not_sorted", target="anabranch.metadata.tree:Tree.children")
def children_are_not_sorted(self: Tree, path: str) -> list[str]:
    """Children come in some other order."""
    names: list[str] = original("children_are_not_sorted")(self, path)
    return names[::-1]


@planted("children_are_cut_short", target="anabranch.metadata.tree:Tree.children")
def children_are_cut_short(self: Tree, path: str) -> list[str]:
    """Of very many children only the first are listed."""
    names: list[str] = original("children_are_cut_short")(self, path)
    return names[:10_000]


@planted("scan_takes_all_at_once", target="anabranch.metadata.tree:Tree.page")
def scan_takes_all_at_once(self: Tree, prefix: str, after: str | None) -> Page:
    """A scan makes one list of everything it finds."""
    return list(self._walk(prefix, after))


@planted("values_of_any_size", target="anabranch.metadata.operation_checks:_check_value")
def values_of_any_size(path: str, value: bytes) -> None:
    """A value may be as large as it likes."""
    del path, value


@planted("guards_are_not_checked", target="anabranch.metadata.tree:Tree._fenced")
def guards_are_not_checked(self: Tree, guard: Guard | None) -> Fenced | None:
    """A write goes ahead although the node that guards it is another, or gone."""
    del self, guard
    return None


@planted("old_index_keys_stay", target="anabranch.metadata.indexes:SecondaryIndexes.replace")
def old_index_keys_stay(
    self: SecondaryIndexes, path: str, old: tuple[IndexKey, ...], new: tuple[IndexKey, ...]
) -> None:
    """A node is found under keys that it had before, too."""
    added = tuple(key for key in new if key not in old)
    original("old_index_keys_stay")(self, path, (), added)


@planted("restored_versions_begin_anew", target="anabranch.metadata.tree:Tree._restore")
def restored_versions_begin_anew(self: Tree, record: Record, moment: Any) -> Outcome:
    """The version of a node is not part of a copy."""
    outcome: Outcome = original("restored_versions_begin_anew")(
        self, record._replace(native_version=0), moment
    )
    return outcome


@planted("credentials_are_shown", target="anabranch.metadata.credentials:Credentials.__repr__")
def credentials_are_shown(self: Credentials) -> str:
    """Whoever prints credentials shows passwords and tokens."""
    return f"Credentials({self.identities!r}, {self.oxia_token!r})"


@planted("refusal_tells_the_token", target="anabranch.metadata.oxia.client:OxiaClient._refusal")
def refusal_tells_the_token(self: OxiaClient, error: CallFailed, refused: bool) -> AnabranchError:
    """What a server says of a token is shown with the token in it."""
    del refused
    return ConfigError(f"Oxia does not accept the credentials: {error.detail}")
