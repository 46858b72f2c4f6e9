"""One producer on one connection."""

from collections.abc import Callable
from typing import Protocol

from anabranch.runtime.network import Buffer


class LiveConnection(Protocol):
    """The connection a producer or consumer came by."""

    async def is_alive(self) -> bool:
        """Ask the peer for a sign of life; false (and the connection closed) if none comes."""
        ...

    def write_out(self, parts: list[Buffer]) -> None:
        """Queue buffers for the peer."""
        ...


class Producer:
    """The broker's side of an open producer."""

    __slots__ = (
        "_drained", "connection", "disconnect", "dropped", "epoch", "name", "pending",
        "producer_id", "schema_version", "sent_messages",
    )  # fmt: skip

    def __init__(
        self,
        connection: LiveConnection,
        *,
        producer_id: int,
        name: str,
        epoch: int,
        schema_version: bytes,
        disconnect: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.producer_id = producer_id
        self.name = name
        self.epoch = epoch
        self.schema_version = schema_version
        self.disconnect = disconnect
        """Tell the client that the broker closed this producer; it will come back."""
        self.sent_messages = 0
        self.dropped = False
        """The broker closed it: what becomes durable now is not answered, it is sent again."""
        self.pending = 0
        """Entries handed to storage and not yet durable."""
        self._drained: Callable[[], None] | None = None

    def when_drained(self, drained: Callable[[], None]) -> None:
        """Call `drained` once nothing is pending any more, at once if nothing is."""
        if self.pending == 0:
            drained()
        else:
            self._drained = drained

    def settled(self) -> None:
        """One pending entry became durable or failed."""
        self.pending -= 1
        if self.pending == 0 and self._drained is not None:
            drained, self._drained = self._drained, None
            drained()
