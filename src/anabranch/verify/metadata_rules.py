"""The rules over a metadata history.

Each key is judged by its versions: a version is written once and replaced at most once, so the
acknowledged writes of a key form a chain, and every read, change and final value must be on it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from anabranch.verify.limits import FINDINGS_PER_RULE_MAX
from anabranch.verify.metadata_facts import GAP, Key, MetadataFacts, revision_of
from anabranch.verify.verdict import Status

_NAMED_MAX: Final = 3
"""How many of the writes that made the same mistake a finding names."""
_FOREVER: Final = float("inf")
Findings = Iterator[str]


def lost(facts: MetadataFacts) -> Findings:
    """An acknowledged write is not there in the end, and nothing replaced it."""
    if facts.finder is None:
        return
    last = "SELECT path, id, max(at), value FROM writes WHERE kind = 'put' GROUP BY path"
    for path, write, at, value in facts.db.execute(last):
        held = facts.db.execute(
            "SELECT value, at FROM held WHERE finder = ? AND path = ?", (facts.finder, path)
        ).fetchone()
        if held is None:
            if not facts.may_be_deleted_after(path, at, until=_FOREVER):
                yield f"{path} is gone, nobody deleted it: {facts.words(write)}"
        elif held[1] < at:
            older = f"{held[0]!r} of {revision_of(held[1])}, older than {facts.words(write)}"
            yield f"{path} holds {older}"
        elif held == (value, at):
            continue
        elif held[1] == at:
            yield f"{path} holds {held[0]!r}, not what was acknowledged: {facts.words(write)}"


def phantom(facts: MetadataFacts) -> Findings:
    """A value is there, was read or came back that nobody can have written or left there."""
    held = "SELECT path, value, version, at FROM held WHERE finder = ?"
    for path, value, version, at in facts.db.execute(held, (facts.finder,)):
        if not _may_be_written(facts, path, value):
            yield f"{path} holds {value!r}, which nobody wrote there"
            continue
        if facts.is_gone_by(path, version, _FOREVER):
            yield f"{path} holds {value!r} of version {version}, which was deleted"
        yield from _wrong_origin(facts, path, value, version, at)
    reads = "SELECT client, path, value, version, at FROM reads WHERE value IS NOT NULL"
    for client, path, value, version, at in facts.db.execute(reads):
        if not _may_be_written(facts, path, value):
            yield f"{client} read {value!r} at {path}, which nobody wrote there"
            continue
        yield from _wrong_origin(facts, path, value, version, at)


def _may_be_written(facts: MetadataFacts, path: str, value: str) -> bool:
    sql = "SELECT 1 FROM writes INDEXED BY by_value WHERE path = ? AND value = ?"
    return facts.one(f"{sql} AND kind IN ('put', 'doubt') LIMIT 1", path, value) is not None


def _wrong_origin(facts: MetadataFacts, path: str, value: str, version: str, at: Key) -> Findings:
    sql = (
        "SELECT id FROM writes INDEXED BY by_value WHERE path = ? AND value = ? AND kind = 'put'"
        " AND (version <> ? OR at <> ?) LIMIT 1"
    )
    write = facts.one(sql, path, value, version, at)
    if write is not None:
        shown = f"{path} shows {value!r} as {version} at {revision_of(at)}"
        yield f"{shown}, not as acknowledged: {facts.words(write)}"


def stale(facts: MetadataFacts) -> Findings:
    """A read, synced first, shows less than was acknowledged before it began."""
    reads = "SELECT client, path, value, version, at, began, ended FROM reads"
    for client, path, value, version, at, began, ended in facts.db.execute(reads):
        newest = facts.newest_by(path, began)
        if newest is None:
            continue
        if value is None:
            if not facts.may_be_deleted_after(path, newest, until=ended):
                yield f"{client} found nothing at {path} after {facts.put_at(path, newest)}"
            continue
        if at < newest:
            older = f"{value!r} of {revision_of(at)}"
            yield f"{client} read {older} after {facts.put_at(path, newest)}"
        if facts.is_gone_by(path, version, began):
            yield f"{client} read {value!r} of {version} after it was deleted"


def lost_update(facts: MetadataFacts) -> Findings:
    """Two conditional writes both replaced one version, or one replaced what was not newest."""
    twice = (
        "SELECT path, expected, count(*) FROM writes WHERE kind IN ('put', 'gone')"
        " AND expected IS NOT NULL GROUP BY path, expected HAVING count(*) > 1"
    )
    some = (
        "SELECT id FROM writes INDEXED BY by_expected WHERE kind IN ('put', 'gone')"
        " AND path = ? AND expected = ? LIMIT ?"
    )
    for path, version, count in facts.db.execute(twice):
        ids = facts.db.execute(some, (path, version, _NAMED_MAX))
        both = "; ".join(facts.words(write) for (write,) in ids)
        yield f"version {version} of {path} was replaced {count} times: {both}"
    chain = (
        "SELECT w.id, w.path, w.op, w.expected, w.ended, b.id, b.at, b.version FROM chain"
        " JOIN writes w ON w.id = chain.id LEFT JOIN writes b ON b.id = chain.before"
    )
    put_of = "SELECT id FROM writes WHERE kind = 'put' AND path = ? AND version = ? LIMIT 1"
    for write, path, op, expected, ended, before, at, version in facts.db.execute(chain):
        if expected is not None and expected != version:
            replaced = facts.one(put_of, path, expected)
            if replaced is not None:
                old = facts.words(replaced)
                yield f"{facts.words(write)} replaced {old}, which was not the newest"
        if op != "create" or before is None:
            continue
        if not facts.may_be_deleted_after(path, at, until=ended):
            there = f"although {facts.words(before)} was there and nobody deleted it"
            yield f"{facts.words(write)} {there}"


def regress(facts: MetadataFacts) -> Findings:
    """Versions or revisions repeat, or go back although one write began after another's end."""
    puts = "FROM writes WHERE kind = 'put'"
    same = f"SELECT at, count(*) {puts} GROUP BY at HAVING count(*) > 1"
    for at, count in facts.db.execute(same):
        yield f"{count} writes have revision {revision_of(at)}"
    same = f"SELECT path, version, count(*) {puts} GROUP BY path, version HAVING count(*) > 1"
    for path, version, count in facts.db.execute(same):
        yield f"{count} writes of {path} have version {version}"
    ends = facts.db.execute(f"SELECT ended, at, id {puts} ORDER BY ended")
    end = ends.fetchone()
    newest: tuple[Key, int] | None = None
    for began, at, write in facts.db.execute(f"SELECT began, at, id {puts} ORDER BY began"):
        while end is not None and end[0] < began:
            if newest is None or end[1] > newest[0]:
                newest = end[1], end[2]
            end = ends.fetchone()
        if newest is not None and at < newest[0]:
            yield f"{facts.words(write)} began after this had ended: {facts.words(newest[1])}"


def sequences(facts: MetadataFacts) -> Findings:
    """Numbers of sequential nodes repeat, or do not rise with the revision."""
    made = "SELECT id, asked, path FROM writes WHERE kind = 'put' AND op = 'sequence'"
    name, last = None, -1
    for write, asked, path in facts.db.execute(f"{made} ORDER BY asked, at, id"):
        if asked != name:
            name, last = asked, -1
        digits = path[len(asked) :]
        if not path.startswith(asked) or not digits.isdecimal():
            yield f"{facts.words(write)} is not {asked} with a number"
        elif int(digits) <= last:
            yield f"{facts.words(write)} has number {int(digits)} after {last}"
        else:
            last = int(digits)


def watch_order(facts: MetadataFacts) -> Findings:
    """A watch reported a change twice or out of order."""
    changes = (
        "SELECT kind, path, at, lag(kind) OVER (PARTITION BY path, gaps ORDER BY id) FROM seen"
        " WHERE watch = ? ORDER BY id"
    )
    for watch, client, since in facts.db.execute("SELECT id, client, since FROM watches"):
        last = since
        for kind, path, at, before in facts.db.execute(changes, (watch,)):
            if kind != GAP:
                said = f"{client} saw {path} {kind} at {revision_of(at)}"
                if at <= last:
                    yield f"{said} after {revision_of(last)}"
                if before is not None and (before != "deleted") is (kind == "created"):
                    there = "was there" if before != "deleted" else "was not there"
                    yield f"{said} although it {there}"
            last = max(last, at)


def watch_complete(facts: MetadataFacts) -> Findings:
    """A watch missed an acknowledged change, or reported one that nobody asked for."""
    for watch, client, since in facts.db.execute("SELECT id, client, since FROM watches"):
        ends = "SELECT at FROM ends WHERE watch = ? AND NOT complete"
        for (at,) in facts.db.execute(ends, (watch,)):
            yield f"{client} never saw the last write, {revision_of(at)}"
        last_gap = facts.one("SELECT max(at) FROM seen WHERE watch = ? AND kind = 'gap'", watch)
        last_seen = facts.one("SELECT at FROM seen WHERE watch = ? ORDER BY id DESC LIMIT 1", watch)
        missed = (
            "SELECT id FROM writes w WHERE kind = 'put' AND at > ? AND at <= ? AND NOT EXISTS ("
            "SELECT 1 FROM seen INDEXED BY seen_at WHERE watch = ? AND path = w.path"
            " AND at = w.at AND kind IN ('created', 'modified')) ORDER BY path, at"
        )
        for (write,) in facts.db.execute(missed, (last_gap or since, last_seen or since, watch)):
            yield f"{client} never saw {facts.words(write)}"
        is_ended = facts.one("SELECT 1 FROM ends WHERE watch = ? LIMIT 1", watch)
        if is_ended and (last_gap is None or last_gap == since):
            sure = "SELECT path, count(*) FROM writes WHERE kind = 'gone' GROUP BY path"
            for path, count in facts.db.execute(sure):
                found = _deletes_seen(facts, watch, path)
                if found < count:
                    yield f"{client} saw {found} of {count} deletes of {path}"
        yield from _unasked(facts, watch, client)


def _deletes_seen(facts: MetadataFacts, watch: int, path: str) -> int:
    sql = "SELECT count(*) FROM seen INDEXED BY seen_at WHERE watch = ? AND path = ?"
    return int(facts.one(f"{sql} AND kind = 'deleted'", watch, path))


def _unasked(facts: MetadataFacts, watch: int, client: str) -> Findings:
    unexplained = (
        "SELECT path, count(DISTINCT at) FROM seen s WHERE watch = ?"
        " AND kind IN ('created', 'modified') AND NOT EXISTS (SELECT 1 FROM writes"
        " WHERE kind = 'put' AND path = s.path AND at = s.at) GROUP BY path"
    )
    for path, count in facts.db.execute(unexplained, (watch,)):
        if count > _doubtful(facts, path):
            yield f"{client} saw {count} changes of {path} that nobody asked for"
    deletes = "SELECT path, count(*) FROM seen WHERE watch = ? AND kind = 'deleted' GROUP BY path"
    tried = "SELECT count(*) FROM writes WHERE kind IN ('gone', 'perhaps') AND path = ?"
    for path, count in facts.db.execute(deletes, (watch,)):
        asked = facts.one(tried, path)
        if count > asked:
            yield f"{client} saw {count} deletes of {path}, {asked} were asked for"


def _doubtful(facts: MetadataFacts, path: str) -> int:
    """How many writes of unknown outcome can have changed a node."""
    sql = "SELECT count(*) FROM writes WHERE kind = 'doubt' AND path = ?"
    count = int(facts.one(f"{sql} AND op <> 'sequence'", path))
    name = path
    while name[-1:].isdecimal():  # a sequential node: its name and some digits
        name = name[:-1]
        count += int(facts.one(f"{sql} AND op = 'sequence'", name))
    return count


RULES: Final[Mapping[str, Callable[[MetadataFacts], Findings]]] = {
    "lost": lost,
    "phantom": phantom,
    "stale read": stale,
    "lost update": lost_update,
    "version regress": regress,
    "sequence": sequences,
    "watch order": watch_order,
    "watch complete": watch_complete,
}


class MetadataVerdict:
    """What the rules say of a run."""

    def __init__(self, facts: MetadataFacts) -> None:
        self.counts = facts.counts
        self.findings: dict[str, list[str]] = {}
        self.violations: dict[str, int] = {}
        for name, rule in RULES.items():
            found = rule(facts)
            self.findings[name] = list(islice(found, FINDINGS_PER_RULE_MAX))
            self.violations[name] = len(self.findings[name]) + sum(1 for _ in found)
        self.reasons: Sequence[str] = [
            reason
            for reason, is_so in (
                ("no write was acknowledged", not facts.counts["acknowledged"]),
                ("what the store held in the end is not on record", facts.finder is None),
                ("nothing was watched to the end", not facts.one("SELECT 1 FROM ends")),
            )
            if is_so
        ]
        if any(self.violations.values()):
            self.status = Status.VIOLATED
        else:
            self.status = Status.INCOMPLETE if self.reasons else Status.CLEAN

    def as_json(self) -> dict[str, object]:
        """The verdict as JSON values."""
        return {
            "format": "anabranch-metadata-verdict",
            "version": 1,
            "status": self.status.value,
            "reasons": list(self.reasons),
            "counts": self.counts,
            "rules": [
                {"title": name, "violations": count, "findings": self.findings[name]}
                for name, count in self.violations.items()
            ],
        }

    def as_text(self) -> str:
        """The verdict for a terminal."""
        lines = ["  ".join(f"{name} {count:,}" for name, count in self.counts.items()), ""]
        for name, count in self.violations.items():
            lines.append(f"{name:<16} {count:>11,}")
            lines += [f"    {finding}" for finding in self.findings[name][:5]]
        lines += ["", *(f"not enough to judge: {reason}" for reason in self.reasons)]
        return "\n".join([*lines, f"verdict: {self.status.value}"])
