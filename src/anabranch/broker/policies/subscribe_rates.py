"""How often one consumer of a topic may subscribe. Pure.

A consumer is known by its host, name and number, as in Pulsar; one that gave itself no name is
a new one each time, and so is never held back.
"""

from typing import NamedTuple

from anabranch.broker.limits import SUBSCRIBERS_COUNTED_MAX
from anabranch.broker.refusals import Refused
from anabranch.policies import SubscribeRate
from anabranch.wire import ServerError


class Subscriber(NamedTuple):
    """Who subscribes."""

    host: str
    name: str
    number: int


class _Counted(NamedTuple):
    since_s: float
    times: int


class SubscribeRates:
    """Of one topic: how often each consumer subscribed in its present period."""

    def __init__(self) -> None:
        self._rate = SubscribeRate()
        self._counted: dict[Subscriber, _Counted] = {}
        """Those whose period began last are at the end."""

    def follow(self, rate: SubscribeRate) -> None:
        """Count by another rate from now on; all periods begin anew."""
        if rate != self._rate:
            self._rate = rate
            self._counted.clear()

    def admit(self, subscriber: Subscriber, now_s: float) -> None:
        """Count a subscribing consumer.

        Raises:
            Refused: if it did so too often in its period; that is not counted.
        """
        if self._rate.per_consumer <= 0:
            return
        counted = self._counted.get(subscriber)
        if counted is None or now_s >= counted.since_s + max(1, self._rate.period_s):
            self._counted.pop(subscriber, None)
            if len(self._counted) >= SUBSCRIBERS_COUNTED_MAX:
                del self._counted[next(iter(self._counted))]
            counted = _Counted(now_s, 0)
        if counted.times >= self._rate.per_consumer:
            raise Refused(
                ServerError.NotAllowedError,
                "Subscribe limited by subscribe rate limit per consumer.",
            )
        self._counted[subscriber] = _Counted(counted.since_s, counted.times + 1)
