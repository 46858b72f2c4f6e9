"""Which messages of a batch are still unacknowledged. Pure.

The broker stores one acknowledgement per entry, and for a part of a batch a set of bits whose ones
are the messages still open. Kept here only for batches that are done in part.
"""

from anabranch.client.message import MessageId
from anabranch.client.packing import bits_of, words_of
from anabranch.ids import Position
from anabranch.wire import AckedId


def _whole(position: Position) -> AckedId:
    return AckedId(position.ledger_id, position.entry_id, None, None)


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

    def acknowledge(self, message_id: MessageId) -> AckedId:
        """What to tell the broker about one message."""
        position = message_id.position
        if message_id.batch_index < 0:
            return _whole(position)
        size = message_id.batch_size
        left = self._open.get(position, bits_of(None, size)) & ~(1 << message_id.batch_index)
        return self._left(position, left, size)

    def acknowledge_cumulative(self, message_id: MessageId) -> AckedId:
        """What to tell the broker about all messages up to one."""
        position = message_id.position
        for earlier in [known for known in self._open if known < position]:
            del self._open[earlier]
        if message_id.batch_index < 0:
            return _whole(position)
        size = message_id.batch_size
        later = bits_of(None, size) >> (message_id.batch_index + 1) << (message_id.batch_index + 1)
        return self._left(position, self._open.get(position, later) & later, size)

    def _left(self, position: Position, left: int, size: int) -> AckedId:
        if left == 0:
            self._open.pop(position, None)
            return _whole(position)
        self._open[position] = left
        return AckedId(position.ledger_id, position.entry_id, words_of(left), size)
