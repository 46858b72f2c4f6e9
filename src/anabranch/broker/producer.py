"""One producer on one connection."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from anabranch.broker.traffic import Traffic
from anabranch.runtime.network import Buffer

SHARED: Final = 0
EXCLUSIVE: Final = 1
WAIT_FOR_EXCLUSIVE: Final = 2
EXCLUSIVE_WITH_FENCING: Final = 3
"""The access modes, by their numbers on the wire."""


class LiveConnection(Protocol):
    """The connection a producer or consumer came by."""

    async def is_alive(self) -> bool:
        """Ask the peer for a sign of life; false (and the connection closed) if none comes."""
        ...

    waits: bool
    """Whether reading from the peer has to wait for something that calls `read_on`."""

    def hold_back(self) -> None:
        """Read nothing from the peer for now."""
        ...

    def read_on(self) -> None:
        """What was waited for has come."""
        ...

    def write_out(self, parts: list[Buffer]) -> None:
        """Queue buffers for the peer."""
        ...


class Producer:
    """The broker's side of an open producer."""

    __slots__ = (
        "_settled", "_waiting", "access_mode", "connection", "disconnect", "dropped", "encrypted",
        "epoch", "fence", "last_sequence_id", "name", "pending", "producer_id", "said",
        "schema_version", "since_ms", "topic_epoch", "traffic",
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
        access_mode: int = SHARED,
        topic_epoch: int | None = None,
        fence: Callable[[], None] = lambda: None,
        encrypted: bool = False,
        said: Mapping[str, str] | None = None,
        since_ms: int = 0,
    ) -> None:
        self.connection = connection
        self.producer_id = producer_id
        self.name = name
        self.epoch = epoch
        self.schema_version = schema_version
        self.disconnect = disconnect
        """Tell the client that the broker closed this producer; it will come back."""
        self.encrypted = encrypted
        """Whether its client encrypts what it sends."""
        self.said = said or {}
        """What its client says about it, for whoever looks at statistics."""
        self.since_ms = since_ms
        self.traffic = Traffic()
        self.access_mode = access_mode
        self.last_sequence_id = -1
        """Of what was stored under its name before; -1 if that is not known."""
        self.topic_epoch = topic_epoch
        """Under which it owns or owned the topic; None if it never did."""
        self.fence = fence
        """Serve it no more, without a word: it finds out by itself."""
        self.dropped = False
        """The broker closed it: what becomes durable now is not answered, it is sent again."""
        self.pending = 0
        """Entries handed to storage and not yet durable."""
        self._settled = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def after_pending(self, action: Callable[[], None]) -> None:
        """Act when everything handed to storage before now is answered, at once if it is."""
        if self.pending == 0:
            action()
        else:
            self._waiting.append((self._settled + self.pending, action))

    def settled(self) -> None:
        """One pending entry became durable or failed."""
        self.pending -= 1
        self._settled += 1
        while self._waiting and self._waiting[0][0] <= self._settled:
            self._waiting.popleft()[1]()
