"""Places in a topic, and the half-open ranges between them. Pure.

A place is where a message begins: `ledger:entry:batch`. What ends at a place leaves that message
out, so that one range ends where the next begins, and "the last one read" is never asked for.
"""

import re
from typing import Final, NamedTuple

from anabranch.errors import InputError

_TEXT: Final = re.compile(r"(-?\d+):(-?\d+)(?::(-?\d+))?")


class Place(NamedTuple):
    """Before a message; ordered as the messages of a topic are."""

    ledger_id: int
    entry_id: int
    batch_index: int = 0

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Read `ledger:entry` or `ledger:entry:batch`.

        Raises:
            InputError: if it is neither.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InputError(f"a position is ledger:entry or ledger:entry:batch, not {text!r}")
        ledger_id, entry_id, batch_index = found.groups(default="0")
        return cls(int(ledger_id), int(entry_id), max(0, int(batch_index)))

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}"


BEGINNING: Final = Place(-1, 0)
"""Before the first message of a topic, also if nothing was ever written to it."""


class Span(NamedTuple):
    """Consecutive entries of one ledger."""

    ledger_id: int
    first: int
    until: int
    """Behind the last."""

    @property
    def entries(self) -> int:
        """How many entries they are."""
        return self.until - self.first


class Range(NamedTuple):
    """From a place in a topic up to another, which it leaves out."""

    topic: str
    start: Place
    end: Place

    def __str__(self) -> str:
        return f"{self.topic} from {self.start} up to {self.end}"
