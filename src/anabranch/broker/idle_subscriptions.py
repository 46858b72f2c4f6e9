"""Subscriptions that nobody uses, and their end where a policy wants it.

That somebody was attached is remembered by this process alone: after a restart, or with another
broker, the time begins anew. So a subscription may last longer than asked for, and never less.
"""

from typing import NamedTuple

from anabranch.broker.backlogs import of_clients
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.broker.topic_operations import remove_subscription
from anabranch.runtime import Clock
from anabranch.telemetry import get_logger

_log = get_logger("broker")


class _Idle(NamedTuple):
    since_s: float
    attachments: int
    """Of before: who comes and goes between two looks is seen by it."""


class IdleSubscriptions:
    """Since when the subscriptions of open topics are without consumers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._idle: dict[Topic, dict[Subscription, _Idle]] = {}

    async def end_idle(self, topic: Topic) -> None:
        """Delete what has been idle for as long as the policies of a topic say."""
        idle_s_max = topic.policies.subscription_expiration_minutes * 60
        if idle_s_max <= 0:
            self._idle.pop(topic, None)
            return
        now_s, known = self._clock.monotonic_s(), self._idle.get(topic, {})
        idle: dict[Subscription, _Idle] = {}
        self._idle[topic] = idle
        for each in of_clients(topic):
            if each.cursor.is_durable and not each.consumers:
                begun = _Idle(now_s, each.attachments)
                before = known.get(each, begun)
                idle[each] = before if before.attachments == each.attachments else begun
        for each, (since_s, attachments) in idle.items():
            # While another one was being deleted, somebody may have come to this one, or ended it.
            untouched = topic.subscriptions.get(each.name) is each
            untouched = untouched and each.attachments == attachments
            if now_s - since_s >= idle_s_max and untouched:
                _log.info(
                    "idle_subscription_deleted", topic=str(topic.name), subscription=each.name
                )
                await remove_subscription(topic, each.name, force=False)

    def forget_closed(self) -> None:
        """Topics that are not open here any more need not be remembered."""
        self._idle = {topic: idle for topic, idle in self._idle.items() if not topic.closed}
