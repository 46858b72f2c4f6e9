"""What a metadata history is made of, and its JSON lines. Pure.

One file per client, `NAME.metadata.jsonl`, the header first. A write has two lines, `call` before
the store is asked and `done` when it answered; a call without an answer has an unknown outcome.

| kind | keys |
|---|---|
| `call` | `n` number, `op`, `path`, `value`, `expected` version |
| `done` | `n`, `r` outcome, `path` as written, `version`, `revision`, `err` |
| `read` | `path`, `value` or null, `version`, `revision`, `t0`: asked after a sync begun then |
| `watching` | `revision`: changes after it are watched |
| `seen` | `kind` of the change, `path`, `revision` |
| `watched` | `revision` of the last write, `complete`: whether it was seen in time |
| `final` | `path`, `value`, `version`, `revision`: what the store held in the end |
| `counted` | `nodes`: how many `final` lines there are |
| `event` | `name`, `about`: a fault, a phase |

Every line has `k` (kind) and `t` (seconds of a monotonic clock). A version is
[epoch, native, life], a revision [epoch, index].
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from anabranch.errors import FormatError
from anabranch.verify.records import Outcome

FORMAT: Final = "anabranch-metadata-history"
VERSION: Final = 1
SUFFIX: Final = ".metadata.jsonl"

VersionTuple = tuple[int, int, int]
RevisionTuple = tuple[int, int]


class Op(StrEnum):
    """What a call asks for."""

    PUT = "put"
    """Whatever is there."""
    CREATE = "create"
    """Only if there is nothing."""
    SWAP = "swap"
    """Only if the version is the expected one."""
    DELETE = "delete"
    """Only if the version is the expected one."""
    SEQUENCE = "sequence"
    """A new child with the next number."""


class Call(NamedTuple):
    """A write is about to be asked for."""

    n: int
    op: Op
    path: str
    value: str = ""
    expected: VersionTuple | None = None
    t: float = 0.0


class Done(NamedTuple):
    """The store answered a write; `fail` means that it refused it and changed nothing."""

    n: int
    r: Outcome
    path: str = ""
    version: VersionTuple | None = None
    revision: RevisionTuple | None = None
    err: str = ""
    t: float = 0.0


class Read(NamedTuple):
    """A node was read, after a sync, or found missing."""

    path: str
    value: str | None
    version: VersionTuple | None
    revision: RevisionTuple | None
    t0: float
    t: float = 0.0


class Watching(NamedTuple):
    """A watch began."""

    revision: RevisionTuple
    t: float = 0.0


class Seen(NamedTuple):
    """A watch reported a change."""

    kind: str
    path: str
    revision: RevisionTuple
    t: float = 0.0


class Watched(NamedTuple):
    """The watch is over."""

    revision: RevisionTuple
    complete: bool
    t: float = 0.0


class Held(NamedTuple):
    """A node that the store held in the end."""

    path: str
    value: str
    version: VersionTuple
    revision: RevisionTuple
    t: float = 0.0


class Counted(NamedTuple):
    """All that the store held in the end is on record."""

    nodes: int
    t: float = 0.0


class Note(NamedTuple):
    """A fault or a phase."""

    name: str
    about: str = ""
    t: float = 0.0


MetadataRecord = Call | Done | Read | Watching | Seen | Watched | Held | Counted | Note

_KINDS: Final[Mapping[str, type[MetadataRecord]]] = {
    "call": Call,
    "done": Done,
    "read": Read,
    "watching": Watching,
    "seen": Seen,
    "watched": Watched,
    "final": Held,
    "counted": Counted,
    "event": Note,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def header_line(*, run: str, client: str, prefix: str) -> bytes:
    """Return the first line of a history."""
    fields = {"format": FORMAT, "version": VERSION, "run": run, "client": client, "prefix": prefix}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def parse_header(line: bytes, source: str) -> dict[str, str]:
    """Read the first line.

    Raises:
        FormatError: if the file is no metadata history, or one of an unknown version.
    """
    try:
        fields = json.loads(line)
        found = fields["format"], fields["version"]
    except (ValueError, TypeError, KeyError):
        raise FormatError(f"{source} is no metadata history: its first line is no header") from None
    if found != (FORMAT, VERSION):
        raise FormatError(
            f"{source} has format {found[0]!r} version {found[1]!r}; "
            f"this build reads {FORMAT!r} version {VERSION}"
        )
    try:
        return {name: str(fields[name]) for name in ("run", "client", "prefix")}
    except KeyError as error:
        raise FormatError(f"{source} has a header without {error.args[0]!r}") from None


def encode(record: MetadataRecord) -> bytes:
    """Return the line of a record, newline included."""
    fields = {name: value for name, value in record._asdict().items() if value is not None}
    line = {"k": _NAMES[type(record)], **fields}
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def decode(line: bytes) -> MetadataRecord:
    """Read one line.

    Raises:
        FormatError: saying what is wrong with it.
    """
    try:
        fields: dict[str, Any] = json.loads(line)
        kind = _KINDS.get(fields.pop("k"))
        if kind is None:
            raise ValueError("unknown kind")
        optional = {n: None for n in ("value", "version", "revision") if n in kind._fields}
        given = {**(optional if kind in (Read, Done) else {}), **fields}
        for name, value in given.items():
            given[name] = _checked(name, value)
        missing = [n for n in kind._fields if n not in given and n not in kind._field_defaults]
        if missing or "t" not in given:
            raise ValueError(f"without {', '.join(missing) or 't'}")
        return kind(**given)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        excerpt = repr(line[:120].decode(errors="replace"))
        raise FormatError(f"not a metadata record ({error}): {excerpt}") from None


def _checked(name: str, value: Any) -> Any:
    if name in ("version", "expected", "revision"):
        size = 2 if name == "revision" else 3
        if value is not None:
            value = tuple(value)
            if len(value) != size or not all(type(part) is int for part in value):
                raise ValueError(f"{name!r} must be {size} whole numbers")
    elif name in ("t", "t0"):
        if type(value) not in (int, float) or value != value:
            raise ValueError(f"{name!r} must be a number of seconds")
    elif name in ("n", "nodes"):
        if type(value) is not int:
            raise ValueError(f"{name!r} must be a whole number")
    elif name == "op":
        return Op(value)
    elif name == "r":
        return Outcome(value)
    elif name == "complete":
        return bool(value)
    elif not (type(value) is str or (name == "value" and value is None)):
        raise ValueError(f"{name!r} must be text")
    return value
