"""Which entries of a topic may be seen, and how far: the one thing every reader asks.

Dispatch, backlog, seek and statistics go through a `Visibility`, so that transactions, compaction
and replication change what is visible in one place. Constant for now: a topic without
transactions shows everything durable, except markers, which are for brokers alone.
"""

from typing import Protocol

from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger import ManagedLedger
from anabranch.wire import EntryMetadata


class Visibility(Protocol):
    """What readers of a topic may see."""

    shows_plain: bool
    """Whether every entry up to there is shown about which nothing is special (`is_plain`)."""

    def last_readable(self) -> Position:
        """No entry above this position may be delivered yet."""
        ...

    def hides(self, position: Position, metadata: EntryMetadata) -> bool:
        """Whether an entry is acknowledged by the broker itself and never delivered."""
        ...

    def compaction_horizon(self) -> Position:
        """Up to here a compacted copy may stand in for the log; EARLIEST if there is none."""
        ...


class WholeLog:
    """Everything durable is visible at once; only markers are hidden."""

    __slots__ = ("_ledger",)
    shows_plain = True

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger

    def last_readable(self) -> Position:
        """See `Visibility.last_readable`."""
        return self._ledger.last_confirmed

    def hides(self, position: Position, metadata: EntryMetadata) -> bool:
        """See `Visibility.hides`."""
        return metadata.marker_type is not None

    def compaction_horizon(self) -> Position:
        """See `Visibility.compaction_horizon`."""
        return EARLIEST
