"""What a broker counts: an immutable snapshot, so that readers never see half a change."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """The whole broker at one moment."""

    connections: int
    topics: int
    producers: int
    consumers: int
    messages_in: int
    """Published since the start."""
    messages_out: int
    """Sent to consumers since the start, again ones included."""
    mishaps: int
    """Bugs that requests have met since the start."""
