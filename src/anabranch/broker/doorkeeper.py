"""How many connections there may be, in all and from one host. Pure."""

from collections import Counter


class Doorkeeper:
    """Counts connections, and says when there are too many. A limit of 0 is none."""

    def __init__(self, *, connections_max: int, connections_per_host_max: int) -> None:
        self._all_max = connections_max
        self._per_host_max = connections_per_host_max
        self._of_host: Counter[str] = Counter()
        self._all = 0

    def admit(self, host: str) -> str | None:
        """Count one more, or return why it may not be."""
        if 0 < self._all_max <= self._all:
            return f"Reached the maximum number of connections, {self._all_max}"
        if 0 < self._per_host_max <= self._of_host[host]:
            return f"Reached the maximum number of connections of {host}, {self._per_host_max}"
        self._all += 1
        self._of_host[host] += 1
        return None

    def leave(self, host: str) -> None:
        """One that was admitted is gone."""
        self._all -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
