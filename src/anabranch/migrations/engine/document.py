"""The bytes of a journal. Pure."""

from dataclasses import asdict, dataclass
from typing import Any

from anabranch.errors import FormatError, InputError
from anabranch.metadata.announced import (
    JOURNAL_MAGIC,
    announced_of,
    read_document,
    write_document,
)
from anabranch.migrations.engine.limits import CHECKPOINT_BYTES_MAX
from anabranch.migrations.engine.state import Line, State
from anabranch.migrations.engine.table import Table


@dataclass(frozen=True, slots=True)
class Written:
    """A state, and which write made it."""

    state: State
    write: str
    """Drawn for each write: so a writer whose answer was lost can tell whether it was its own."""


def write_journal(written: Written) -> bytes:
    """The bytes of a journal.

    Raises:
        InputError: if a step wants to keep too much.
    """
    state = written.state
    fields = {
        "announced": asdict(state.announced),
        "driver": state.driver,
        "paused": state.paused,
        "asked": state.asked,
        "expected": list(state.expected),
        "figures": dict(state.figures),
        "checkpoint": dict(state.checkpoint),
        "error": state.error,
        "one_way": state.one_way,
        "entered_ms": state.entered_ms,
        "held_ms": state.held_ms,
        "held_from_ms": state.held_from_ms,
        "trail": [asdict(line) for line in state.trail],
        "trail_dropped": state.trail_dropped,
        "write": written.write,
    }
    size_bytes = len(write_document(JOURNAL_MAGIC, {"checkpoint": fields["checkpoint"]}))
    if size_bytes > CHECKPOINT_BYTES_MAX:
        raise InputError(
            f"a checkpoint of {size_bytes} bytes is too large for the journal: "
            f"at most {CHECKPOINT_BYTES_MAX}"
        )
    return write_document(JOURNAL_MAGIC, fields)


def read_journal(value: bytes, table: Table) -> Written:
    """Undo `write_journal`.

    Raises:
        FormatError: if it is none, of a version nobody here knows, or in an unknown phase.
    """
    document = read_document(value, JOURNAL_MAGIC, "the journal of an operation")
    announced = announced_of(document)
    if announced.phase not in table:
        raise FormatError(f"the journal is in a phase that this build lacks: {announced.phase!r}")
    try:
        state = State(
            announced,
            driver=document["driver"],
            paused=document["paused"],
            asked=document["asked"],
            expected=tuple(document["expected"]),
            figures=document.get("figures", {}),
            checkpoint=document["checkpoint"],
            error=document["error"],
            one_way=document.get("one_way", ""),
            entered_ms=document["entered_ms"],
            held_ms=document.get("held_ms", 0),
            held_from_ms=document.get("held_from_ms", document["entered_ms"]),
            trail=tuple(_line(line) for line in document["trail"]),
            trail_dropped=document["trail_dropped"],
        )
        return Written(state, document["write"])
    except (KeyError, TypeError) as error:
        raise FormatError(f"the journal of an operation lacks something: {error!r}") from None


def _line(fields: dict[str, Any]) -> Line:
    return Line(**fields)
