"""Lets the consumers of a Failover subscription know who is active, and the next one take over."""

import asyncio
from collections.abc import Callable

from anabranch.broker.dispatch import Dispatcher
from anabranch.broker.failover import FailoverDispatcher
from anabranch.broker.limits import FAILOVER_DELAY_S


class Handover:
    """Of one subscription; does nothing for those of other types."""

    __slots__ = ("_dispatcher", "_rewind", "_timer", "_wake")

    def __init__(
        self,
        dispatcher: Callable[[], Dispatcher | None],
        *,
        rewind: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """What to do before and after somebody else is told that it is active."""
        self._dispatcher = dispatcher
        self._rewind = rewind
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None

    def look_later(self) -> None:
        """Look once the newest consumer knows that it is one."""
        asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        """Tell everybody who is active; if somebody better came, let it take over after a while."""
        dispatcher = self._dispatcher()
        if isinstance(dispatcher, FailoverDispatcher):
            dispatcher.tell()
            if dispatcher.is_handing_over and self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(FAILOVER_DELAY_S, self._hand_over, dispatcher)

    def _hand_over(self, dispatcher: FailoverDispatcher) -> None:
        self._timer = None
        if dispatcher is self._dispatcher() and dispatcher.hand_over():
            self._rewind()
        self.look()
        self._wake()

    def stop(self) -> None:
        """Let nobody take over any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
