"""What the rules over a metadata history know: every write with its outcome, by path.

Histories are longer than memory, so all of it is kept in a private database on disk: each record
once, and a few tables made of them by which a rule finds what it needs without a search.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final

from anabranch.errors import FormatError
from anabranch.verify.metadata_records import (
    Call,
    Counted,
    Done,
    Held,
    MetadataRecord,
    Op,
    Read,
    RevisionTuple,
    Seen,
    VersionTuple,
    Watched,
    Watching,
)
from anabranch.verify.records import Outcome
from anabranch.verify.spill import private_database

GAP: Final = "gap"
_TABLES: Final = """
CREATE TABLE writes (id INTEGER PRIMARY KEY, kind TEXT, client TEXT, n INTEGER, op TEXT, path TEXT,
    asked TEXT, value TEXT, expected TEXT, outcome TEXT, version TEXT, at BLOB, began REAL,
    ended REAL);
CREATE TABLE reads (id INTEGER PRIMARY KEY, client TEXT, path TEXT, value TEXT, version TEXT,
    at BLOB, began REAL, ended REAL);
CREATE TABLE watches (id INTEGER PRIMARY KEY, client TEXT, since BLOB);
CREATE TABLE seen (id INTEGER PRIMARY KEY, watch INTEGER, gaps INTEGER, kind TEXT, path TEXT,
    at BLOB);
CREATE TABLE ends (watch INTEGER, at BLOB, complete INTEGER);
CREATE TABLE held (finder TEXT, path TEXT, value TEXT, version TEXT, at BLOB,
    PRIMARY KEY (finder, path)) WITHOUT ROWID;
"""
_ARRANGED: Final = """
CREATE INDEX by_value ON writes (path, value, kind);
CREATE INDEX by_revision ON writes (kind, path, at);
CREATE INDEX by_version ON writes (kind, path, version, at);
CREATE INDEX by_expected ON writes (kind, path, expected, ended);
CREATE INDEX seen_at ON seen (watch, path, at);
-- The put that each put replaced.
CREATE TABLE chain AS
    SELECT id, lag(id) OVER (PARTITION BY path ORDER BY at, id) AS before
    FROM writes WHERE kind = 'put';
-- With the end of each put the newest revision that had been acknowledged by then.
CREATE TABLE newest AS
    SELECT path, ended, id, max(at) OVER (PARTITION BY path ORDER BY ended, id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS at
    FROM writes WHERE kind = 'put';
CREATE INDEX newest_by ON newest (path, ended, id, at);
-- With the beginning of each delete the newest revision that one begun by then can have taken
-- away; a version that nobody acknowledged may be any.
CREATE TABLE reach AS
    SELECT path, began, id, max(taken) OVER (PARTITION BY path ORDER BY began, id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS at
    FROM (SELECT path, began, id, coalesce((
            SELECT max(p.at) FROM writes p INDEXED BY by_version
            WHERE p.kind = 'put' AND p.path = d.path AND p.version = d.expected
        ), x'ffffffffffffffffffffffffffffffff') AS taken
        FROM writes d WHERE kind IN ('gone', 'perhaps'));
CREATE INDEX reach_by ON reach (path, began, id, at);
"""
_REVISION: Final = struct.Struct(">QQ")
_SIGN: Final = 1 << 63
Key = bytes
"""A revision such that the order of bytes is that of revisions."""


def key_of(revision: RevisionTuple) -> Key:
    """Return a revision for the database.

    Raises:
        FormatError: if no store can have given it.
    """
    try:
        return _REVISION.pack(*(part + _SIGN for part in revision))
    except struct.error:
        raise FormatError(f"no store has a revision {revision}") from None


def revision_of(key: Key) -> RevisionTuple:
    """Return the revision of a key."""
    epoch, index = _REVISION.unpack(key)
    return epoch - _SIGN, index - _SIGN


def _text(version: VersionTuple | None) -> str | None:
    return None if version is None else str(version)


class MetadataFacts:
    """All histories of one run.

    A write is of the kind `put` or `gone` (a delete) if it was acknowledged, `doubt` or `perhaps`
    if its outcome is unknown, and `no` if it was refused.
    """

    def __init__(self) -> None:
        self.db = private_database()
        self.db.executescript(_TABLES)
        self.db.execute("BEGIN")
        self.finder: str | None = None
        """Who found what the store held in the end."""
        self.counts = dict.fromkeys(
            ("records", "calls", "acknowledged", "refused", "unknown", "reads", "seen", "held"), 0
        )

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()

    def take_client(self, client: str, records: Iterable[MetadataRecord]) -> None:
        """Take in the whole history of one client.

        Raises:
            FormatError: if it contradicts itself.
        """
        try:
            self._take_client(client, records)
        except (UnicodeEncodeError, OverflowError) as error:
            raise FormatError(f"{client}: a value that no store holds: {error}") from None

    def _take_client(self, client: str, records: Iterable[MetadataRecord]) -> None:
        # Only calls on their way and those of a client that died are open.
        open_calls: dict[int, Call] = {}
        watch: int | None = None
        gaps = 0
        for record in records:
            self.counts["records"] += 1
            if isinstance(record, Call):
                open_calls[record.n] = record
            elif isinstance(record, Done):
                self._write(client, open_calls.pop(record.n, None), record)
            elif isinstance(record, Read):
                self._read(client, record)
            elif isinstance(record, Watching):
                row = client, key_of(record.revision)
                sql = "INSERT INTO watches (client, since) VALUES (?, ?)"
                watch, gaps = self.db.execute(sql, row).lastrowid, 0
            elif isinstance(record, Seen | Watched):
                if watch is None:
                    raise FormatError(f"{client}: a change was seen before the watch began")
                if isinstance(record, Seen):
                    gaps += record.kind == GAP
                    self._seen(watch, gaps, record)
                else:
                    end = watch, key_of(record.revision), record.complete
                    self.db.execute("INSERT INTO ends VALUES (?, ?, ?)", end)
            elif isinstance(record, Held):
                self.hold(client, record)
            elif isinstance(record, Counted):
                self._counted(client, record)
        for call in open_calls.values():
            self._write(client, call, Done(call.n, Outcome.UNKNOWN, t=float("inf")))

    def _write(self, client: str, call: Call | None, done: Done) -> None:
        if call is None:
            raise FormatError(f"outcome of call {done.n} without the call")
        deletes = call.op is Op.DELETE
        if done.r is Outcome.OK and not deletes and (done.version and done.revision) is None:
            raise FormatError(f"acknowledged call {done.n} without version and revision")
        kind = {
            Outcome.OK: "gone" if deletes else "put",
            Outcome.UNKNOWN: "perhaps" if deletes else "doubt",
            Outcome.FAIL: "no",
        }[done.r]
        self.counts["calls"] += 1
        self.counts[_COUNT_OF[done.r]] += 1
        row = (
            kind,
            client,
            call.n,
            call.op.value,
            done.path or call.path,
            call.path,
            call.value,
            _text(call.expected),
            done.r.value,
            _text(done.version),
            key_of(done.revision) if done.revision is not None else None,
            call.t,
            done.t,
        )
        self.db.execute(f"INSERT INTO writes VALUES (NULL{', ?' * len(row)})", row)

    def _read(self, client: str, read: Read) -> None:
        if read.value is not None and (read.version is None or read.revision is None):
            raise FormatError(f"{client}: read {read.path} without version and revision")
        self.counts["reads"] += 1
        at = key_of(read.revision) if read.revision is not None else None
        row = client, read.path, read.value, _text(read.version), at, read.t0, read.t
        self.db.execute("INSERT INTO reads VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)

    def _seen(self, watch: int, gaps: int, seen: Seen) -> None:
        self.counts["seen"] += 1
        row = watch, -1 if seen.kind == GAP else gaps, seen.kind, seen.path, key_of(seen.revision)
        self.db.execute("INSERT INTO seen VALUES (NULL, ?, ?, ?, ?, ?)", row)

    def hold(self, finder: str, held: Held) -> None:
        """Note a node that somebody found in the end."""
        row = finder, held.path, held.value, _text(held.version), key_of(held.revision)
        self.db.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", row)

    def held_by(self, finder: str) -> int:
        """What somebody found in the end is all there is; return how many nodes that are."""
        self.finder = finder
        nodes: int = self.one("SELECT count(*) FROM held WHERE finder = ?", finder)
        self.counts["held"] = nodes
        return nodes

    def _counted(self, client: str, record: Counted) -> None:
        nodes = self.held_by(client)
        if record.nodes != nodes:
            raise FormatError(f"{client}: {nodes} nodes at the end, not {record.nodes}")

    def arrange(self) -> None:
        """Sort everything, once all is here."""
        self.db.execute("COMMIT")
        self.db.executescript(_ARRANGED)

    # --- what rules ask ----------------------------------------------------------------------

    def one(self, sql: str, *values: Any) -> Any:
        """Return the first value that a query finds, None if it finds nothing."""
        row = self.db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def may_be_deleted_after(self, path: str, at: Key, *, until: float) -> bool:
        """Whether a delete begun by then can have taken this put, or one after it, away."""
        sql = "SELECT at FROM reach WHERE path = ? AND began <= ? ORDER BY began DESC, id DESC"
        reach = self.one(f"{sql} LIMIT 1", path, until)
        return reach is not None and reach >= at

    def newest_by(self, path: str, time: float) -> Key | None:
        """The newest revision that had been acknowledged at a time."""
        sql = "SELECT at FROM newest WHERE path = ? AND ended <= ? ORDER BY ended DESC, id DESC"
        found: Key | None = self.one(f"{sql} LIMIT 1", path, time)
        return found

    def is_gone_by(self, path: str, version: str | None, time: float) -> bool:
        """Whether a version had been deleted, surely, at a time."""
        sql = "SELECT ended FROM writes INDEXED BY by_expected WHERE kind = 'gone' AND path = ?"
        ended = self.one(f"{sql} AND expected = ? ORDER BY ended LIMIT 1", path, version)
        return ended is not None and ended <= time

    def put_at(self, path: str, at: Key) -> str:
        """The put of a revision, in words."""
        sql = "SELECT id FROM writes WHERE kind = 'put' AND path = ? AND at = ?"
        return self.words(self.one(f"{sql} LIMIT 1", path, at))

    def words(self, write: int) -> str:
        """A write in words."""
        sql = "SELECT client, n, op, path, value, outcome, at FROM writes WHERE id = ?"
        client, n, op, path, value, outcome, at = self.db.execute(sql, (write,)).fetchone()
        where = f" at {revision_of(at)}" if at is not None else ""
        return f"{client} #{n} {op} {path} {value!r} -> {outcome}{where}"


_COUNT_OF: Final = {
    Outcome.OK: "acknowledged",
    Outcome.FAIL: "refused",
    Outcome.UNKNOWN: "unknown",
}
