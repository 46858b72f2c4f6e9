"""How much went through a producer, a topic, a subscription or a consumer, and how fast lately.

The data path only adds to counters. Rates are made of them once in a while, for all open topics
together, and are those of the last whole interval, as Pulsar's are.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from anabranch.broker.limits import RATES_INTERVAL_S, TOPICS_PER_SLICE
from anabranch.broker.publish_latency import PublishLatency
from anabranch.runtime import Clock, slices

if TYPE_CHECKING:
    from anabranch.broker.topic import Topic


class Traffic:
    """Counters since the start, and the rates of the last interval."""

    __slots__ = (
        "_counted_before", "acknowledged", "again", "bytes", "last_ms", "messages", "per_second",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.again = 0
        """Entries that were sent again."""
        self.acknowledged = 0
        """Acknowledgements."""
        self.last_ms = 0
        """When there was something last; 0 for never, or where it is not noted."""
        self.per_second = (0.0, 0.0, 0.0, 0.0)
        """Messages, bytes, entries again, acknowledgements."""
        self._counted_before = (0, 0, 0, 0)

    def measure(self, elapsed_s: float) -> None:
        """An interval is over."""
        counted = (self.messages, self.bytes, self.again, self.acknowledged)
        before, self._counted_before = self._counted_before, counted
        rates = [(now - then) / elapsed_s for now, then in zip(counted, before, strict=True)]
        self.per_second = (rates[0], rates[1], rates[2], rates[3])

    @property
    def average_bytes(self) -> float:
        """Of a message in the last interval."""
        messages, size, _, _ = self.per_second
        return size / messages if messages else 0.0


class Expired:
    """What a subscription was passed over because it was too old."""

    __slots__ = ("entries", "last_ms")

    def __init__(self) -> None:
        self.entries = 0
        self.last_ms = 0

    def count(self, entries: int, now_ms: int) -> None:
        """Entries were passed over."""
        self.entries += entries
        self.last_ms = now_ms


class Rates:
    """Measures the traffic of all topics of a broker."""

    def __init__(self, clock: Clock, latency: PublishLatency) -> None:
        self._clock = clock
        self._latency = latency
        self._measured_s = clock.monotonic_s()

    async def run(self, topics: "Callable[[], Iterable[Topic]]") -> None:
        """Measure again and again."""
        while True:
            await asyncio.sleep(RATES_INTERVAL_S)
            await self.measure(topics())

    async def measure(self, topics: "Iterable[Topic]") -> None:
        """End an interval now."""
        now_s = self._clock.monotonic_s()
        elapsed_s = max(now_s - self._measured_s, 0.001)
        self._measured_s = now_s
        async for topic in slices.in_slices(topics, TOPICS_PER_SLICE):
            topic.ledger.figures.measure(elapsed_s)
            for traffic in _all_of(topic):
                traffic.measure(elapsed_s)
        self._latency.give_up_overdue()


def _all_of(topic: "Topic") -> Iterator[Traffic]:
    yield topic.traffic
    for producer in topic.producers.values():
        yield producer.traffic
    for subscription in topic.subscriptions.values():
        yield subscription.traffic
        for consumer in subscription.consumers:
            yield consumer.traffic
