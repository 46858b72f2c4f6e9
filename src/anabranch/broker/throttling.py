"""Rates: how fast a topic takes messages, and how fast it sends them.

A rate lets a second's worth through at once. Who is ahead of it by more waits: a connection is not
read from, a subscription does not read. Nothing is refused or dropped.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from anabranch import limits
from anabranch.broker.consumer import Delivery
from anabranch.broker.producer import LiveConnection
from anabranch.policies import DispatchRate, PublishRate
from anabranch.runtime import Clock

_UNBOUNDED: Final = 1 << 62


class Rate:
    """So much per second, with a second's worth in hand. Pure."""

    __slots__ = ("_paid_until_s", "_per_second")

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._paid_until_s = 0.0

    def charge(self, amount: int, now_s: float) -> None:
        """Something was let through."""
        self._paid_until_s = max(self._paid_until_s, now_s) + amount / self._per_second

    def in_hand(self, now_s: float) -> int:
        """How much may be let through at once; something always, since debts are waited for."""
        left_s = now_s + 1.0 - max(self._paid_until_s, now_s)
        return max(1, int(left_s * self._per_second))

    def wait_s(self, now_s: float) -> float:
        """How long nothing more may be let through; 0 if it may now."""
        one_more_s = min(1.0, 1.0 / self._per_second)
        return max(0.0, self._paid_until_s + one_more_s - now_s - 1.0)


class Throttle:
    """Messages and bytes that share one gate."""

    def __init__(self, messages: float, size: float, clock: Clock) -> None:
        """Numbers per second; 0 and below is without limit."""
        self._messages = Rate(messages) if messages > 0 else None
        self._bytes = Rate(size) if size > 0 else None
        self._clock = clock

    def charge(self, messages: int, size: int) -> None:
        """Something was let through."""
        now_s = self._clock.monotonic_s()
        if self._messages is not None:
            self._messages.charge(messages, now_s)
        if self._bytes is not None:
            self._bytes.charge(size, now_s)

    def messages_in_hand(self) -> int:
        """How many messages may be let through at once."""
        if self._messages is None:
            return _UNBOUNDED
        return self._messages.in_hand(self._clock.monotonic_s())

    def wait_s(self) -> float:
        """How long nothing more may be let through; 0 if it may now."""
        now_s = self._clock.monotonic_s()
        return max(
            (rate.wait_s(now_s) for rate in (self._messages, self._bytes) if rate), default=0
        )


class DispatchThrottle:
    """What holds one subscription back: the rate of its topic, and its own."""

    def __init__(self, throttles: tuple[Throttle, ...], go_on: Callable[[], None]) -> None:
        self._throttles = throttles
        self._go_on = go_on
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(
        cls, *throttles: Throttle | None, go_on: Callable[[], None]
    ) -> "DispatchThrottle | None":
        """The throttle of all that there are; None if there is none."""
        present = tuple(each for each in throttles if each is not None)
        return cls(present, go_on) if present else None

    def charge(self, deliveries: Sequence[Delivery]) -> None:
        """Entries were sent."""
        messages = sum(each.message_count for each in deliveries)
        size = sum(len(each.payload) for each in deliveries)
        for throttle in self._throttles:
            throttle.charge(messages, size)

    def room_for(self, wanted: int) -> int:
        """How many of so many messages may go now; if none, the subscription is woken later."""
        wait_s = max(throttle.wait_s() for throttle in self._throttles)
        if wait_s <= 0 or wanted == 0:
            return min(wanted, *(throttle.messages_in_hand() for throttle in self._throttles))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._over)
        return 0

    def _over(self) -> None:
        self._timer = None
        self._go_on()


class PublishThrottle:
    """The rate of one topic, whoever publishes."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle

    def charge(self, connection: LiveConnection, messages: int, size: int) -> None:
        """Take a message, and read no more from who sent it until the rate allows."""
        self._throttle.charge(messages, size)
        wait_s = self._throttle.wait_s()
        if wait_s > 0 and not connection.waits:
            connection.waits = True
            connection.hold_back()
            asyncio.get_running_loop().call_later(wait_s, connection.read_on)


def publish_throttle(rate: PublishRate, clock: Clock) -> PublishThrottle | None:
    """What holds producers of a topic back; None if nothing does."""
    if rate.messages <= 0 and rate.bytes <= 0:
        return None
    return PublishThrottle(Throttle(rate.messages, rate.bytes, clock))


def throttle_of(rate: DispatchRate, clock: Clock) -> Throttle | None:
    """What holds dispatch back; None if nothing does."""
    if rate.messages <= 0 and rate.bytes <= 0:
        return None
    period_s = max(1, rate.period_s)
    return Throttle(rate.messages / period_s, rate.bytes / period_s, clock)


def largest_entry(message_bytes_max: int) -> int:
    """How large an entry may be where a message may have so many bytes; 0 for any number."""
    return message_bytes_max + limits.ENTRY_OVERHEAD_BYTES if message_bytes_max > 0 else _UNBOUNDED
