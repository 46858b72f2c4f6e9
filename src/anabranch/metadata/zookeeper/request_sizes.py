"""How much of a restore is under way at a time: less where the server is slow. Pure.

The question that keeps the session alive waits behind them on the server, and a connection on which
it is not answered in time counts as dead. So the first requests are short, as a server that just
started is slow, and later ones are as long as it answers fast. If it still does when they are as
long as may be, more are sent before the first is answered: a server checks one, syncs another and
carries out a third at the same time.
"""

from anabranch import limits
from anabranch.metadata.zookeeper.limits import (
    RESTORE_ANSWER_S_USUAL,
    RESTORE_OPERATIONS_FIRST,
    RESTORE_OPERATIONS_MIN,
    RESTORES_UNDER_WAY_FIRST,
)


class RequestSize:
    """The size that the next request of one restore may have, and how many may be unanswered."""

    def __init__(self) -> None:
        most = limits.ZOOKEEPER_RESTORE_OPERATIONS_MAX
        self.operations_max = min(RESTORE_OPERATIONS_FIRST, most)
        self.under_way_max = RESTORES_UNDER_WAY_FIRST
        self._most = most
        self._least = min(RESTORE_OPERATIONS_MIN, most)

    def answered(self, took_s: float) -> None:
        """A request was answered after so long, with those that were sent before it."""
        if took_s > RESTORE_ANSWER_S_USUAL:
            self.operations_max = max(self._least, self.operations_max // 2)
            self.under_way_max = RESTORES_UNDER_WAY_FIRST
        elif 2 * took_s < RESTORE_ANSWER_S_USUAL:
            if self.operations_max == self._most:
                most = limits.ZOOKEEPER_RESTORES_UNDER_WAY_MAX
                self.under_way_max = min(most, self.under_way_max + 1)
            self.operations_max = min(self._most, 2 * self.operations_max)
