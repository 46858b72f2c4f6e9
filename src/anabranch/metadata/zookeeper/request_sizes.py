"""How many operations of a restore go into one request: fewer where the server is slow. Pure.

The question that keeps the session alive waits behind them on the server, and a connection on which
it is not answered in time counts as dead. So the first requests are short, as a server that just
started is slow, and later ones are as long as it answers fast.
"""

from anabranch import limits
from anabranch.metadata.zookeeper.limits import (
    RESTORE_ANSWER_S_USUAL,
    RESTORE_OPERATIONS_FIRST,
    RESTORE_OPERATIONS_MIN,
)


class RequestSize:
    """The size that the next request of one restore may have."""

    def __init__(self) -> None:
        most = limits.ZOOKEEPER_RESTORE_OPERATIONS_MAX
        self.operations_max = min(RESTORE_OPERATIONS_FIRST, most)
        self._most = most
        self._least = min(RESTORE_OPERATIONS_MIN, most)

    def answered(self, took_s: float) -> None:
        """A request was answered after so long, with those that were sent before it."""
        if took_s > RESTORE_ANSWER_S_USUAL:
            self.operations_max = max(self._least, self.operations_max // 2)
        elif 2 * took_s < RESTORE_ANSWER_S_USUAL:
            self.operations_max = min(self._most, 2 * self.operations_max)
