"""How much a consumer lets the broker send ahead. Pure.

The protocol counts messages; memory counts bytes. So a consumer learns how large messages are, and
asks for as many as fit: few until the first ones came.
"""

from typing import Final

from anabranch.errors import ConfigError
from anabranch.limits import MESSAGE_BYTES_MAX

_MEMORY: Final = 0.8
"""How much of the mean size is kept when a new message is seen."""


class Permits:
    """Messages that are here, those that may come, and how many more may."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        if messages_max < 1 or bytes_max < 1:
            raise ConfigError(f"a queue without room: {messages_max=}, {bytes_max=}")
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._mean_bytes: float = 0.0
        self._worth = 1
        """Fewer new permits than this are not worth a command."""
        self.queued_messages = 0
        self.queued_bytes = 0
        self.outstanding = 0
        """Granted and not used. Below 0 if the last entry was a batch that went beyond."""

    def reset(self) -> None:
        """A new connection: nothing is here, nothing is granted."""
        self.outstanding = self.queued_messages = self.queued_bytes = 0

    def arrived(self, charged: int, kept: int, size: int) -> None:
        """An entry came: how many messages the broker counted, and what of it is queued."""
        self.outstanding -= charged
        self.queued_messages += kept
        self.queued_bytes += size
        if kept:
            each = max(1.0, size / kept)
            known = self._mean_bytes
            self._mean_bytes = _MEMORY * known + (1 - _MEMORY) * each if known else each
            most = min(self._messages_max, int(self._bytes_max / self._mean_bytes))
            self._worth = max(1, most // 2)

    def taken(self, messages: int, size: int) -> None:
        """Messages left the queue."""
        self.queued_messages -= messages
        self.queued_bytes -= size

    def due(self) -> int:
        """How many more to grant now; 0 while it is not worth a command. They count as granted."""
        if self._messages_max - self.queued_messages - self.outstanding < self._worth:
            return 0
        each = self._mean_bytes or MESSAGE_BYTES_MAX
        free = min(
            self._messages_max - self.queued_messages,
            int((self._bytes_max - self.queued_bytes) / each),
        )
        if self.queued_messages == 0:
            free = max(1, free)
        more = free - self.outstanding
        if more < self._worth:
            return 0
        self.outstanding += more
        return more
