"""What was given to the disk and is not durable yet, and what must not be said before it is.

Pure. The journal completes in order, so that one number tells how far it is.
"""

from collections import deque

from anabranch.consensus.events import Instruction
from anabranch.consensus.log import LogRecord, RecordKind

_IN_THE_LOG = (RecordKind.TERM, RecordKind.COMMAND)


class Writes:
    """Appends under way, numbered from 1 in their order."""

    def __init__(self) -> None:
        self.given = 0
        """The number of the newest append."""
        self.promised = 0
        """The number of the newest term or vote: nothing may be said in a term before that."""
        self._done = 0
        self._under_way: deque[tuple[LogRecord, bool]] = deque()
        self._held: list[tuple[int, Instruction]] = []

    def add(self, record: LogRecord) -> None:
        """A record is given to the disk."""
        self.given += 1
        if record.kind is RecordKind.VOTE:
            self.promised = self.given
        self._under_way.append((record, record.kind in _IN_THE_LOG))

    def void_behind(self, index: int) -> None:
        """The log was cut: records behind the index will be durable, and will not count."""
        self._under_way = deque(
            (record, counts and record.index <= index) for record, counts in self._under_way
        )

    def complete(self, index: int) -> int | None:
        """All are durable up to the next append of this index; return how far the log is."""
        durable: int | None = None
        while self._under_way:
            record, counts = self._under_way.popleft()
            self._done += 1
            if counts:
                durable = record.index
            if record.index == index:
                return durable
        raise AssertionError(f"appends complete in order, and {index} is not under way")

    def after(self, number: int, instruction: Instruction) -> list[Instruction]:
        """Give an instruction now, or keep it until the append of that number is durable."""
        if number <= self._done:
            return [instruction]
        self._held.append((number, instruction))
        return []

    def released(self) -> list[Instruction]:
        """What may be given now."""
        if not self._held:
            return []
        free = [instruction for number, instruction in self._held if number <= self._done]
        self._held = [held for held in self._held if held[0] > self._done]
        return free

    def abandon(self) -> None:
        """The disk failed: nothing that waits for it will ever be said."""
        self._under_way.clear()
        self._held.clear()
