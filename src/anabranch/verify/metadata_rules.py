"""The rules over a metadata history. Pure.

Each key is judged by its versions: a version is written once and replaced at most once, so the
acknowledged writes of a key form a chain, and every read, change and final value must be on it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from anabranch.limits import FINDINGS_PER_RULE_MAX
from anabranch.verify.metadata_facts import MetadataFacts, PathFacts, Watcher, Write
from anabranch.verify.metadata_records import Op, RevisionTuple, Seen, VersionTuple
from anabranch.verify.verdict import Status

_GAP: Final = "gap"
Findings = Iterator[str]


def lost(facts: MetadataFacts) -> Findings:
    """An acknowledged write is not there in the end, and nothing replaced it."""
    if facts.held is None:
        return
    for path, of in facts.paths.items():
        held = facts.held.get(path)
        if not of.puts:
            continue
        last = of.puts[-1]
        if held is None:
            if not of.may_be_deleted_after(last, until=float("inf")):
                yield f"{path} is gone, nobody deleted it: {last}"
        elif held.revision < last.at:
            yield f"{path} holds {held.value!r} of {held.revision}, older than {last}"
        elif held.revision == last.at and held.value != last.call.value:
            yield f"{path} holds {held.value!r}, not what was acknowledged: {last}"


def phantom(facts: MetadataFacts) -> Findings:
    """A value is there, was read or came back that nobody can have written or left there."""
    for path, node in (facts.held or {}).items():
        of = facts.paths.get(path, PathFacts())
        if node.value not in of.values:
            yield f"{path} holds {node.value!r}, which nobody wrote there"
            continue
        deleted = [w for w in of.deletes if w.is_acknowledged]
        if any(write.call.expected == node.version for write in deleted):
            yield f"{path} holds {node.value!r} of version {node.version}, which was deleted"
        yield from _wrong_origin(of, path, node.value, node.version, node.revision)
    for client, read in facts.reads:
        of = facts.paths.get(read.path, PathFacts())
        if read.value is None:
            continue
        if read.value not in of.values:
            yield f"{client} read {read.value!r} at {read.path}, which nobody wrote there"
            continue
        assert read.version is not None, "a node that was read has a version"
        assert read.revision is not None, "a node that was read has a revision"
        yield from _wrong_origin(of, read.path, read.value, read.version, read.revision)


def _wrong_origin(
    of: PathFacts, path: str, value: str, version: VersionTuple, revision: RevisionTuple
) -> Findings:
    for write in of.puts:
        if write.call.value == value and (write.version, write.at) != (version, revision):
            yield f"{path} shows {value!r} as {version} at {revision}, not as acknowledged: {write}"


def stale(facts: MetadataFacts) -> Findings:
    """A read, synced first, shows less than was acknowledged before it began."""
    for client, read in facts.reads:
        of = facts.paths.get(read.path)
        before = [w for w in of.puts if w.ended <= read.t0] if of is not None else []
        if of is None or not before:
            continue
        newest = before[-1]
        if read.value is None:
            if not of.may_be_deleted_after(newest, until=read.t):
                yield f"{client} found nothing at {read.path} after {newest}"
            continue
        assert read.revision is not None, "a node that was read has a revision"
        if read.revision < newest.at:
            yield f"{client} read {read.value!r} of {read.revision} after {newest}"
        gone = [w for w in of.deletes if w.is_acknowledged and w.ended <= read.t0]
        if any(write.call.expected == read.version for write in gone):
            yield f"{client} read {read.value!r} of {read.version} after it was deleted"


def lost_update(facts: MetadataFacts) -> Findings:
    """Two conditional writes both replaced one version, or one replaced what was not newest."""
    for path, of in facts.paths.items():
        acknowledged = [*of.puts, *(w for w in of.deletes if w.is_acknowledged)]
        conditional = [w for w in acknowledged if w.call.expected is not None]
        taken = Counter(write.call.expected for write in conditional)
        for version, count in taken.items():
            if count > 1:
                both = "; ".join(str(w) for w in conditional if w.call.expected == version)
                yield f"version {version} of {path} was replaced {count} times: {both}"
        index_of = {write.version: index for index, write in enumerate(of.puts)}
        for index, write in enumerate(of.puts):
            replaced = index_of.get(write.call.expected) if write.call.expected else None
            if replaced is not None and replaced != index - 1:
                yield f"{write} replaced {of.puts[replaced]}, which was not the newest"
            if write.call.op is Op.CREATE and index:
                before = of.puts[index - 1]
                if not of.may_be_deleted_after(before, until=write.ended):
                    yield f"{write} although {before} was there and nobody deleted it"


def regress(facts: MetadataFacts) -> Findings:
    """Versions or revisions repeat, or go back although one write began after another's end."""
    puts = [w for w in facts.writes if w.is_acknowledged and not w.is_delete]
    revisions = Counter(write.at for write in puts)
    yield from (f"{n} writes have revision {at}" for at, n in revisions.items() if n > 1)
    for path, of in facts.paths.items():
        versions = Counter(write.version for write in of.puts)
        yield from (f"{n} writes of {path} have version {v}" for v, n in versions.items() if n > 1)
    ended = sorted(puts, key=lambda write: write.ended)
    newest: Write | None = None
    index = 0
    for write in sorted(puts, key=lambda write: write.call.t):
        while index < len(ended) and ended[index].ended < write.call.t:
            if newest is None or ended[index].at > newest.at:
                newest = ended[index]
            index += 1
        if newest is not None and write.at < newest.at:
            yield f"{write} began after this had ended: {newest}"


def sequences(facts: MetadataFacts) -> Findings:
    """Numbers of sequential nodes repeat, or do not rise with the revision."""
    by_name: dict[str, list[Write]] = {}
    for write in facts.writes:
        if write.call.op is Op.SEQUENCE and write.is_acknowledged:
            by_name.setdefault(write.call.path, []).append(write)
    for name, writes in by_name.items():
        last = -1
        for write in sorted(writes, key=lambda write: write.at):
            digits = write.path[len(name) :]
            if not write.path.startswith(name) or not digits.isdecimal():
                yield f"{write} is not {name} with a number"
            elif int(digits) <= last:
                yield f"{write} has number {int(digits)} after {last}"
            else:
                last = int(digits)


def watch_order(facts: MetadataFacts) -> Findings:
    """A watch reported a change twice or out of order."""
    for watcher in facts.watchers:
        last = watcher.since
        exists: dict[str, bool] = {}
        for seen in watcher.seen:
            if seen.kind == _GAP:
                exists.clear()
                last = max(last, seen.revision)
                continue
            if seen.revision <= last:
                yield f"{watcher.client} saw {_said(seen)} after {last}"
            last = max(last, seen.revision)
            before = exists.get(seen.path)
            if before is not None and before is (seen.kind == "created"):
                there = "was there" if before else "was not there"
                yield f"{watcher.client} saw {_said(seen)} although it {there}"
            exists[seen.path] = seen.kind != "deleted"


def watch_complete(facts: MetadataFacts) -> Findings:
    """A watch missed an acknowledged change, or reported one that nobody asked for."""
    for watcher in facts.watchers:
        yield from (
            f"{watcher.client} never saw the last write, {end.revision}"
            for end in watcher.ends
            if not end.complete
        )
        gap = max((s.revision for s in watcher.seen if s.kind == _GAP), default=watcher.since)
        end = watcher.seen[-1].revision if watcher.seen else watcher.since
        reported = {(s.path, s.revision) for s in watcher.seen if s.kind in ("created", "modified")}
        deleted = Counter(s.path for s in watcher.seen if s.kind == "deleted")
        for path, of in facts.paths.items():
            for write in of.puts:
                if gap < write.at <= end and (path, write.at) not in reported:
                    yield f"{watcher.client} never saw {write}"
            sure = sum(w.is_acknowledged for w in of.deletes)
            if gap == watcher.since and watcher.ends and deleted[path] < sure:
                yield f"{watcher.client} saw {deleted[path]} of {sure} deletes of {path}"
        yield from _unasked(facts, watcher, reported, deleted)


def _unasked(
    facts: MetadataFacts,
    watcher: Watcher,
    reported: set[tuple[str, RevisionTuple]],
    deleted: Counter[str],
) -> Findings:
    unexplained: Counter[str] = Counter()
    for path, revision in sorted(reported):
        of = facts.paths.get(path, PathFacts())
        if not any(write.at == revision for write in of.puts):
            unexplained[path] += 1
    doubtful = Counter(
        write.path if write.call.op is not Op.SEQUENCE else write.call.path
        for write in facts.writes
        if write.outcome.value == "unknown" and not write.is_delete
    )
    for path, count in sorted(unexplained.items()):
        allowed = doubtful[path] + sum(
            n for name, n in doubtful.items() if path.startswith(name) and path != name
        )
        if count > allowed:
            yield f"{watcher.client} saw {count} changes of {path} that nobody asked for"
    for path, count in sorted(deleted.items()):
        asked = len(facts.paths.get(path, PathFacts()).deletes)
        if count > asked:
            yield f"{watcher.client} saw {count} deletes of {path}, {asked} were asked for"


def _said(seen: Seen) -> str:
    return f"{seen.path} {seen.kind} at {seen.revision}"


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
            found = list(rule(facts))
            self.violations[name] = len(found)
            self.findings[name] = found[:FINDINGS_PER_RULE_MAX]
        self.reasons: Sequence[str] = [
            reason
            for reason, is_so in (
                ("no write was acknowledged", not facts.counts["acknowledged"]),
                ("what the store held in the end is not on record", facts.held is None),
                ("nothing was watched to the end", not any(w.ends for w in facts.watchers)),
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
