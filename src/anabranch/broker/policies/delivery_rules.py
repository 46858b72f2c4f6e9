"""What the policies of a topic say about sending: how much may be unacknowledged, what may wait.

One object for each topic, shared by its subscriptions and consumers, so that a change counts at
once for all of them.
"""

from collections.abc import Callable

from anabranch import limits
from anabranch.broker.limits import DELAYED_TICK_MS, DELAYED_TICK_MS_MAX
from anabranch.policies.effective import EffectivePolicies


class DeliveryRules:
    """The rules of one topic; a number of 0 is no limit."""

    __slots__ = (
        "delays",
        "now_ms",
        "tick_ms",
        "unacked_per_consumer_max",
        "unacked_per_subscription_max",
    )

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        """`now_ms` is the wall clock, where what happens is noted with its time."""
        self.now_ms = now_ms
        self.unacked_per_consumer_max = limits.UNACKED_MESSAGES_PER_CONSUMER_MAX
        self.unacked_per_subscription_max = limits.UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX
        self.delays = True
        """Whether messages are kept back until their time."""
        self.tick_ms = DELAYED_TICK_MS
        """How late they may come."""

    def follow(self, policies: EffectivePolicies) -> None:
        """Live by other policies from now on."""
        self.unacked_per_consumer_max = policies.unacked_per_consumer_max
        self.unacked_per_subscription_max = policies.unacked_per_subscription_max
        self.delays = policies.delayed_delivery.active
        self.tick_ms = min(max(1, policies.delayed_delivery.tick_time_ms), DELAYED_TICK_MS_MAX)
