"""How much waits for the disk, and telling those who hold back when they may go on."""

from collections.abc import Callable

from anabranch.limits import STORE_PENDING_BYTES_HIGH, STORE_PENDING_BYTES_LOW


class Pressure:
    """Bytes that were appended to a store, or wait to be, and are not durable yet.

    Appending never waits. Whoever takes appends from others looks at `is_high`, stops taking them
    while it is true, and asks `when_low` to be called: so memory stays bounded on a stalled disk.
    """

    __slots__ = ("_held_bytes", "_waiting", "pending_bytes")

    def __init__(self) -> None:
        self.pending_bytes = 0
        """Kept by the store: raised by it with every append."""
        self._held_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_high(self) -> bool:
        """Whether so much waits that nothing should be added."""
        return self.pending_bytes >= STORE_PENDING_BYTES_HIGH

    def when_low(self, call: Callable[[], None]) -> None:
        """Call once when little enough waits, or when the store has failed; not within this."""
        self._waiting.append(call)

    def hold(self, byte_count: int) -> None:
        """So many bytes wait to be appended, before the store has them."""
        self._held_bytes += byte_count
        self.pending_bytes += byte_count

    def let_go(self, byte_count: int) -> None:
        """So many of them do not any more; nobody is told before `settle`."""
        self._held_bytes -= byte_count
        self.pending_bytes -= byte_count

    def settle(self, byte_count: int) -> None:
        """So many bytes are durable."""
        self.pending_bytes -= byte_count
        if self._waiting and self.pending_bytes <= STORE_PENDING_BYTES_LOW:
            self._tell()

    def clear(self) -> None:
        """Nothing waits for the disk any more: the store has failed."""
        self.pending_bytes = self._held_bytes
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
