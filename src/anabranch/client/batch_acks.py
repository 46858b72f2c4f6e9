"""Which messages of a batch are still unacknowledged. Pure.

The broker stores one acknowledgement per entry, and for a part of a batch a set of bits whose ones
are the messages still open. Kept here only for batches that are done in part.
"""

from anabranch.client.packing import bits_of, words_of
from anabranch.ids import Position
from anabranch.wire import AckedId


def acked_id(position: Position, left: int, batch_size: int) -> AckedId:
    """What the broker is told of an entry with these messages left; none: of all of it."""
    if left == 0:
        return AckedId(position.ledger_id, position.entry_id, None, None)
    return AckedId(position.ledger_id, position.entry_id, words_of(left), batch_size)


class BatchAcks:
    """The books of one consumer."""

    def __init__(self) -> None:
        self._open: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def delivered(self, position: Position, batch_size: int, shown: int) -> None:
        """A batch came, perhaps again: only the messages of `shown` are to be acknowledged."""
        if shown == (1 << batch_size) - 1:
            self._open.pop(position, None)
        else:
            self._open[position] = shown

    def acknowledge(self, position: Position, batch_index: int, batch_size: int) -> int:
        """Note one message; returns those of its entry that are left."""
        if batch_index < 0:
            return 0
        left = self._open.get(position)
        if left is None:
            left = (1 << batch_size) - 1
        left &= ~(1 << batch_index)
        return self._note(position, left)

    def acknowledge_cumulative(self, position: Position, batch_index: int, batch_size: int) -> int:
        """Note all messages up to one; returns those of its entry that are left."""
        for earlier in [known for known in self._open if known < position]:
            del self._open[earlier]
        if batch_index < 0:
            return 0
        later = bits_of(None, batch_size) >> (batch_index + 1) << (batch_index + 1)
        return self._note(position, self._open.get(position, later) & later)

    def _note(self, position: Position, left: int) -> int:
        if left:
            self._open[position] = left
        else:
            self._open.pop(position, None)
        return left
