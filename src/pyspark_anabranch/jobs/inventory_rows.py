"""What an inventory has of a ledger: that it exists, that something names it, what it is. Pure.

Rows travel from tasks to the driver, and are kept as JSON.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """What a ledger is found to be."""

    USED = "used"
    ORPHAN = "orphan"
    """Nothing names it, and nobody can be about to."""
    YOUNG = "young"
    """Nothing names it, but whoever made it may be about to."""
    UNKNOWN_MAKER = "unknown maker"
    """Nothing names it where we know to look; its maker may keep its names elsewhere."""
    NOT_JUDGED = "not judged"
    """Nothing names it, but what names ledgers is not known for sure."""
    UNREADABLE = "unreadable"
    """Its metadata are damaged, or of a format that is not known here."""


class LedgerRow(NamedTuple):
    """A ledger that exists."""

    ledger_id: int
    state: str = ""
    entries: int = 0
    """Of one that is not closed: 0."""
    size_bytes: int = 0
    copies: int = 1
    """How many bookies have each entry."""
    created_ms: int = 0
    maker: str = ""
    """What part of which software made it, as it says."""
    key: str = ""
    """Under which it says for what it was made; empty if it does not."""
    made_for: str = ""
    problem: str = ""
    """Why its metadata cannot be read."""


class NameRow(NamedTuple):
    """A ledger that something names."""

    ledger_id: int
    cluster: str
    """The storage cluster that it is in; empty for the first."""
    user: str
    key: str
    name: str
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class JudgedLedger:
    """A ledger, and what it is found to be."""

    row: LedgerRow
    kind: Kind
    proof: str = ""


@dataclass(slots=True)
class Size:
    """How much there is of something."""

    ledgers: int = 0
    entries: int = 0
    size_bytes: int = 0
    stored_bytes: int = 0
    """All copies together."""

    def add(self, row: LedgerRow) -> None:
        """Count one more ledger."""
        self.ledgers += 1
        self.entries += row.entries
        self.size_bytes += row.size_bytes
        self.stored_bytes += row.size_bytes * row.copies

    def as_json(self) -> dict[str, int]:
        """For machines."""
        return {
            "ledgers": self.ledgers,
            "entries": self.entries,
            "bytes": self.size_bytes,
            "stored_bytes": self.stored_bytes,
        }


@dataclass(slots=True)
class Inventory:
    """Everything that exists against everything that is named."""

    ledgers: dict[int, LedgerRow]
    names: dict[int, list[NameRow]]
    judged: list[JudgedLedger] = field(default_factory=list)
    missing: list[NameRow] = field(default_factory=list)
    """Named, and not there."""
    whole: Size = field(default_factory=Size)
    topics: dict[str, Size] = field(default_factory=dict)

    @classmethod
    def of(cls, ledgers: Iterable[LedgerRow], names: Iterable[NameRow]) -> "Inventory":
        """Bring both together."""
        by_id: dict[int, list[NameRow]] = defaultdict(list)
        for name in names:
            by_id[name.ledger_id].append(name)
        return cls({row.ledger_id: row for row in ledgers}, dict(by_id))

    def doubt(self) -> str:
        """Why these names may be those of other ledgers; empty if they are not.

        The same number alone proves nothing: every cluster counts from the same one. A ledger has
        to say that it was made for what names it, and none may say otherwise.
        """
        agree, stranger = 0, ""
        for ledger_id, row in self.ledgers.items():
            for name in self.names.get(ledger_id, ()):
                if name.key == row.key and not name.cluster:
                    agree += name.name == row.made_for
                    if name.name != row.made_for:
                        stranger = (
                            f"ledger {ledger_id} was made for {row.made_for}, and {name.user}"
                        )
        if stranger:
            return f"{stranger} names one of that number: the metadata are those of other ledgers"
        if not agree and self.ledgers:
            return (
                "no ledger was made for what names it: nothing says that these metadata are theirs"
            )
        return ""

    def judge(self, before_ms: int, makers: Sequence[str], doubt: str) -> None:
        """Say of each ledger what it is, and which are missing.

        Args:
            before_ms: one that was made later is young.
            makers: those whose documents were looked through.
            doubt: why nothing that is not named may be called an orphan; empty if it may.
        """
        for ledger_id in sorted(self.ledgers):
            row = self.ledgers[ledger_id]
            self.judged.append(JudgedLedger(row, self._kind(row, before_ms, makers, doubt)))
            self._count(row)
        self.missing = [
            name
            for ledger_id, names in sorted(self.names.items())
            for name in names[:1]
            if ledger_id not in self.ledgers and not name.is_elsewhere and not name.cluster
        ]

    def _kind(self, row: LedgerRow, before_ms: int, makers: Sequence[str], doubt: str) -> Kind:
        if row.ledger_id in self.names:
            # In whichever storage cluster: to be careful costs nothing.
            return Kind.UNREADABLE if row.problem else Kind.USED
        if row.problem:
            return Kind.UNREADABLE
        if row.created_ms >= before_ms:
            return Kind.YOUNG
        if row.maker not in makers:
            return Kind.UNKNOWN_MAKER
        return Kind.NOT_JUDGED if doubt else Kind.ORPHAN

    def _count(self, row: LedgerRow) -> None:
        self.whole.add(row)
        names = self.names.get(row.ledger_id)
        if names is not None:
            self.topics.setdefault(topic_of(names[0]), Size()).add(row)

    def counts(self) -> dict[str, int]:
        """How many ledgers there are of each kind."""
        found = Counter(each.kind for each in self.judged)
        return {**{kind.value: found[kind] for kind in Kind}, "missing": len(self.missing)}

    def of_kind(self, kind: Kind) -> list[JudgedLedger]:
        """The ledgers of a kind, by id."""
        return [each for each in self.judged if each.kind is kind]

    def namespaces(self) -> dict[str, Size]:
        """What the topics of each namespace have together."""
        found: dict[str, Size] = {}
        for topic, size in self.topics.items():
            whole = found.setdefault(namespace_of(topic), Size())
            whole.ledgers += size.ledgers
            whole.entries += size.entries
            whole.size_bytes += size.size_bytes
            whole.stored_bytes += size.stored_bytes
        return found


def topic_of(name: NameRow) -> str:
    """For which topic something names a ledger, as its managed ledger or its schema is called."""
    return name.name


def namespace_of(topic: str) -> str:
    """The namespace of a topic, by the name of its managed ledger or of its schema."""
    parts = topic.split("/")
    return "/".join(parts[: -2 if "persistent" in parts[2:] else -1])


def largest(sizes: dict[str, Size], what: str, count: int) -> list[dict[str, Any]]:
    """The largest of some sizes, for machines."""
    order = sorted(sizes.items(), key=lambda item: (-item[1].stored_bytes, item[0]))
    return [{what: name, **size.as_json()} for name, size in order[:count]]
