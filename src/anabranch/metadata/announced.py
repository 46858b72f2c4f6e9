"""What a live operation tells those who take part, and what they report of themselves. Pure.

The operation's journal is one document; its head, read here, is all that a participant needs to
know. A participant's report is an ephemeral node of its own. Both are JSON with a magic and a
version, and are kept below a root that no copy of a store ever contains.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from anabranch.errors import FormatError
from anabranch.metadata.paths import is_within

OPERATIONS: Final = "/anabranch/migrations"
PULSARS_OPERATION: Final = "/pulsar/migration-coordinator"
"""Where Pulsar's own processes are told that their store is being replaced, and register."""
RESERVED_PATH: Final = f"{OPERATIONS}/reserved"
"""Says in a target of which attempt it is; stays there, whatever came of that."""
JOURNAL_MAGIC: Final = "anabranch-migration"
REPORT_MAGIC: Final = "anabranch-participant"
DOCUMENT_VERSION: Final = 1
PARTICIPATION_LEVEL: Final = 3
"""What this build can do as a participant; rises when phases come to ask for more."""


def journal_path(kind: str) -> str:
    """Where the journal of a kind of operation is kept."""
    return f"{OPERATIONS}/{kind}/journal"


def driver_path(kind: str) -> str:
    """Where the lock of a kind's driver is."""
    return f"{OPERATIONS}/{kind}/driver"


def participants_path(kind: str) -> str:
    """What the reports of the participants are below."""
    return f"{OPERATIONS}/{kind}/participants"


def past_path(kind: str, number: int) -> str:
    """Where the journal of an earlier attempt is kept."""
    return f"{OPERATIONS}/{kind}/past/{number:010d}"


def stays_behind(path: str) -> bool:
    """Whether a node belongs to the operations themselves, and so to no copy of the store."""
    return is_within(OPERATIONS, path) or is_within(PULSARS_OPERATION, path)


@dataclass(frozen=True, slots=True)
class Announced:
    """The head of a journal: in which phase everybody should be."""

    attempt: str
    """Names one try. A report for another one counts for nothing."""
    number: int
    """How many tries there were, with this one."""
    epoch: int
    """Rises with every driver and every attempt; an effect of a smaller one is refused."""
    phase: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What was asked for, such as the address of the target."""
    serial: int = 0
    """Rises with every announcement; a report names the one that it is about."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a participant says of itself."""

    id: str
    role: str
    host: str
    version: str
    """Of the software."""
    level: int = PARTICIPATION_LEVEL
    attempt: str = ""
    """The attempt that the rest is about; empty before the first."""
    serial: int = 0
    """Of the announcement that the rest is about: a phase may come twice in an attempt."""
    epoch: int = 0
    """Of the driver by whose word it was reached."""
    phase: str = ""
    """The phase that was reached."""
    lag: int = 0
    """What is still to be done in the phase, in things of the operation's own kind."""
    error: str = ""
    """Why the phase cannot be reached; the attempt fails by it, and names it."""


def read_document(value: bytes, magic: str, what: str) -> dict[str, Any]:
    """Undo `write_document`.

    Raises:
        FormatError: naming `what`, if it is no such document, or of a version nobody here knows.
    """
    try:
        document = json.loads(value)
    except ValueError as error:
        raise FormatError(f"{what} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("magic") != magic:
        raise FormatError(f"{what} does not begin with the magic {magic!r}")
    if document.get("version") != DOCUMENT_VERSION:
        found = document.get("version")
        raise FormatError(f"{what} has version {found!r}: this build knows {DOCUMENT_VERSION}")
    return document


def write_document(magic: str, fields: Mapping[str, Any]) -> bytes:
    """A document of ours."""
    return json.dumps({"magic": magic, "version": DOCUMENT_VERSION, **fields}, indent=1).encode()


def read_announced(value: bytes) -> Announced:
    """The head of a journal.

    Raises:
        FormatError: if it is none, or of a version nobody here knows.
    """
    return announced_of(read_document(value, JOURNAL_MAGIC, "the journal of an operation"))


def announced_of(document: Mapping[str, Any]) -> Announced:
    """The head of a journal that was read already."""
    found = document.get("announced")
    names = ("attempt", "number", "epoch", "phase", "parameters", "serial")
    if not isinstance(found, dict) or any(name not in found for name in names):
        raise FormatError("the journal of an operation does not say which phase it is in")
    return Announced(**{name: found[name] for name in names})


def write_report(report: Report) -> bytes:
    """The bytes of a report."""
    return write_document(REPORT_MAGIC, {"report": asdict(report)})


def read_report(value: bytes) -> Report:
    """Undo `write_report`; fields that a newer build added are left out.

    Raises:
        FormatError: if it is none, or of a version nobody here knows.
    """
    document = read_document(value, REPORT_MAGIC, "the report of a participant")
    found = document.get("report")
    fields = found if isinstance(found, dict) else {}
    known = {name: fields[name] for name in Report.__slots__ if name in fields}
    try:
        return Report(**known)
    except TypeError as error:
        raise FormatError(f"the report of a participant lacks something: {error}") from None
