"""What the rules over a metadata history know: every write with its outcome, by path. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.errors import FormatError
from anabranch.verify.metadata_records import (
    Call,
    Counted,
    Done,
    Held,
    MetadataRecord,
    Note,
    Op,
    Read,
    RevisionTuple,
    Seen,
    VersionTuple,
    Watched,
    Watching,
)
from anabranch.verify.records import Outcome


@dataclass(slots=True)
class Write:
    """One call and what became of it."""

    client: str
    call: Call
    path: str
    outcome: Outcome = Outcome.UNKNOWN
    version: VersionTuple | None = None
    revision: RevisionTuple | None = None
    ended: float = float("inf")

    @property
    def is_acknowledged(self) -> bool:
        """Whether the store said yes."""
        return self.outcome is Outcome.OK

    @property
    def is_delete(self) -> bool:
        """Whether it takes the node away."""
        return self.call.op is Op.DELETE

    @property
    def at(self) -> RevisionTuple:
        """The revision of an acknowledged put."""
        assert self.revision is not None, "an acknowledged put has a revision"
        return self.revision

    def __str__(self) -> str:
        asked = f"{self.client} #{self.call.n} {self.call.op} {self.path}"
        where = f" at {self.revision}" if self.revision else ""
        return f"{asked} {self.call.value!r} -> {self.outcome}{where}"


class Watcher(NamedTuple):
    """What one watch reported, in the order in which it did."""

    client: str
    since: RevisionTuple
    seen: list[Seen]
    ends: list[Watched]


@dataclass(slots=True)
class PathFacts:
    """Everything about one path."""

    puts: list[Write] = field(default_factory=list)
    """Acknowledged, by revision."""
    doubtful_puts: list[Write] = field(default_factory=list)
    deletes: list[Write] = field(default_factory=list)
    """Acknowledged or in doubt."""
    values: set[str] = field(default_factory=set)
    """What may have been written here."""

    def may_be_deleted_after(self, put: Write, *, until: float) -> bool:
        """Whether a delete begun by then can have taken this put, or one after it, away."""
        known = {w.version: w.at for w in self.puts}
        for delete in self.deletes:
            taken = known.get(delete.call.expected)
            if delete.call.t <= until and (taken is None or taken >= put.at):
                return True
        return False


class MetadataFacts:
    """All histories of one run."""

    def __init__(self) -> None:
        self.paths: dict[str, PathFacts] = {}
        self.writes: list[Write] = []
        self.reads: list[tuple[str, Read]] = []
        self.watchers: list[Watcher] = []
        self.held: dict[str, Held] | None = None
        self.notes: list[Note] = []
        self.counts = dict.fromkeys(
            ("records", "calls", "acknowledged", "refused", "unknown", "reads", "seen", "held"), 0
        )

    def take_client(self, client: str, records: Iterable[MetadataRecord]) -> None:
        """Take in the whole history of one client.

        Raises:
            FormatError: if it contradicts itself.
        """
        open_calls: dict[int, Write] = {}
        held: dict[str, Held] = {}
        watcher: Watcher | None = None
        for record in records:
            self.counts["records"] += 1
            if isinstance(record, Call):
                write = open_calls[record.n] = Write(client, record, record.path)
                self.writes.append(write)
            elif isinstance(record, Done):
                self._answer(open_calls.pop(record.n, None), record)
            elif isinstance(record, Read):
                self.reads.append((client, record))
            elif isinstance(record, Watching):
                watcher = Watcher(client, record.revision, [], [])
                self.watchers.append(watcher)
            elif isinstance(record, Seen | Watched):
                if watcher is None:
                    raise FormatError(f"{client}: a change was seen before the watch began")
                (watcher.seen if isinstance(record, Seen) else watcher.ends).append(record)  # type: ignore[arg-type]
            elif isinstance(record, Held):
                held[record.path] = record
            elif isinstance(record, Counted):
                if record.nodes != len(held):
                    raise FormatError(f"{client}: {len(held)} nodes at the end, not {record.nodes}")
                self.held = held
            else:
                self.notes.append(record)

    def _answer(self, write: Write | None, record: Done) -> None:
        if write is None:
            raise FormatError(f"outcome of call {record.n} without the call")
        is_put = not write.is_delete
        if record.r is Outcome.OK and is_put and (record.version and record.revision) is None:
            raise FormatError(f"acknowledged call {record.n} without version and revision")
        write.outcome, write.ended = record.r, record.t
        write.version, write.revision = record.version, record.revision
        write.path = record.path or write.path

    def arrange(self) -> None:
        """Sort everything by path, once all is here."""
        for write in self.writes:
            of = self.paths.setdefault(write.path, PathFacts())
            if write.outcome is Outcome.FAIL:
                continue
            if write.is_delete:
                of.deletes.append(write)
                continue
            of.values.add(write.call.value)
            (of.puts if write.is_acknowledged else of.doubtful_puts).append(write)
        for of in self.paths.values():
            of.puts.sort(key=lambda write: write.at)
        outcomes = [write.outcome for write in self.writes]
        self.counts.update(
            calls=len(outcomes),
            acknowledged=outcomes.count(Outcome.OK),
            refused=outcomes.count(Outcome.FAIL),
            unknown=outcomes.count(Outcome.UNKNOWN),
            reads=len(self.reads),
            seen=sum(len(watcher.seen) for watcher in self.watchers),
            held=len(self.held or ()),
        )
