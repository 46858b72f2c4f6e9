"""The door to time. Waiting is `asyncio.sleep` and `loop.call_later`; both worlds drive those."""

from typing import Protocol


class Clock(Protocol):
    """What time it is."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that only grow, on the same base as the event loop's time."""
        ...
