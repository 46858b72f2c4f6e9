"""The decisions of a recovery: where a ledger ends that its writer left open. Pure.

What is to be done is said to a `RecoveryOutput`. The ledger is IN_RECOVERY already, so that its
ensemble does not change any more. Then:

1. The bookies of the last segment are asked for their last entry, which fences the ledger there.
   When enough have answered that nothing can be confirmed without them, the largest last confirmed
   entry that they know of is where reading begins. It is not before the last segment's first entry:
   what is before that was confirmed when the segment began, and is on other bookies.
2. The entries behind it are read from every bookie of their write set, and each such read fences
   too: a bookie that was silent in the first step must not take entries of the old writer later.
   An entry that somebody has is written again to all of its bookies. The first entry that more
   bookies vouch not to have than a confirmed one could lack is behind the end.
3. When all that was found is confirmed again, the ledger can be closed.

If too few bookies answer, nothing is decided: the ledger stays as it is, for a later attempt.
"""

from enum import Enum
from typing import Protocol

from anabranch import limits
from anabranch.errors import AnabranchError, StorageError, Unreachable
from anabranch.ledgers.bookkeeper.digests import Packet
from anabranch.ledgers.bookkeeper.ensemble import Quorums
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment


class RecoveryOutput(Protocol):
    """Who carries out what a `LedgerRecovery` decides."""

    def read_last(self, place: int, bookie: str, /) -> None:
        """Ask for the last entry, with the fence; then call `last_answered`, not within this."""

    def read_entry(self, entry_id: int, place: int, bookie: str, /) -> None:
        """Ask for an entry, with the fence; then call `entry_answered`, not within this."""

    def start_writing(self, last_confirmed: int, /) -> None:
        """The entries to be written again begin behind this one."""

    def write_again(self, packet: Packet, /) -> None:
        """Write an entry to its write set, marked as recovery; then call `written`."""

    def close(self, last_entry_id: int, /) -> None:
        """All is confirmed up to this entry: close the ledger there."""

    def give_up(self, error: AnabranchError, /) -> None:
        """It cannot be decided where the ledger ends."""


class Phase(Enum):
    """How far a recovery has come."""

    FENCING = "fencing"
    READING = "reading"
    ENDED = "ended"
    """The end is known; entries may still have to be written again."""
    OVER = "over"


class _Asked:
    """What was answered about one entry."""

    __slots__ = ("absent", "answers", "packet")

    def __init__(self) -> None:
        self.packet: Packet | None = None
        self.absent = 0
        self.answers = 0


class LedgerRecovery:
    """See the module."""

    def __init__(
        self, output: RecoveryOutput, ledger_id: int, quorums: Quorums, segment: EnsembleSegment
    ) -> None:
        self.phase = Phase.FENCING
        self.last_entry_id = segment.first_entry_id - 1
        """The last entry that is known to belong to the ledger."""
        self._output = output
        self._ledger_id = ledger_id
        self._quorums = quorums
        self._segment = segment
        self._answered: dict[int, bool] = {}
        self._largest_seen = -1
        self._asked: dict[int, _Asked] = {}
        self._written = -1
        self._last_status = Status.OK

    def begin(self) -> None:
        """Fence."""
        for place, bookie in enumerate(self._segment.bookies):
            self._output.read_last(place, bookie)

    # --- fencing ------------------------------------------------------------------------------

    def last_answered(self, place: int, status: Status, packet: Packet | None) -> None:
        """What a bookie said when it was asked for its last entry."""
        if self.phase is not Phase.FENCING:
            return
        if status is Status.UNAUTHORIZED:
            self._give_up(StorageError(f"a bookie refuses the password of {self._name}"))
            return
        # One whose last entry is damaged is fenced all the same; without what it knew to be
        # confirmed reading begins earlier.
        usable = packet is not None or status.says_absent or status is Status.DAMAGED
        self._answered[place] = usable
        if not usable:
            self._last_status = status
        if packet is not None:
            self.last_entry_id = max(self.last_entry_id, packet.last_confirmed)
            self._largest_seen = max(self._largest_seen, packet.entry_id)
        if self._quorums.covered([place for place, usable in self._answered.items() if usable]):
            self.phase = Phase.READING
            self._written = self.last_entry_id
            self._output.start_writing(self.last_entry_id)
            self._read_on()
        elif len(self._answered) == self._quorums.ensemble:
            self._give_up_for_silence("did not say what they have")

    # --- reading ------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Ask for the next entry, and for those that are known to have been sent."""
        first = self.last_entry_id + 1
        last = min(
            max(first, self._largest_seen), self._written + limits.BOOKKEEPER_RECOVERY_READS_MAX
        )
        for entry_id in range(first, last + 1):
            if entry_id in self._asked:
                continue
            self._asked[entry_id] = _Asked()
            for place in self._quorums.write_set(entry_id):
                self._output.read_entry(entry_id, place, self._segment.bookies[place])

    def entry_answered(self, entry_id: int, status: Status, packet: Packet | None) -> None:
        """What a bookie said when it was asked for an entry."""
        asked = self._asked.get(entry_id)
        if self.phase is not Phase.READING or asked is None:
            return
        asked.answers += 1
        if packet is not None:
            asked.packet = asked.packet or packet
        elif status.says_absent:
            asked.absent += 1
        else:
            self._last_status = status
        self._decide()

    def _decide(self) -> None:
        while (asked := self._asked.get(self.last_entry_id + 1)) is not None:
            if asked.packet is not None:
                del self._asked[self.last_entry_id + 1]
                self.last_entry_id += 1
                self._output.write_again(asked.packet)
            elif asked.absent >= self._quorums.absent_needed:
                self._asked.clear()
                self.phase = Phase.ENDED
                self._close_if_written()
                return
            elif asked.answers == self._quorums.write:
                self._give_up_for_silence(f"do not say whether entry {self.last_entry_id + 1} is")
                return
            else:
                break
        self._read_on()

    def written(self, entry_id: int) -> None:
        """An entry is confirmed again."""
        if self.phase is Phase.OVER:
            return
        self._written = entry_id
        if self.phase is Phase.READING:
            self._read_on()
        else:
            self._close_if_written()

    def _close_if_written(self) -> None:
        if self._written == self.last_entry_id:
            self.phase = Phase.OVER
            self._output.close(self.last_entry_id)

    # --- failing ------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"ledger {self._ledger_id}"

    def _give_up_for_silence(self, what: str) -> None:
        bookies = ", ".join(self._segment.bookies)
        self._give_up(
            Unreachable(
                f"{self._name} cannot be recovered now: too many of the bookies {bookies} {what} "
                f"there (last: {self._last_status.name})"
            )
        )

    def abandon(self) -> None:
        """Nobody wants to know any more: ask for nothing, write nothing."""
        self.phase = Phase.OVER

    def _give_up(self, error: AnabranchError) -> None:
        self.phase = Phase.OVER
        self._output.give_up(error)
