"""How fast a copy may go. Pure: the caller knows the time and does the waiting."""

from typing import Final

WORTH_WAITING_S: Final = 0.02
"""Shorter delays are saved up: a copy of small nodes would do nothing but wait."""
TURN_NODES: Final = 64
"""Read in one go, which takes some milliseconds, by who gives way to others."""
TURN_S_MAX: Final = 0.5
"""A turn that took longer was spent waiting for a store: nobody was kept from anything."""


class Pace:
    """Spreads nodes and bytes evenly over time; a pause earns no burst afterwards."""

    def __init__(self, nodes_per_s: float | None = None, bytes_per_s: float | None = None) -> None:
        assert nodes_per_s is None or nodes_per_s > 0
        assert bytes_per_s is None or bytes_per_s > 0
        self._node_s = 0.0 if nodes_per_s is None else 1 / nodes_per_s
        self._byte_s = 0.0 if bytes_per_s is None else 1 / bytes_per_s
        self._paid_until_s = 0.0

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return self._node_s > 0 or self._byte_s > 0

    def take(self, now_s: float, size_bytes: int) -> float:
        """Count one more node; return how long to wait before the next one."""
        cost_s = max(self._node_s, self._byte_s * size_bytes)
        self._paid_until_s = max(self._paid_until_s, now_s) + cost_s
        ahead_s = self._paid_until_s - now_s
        return ahead_s if ahead_s >= WORTH_WAITING_S else 0.0


class Rests:
    """For who shares a process with others, and has no rate to keep to: half of the time is theirs.

    What is counted is the time that went by, not only that of this process: the servers that are
    read and written are spared as well.
    """

    def __init__(self) -> None:
        self._nodes = 0
        self._begun_s: float | None = None

    def take(self, now_s: float) -> float:
        """Count one more node; return how long to rest before the next one."""
        if self._begun_s is None:
            self._begun_s = now_s
        self._nodes += 1
        if self._nodes < TURN_NODES:
            return 0.0
        rest_s = min(max(now_s - self._begun_s, 0.0), TURN_S_MAX)
        self._nodes, self._begun_s = 0, now_s + rest_s
        return rest_s
