"""How fast a copy may go. Pure: the caller knows the time and does the waiting."""

from typing import Final

WORTH_WAITING_S: Final = 0.02
"""Shorter delays are saved up: a copy of small nodes would do nothing but wait."""


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
