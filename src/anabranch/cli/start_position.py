"""Where a reader begins, as it is written on the command line. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime

from anabranch.errors import ConfigError

_MESSAGE = re.compile(r"(\d{1,18}):(\d{1,18})(?::(\d{1,9}))?")
_AGO = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
FORMS = (
    "earliest, latest, LEDGER:ENTRY[:INDEX], a time such as 2026-05-01T12:00:00+02:00, or 15m ago"
)


@dataclass(frozen=True, slots=True)
class FromEnd:
    """Before everything that is there, or after it."""

    earliest: bool


@dataclass(frozen=True, slots=True)
class FromMessage:
    """With a message, or with the first one of a batch that is wanted."""

    ledger_id: int
    entry_id: int
    batch_index: int


@dataclass(frozen=True, slots=True)
class FromTime:
    """With the first message that was published at or after a time."""

    time_ms: int


StartPosition = FromEnd | FromMessage | FromTime


def parse_start(text: str, *, now_ms: int) -> StartPosition:
    """Read a start position; a time without a zone is local.

    Raises:
        ConfigError: naming what can be written.
    """
    if text in ("earliest", "latest"):
        return FromEnd(text == "earliest")
    if found := _MESSAGE.fullmatch(text):
        ledger_id, entry_id, index = found.groups(default="-1")
        return FromMessage(int(ledger_id), int(entry_id), int(index))
    if found := _AGO.fullmatch(text.removesuffix(" ago")):
        return FromTime(max(0, now_ms - int(found[1]) * _SECONDS[found[2]] * 1000))
    try:
        time_ms = round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        time_ms = -1
    if time_ms < 0:
        raise ConfigError(f"--from {text!r} is no place to begin: use {FORMS}")
    return FromTime(time_ms)
