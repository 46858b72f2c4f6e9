"""Messages to be asked for again after a while, by the entries they are in. Pure."""

from anabranch.client.message import MessageId
from anabranch.ids import Position


class Later:
    """Which messages are due when."""

    def __init__(self) -> None:
        self._due_s: dict[MessageId, float] = {}

    def __len__(self) -> int:
        return len(self._due_s)

    def add(self, message_id: MessageId, due_s: float) -> None:
        """Note a message; a later word on it counts."""
        self._due_s[message_id] = due_s

    def drop(self, message_id: MessageId) -> None:
        """The message need not come again."""
        self._due_s.pop(message_id, None)

    def next_s(self) -> float | None:
        """When the next one is due."""
        return min(self._due_s.values(), default=None)

    def take(self, now_s: float) -> list[Position]:
        """The entries with messages that are due, in the order of the topic."""
        due = [message_id for message_id, due_s in self._due_s.items() if due_s <= now_s]
        for message_id in due:
            del self._due_s[message_id]
        return sorted({message_id.position for message_id in due})

    def clear(self) -> None:
        """Forget all."""
        self._due_s.clear()
