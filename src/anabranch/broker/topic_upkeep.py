"""What only time brings to a topic: messages that expire, backlogs that are too large, disuse.

One task of the broker looks at all open topics, one after the other. What a policy asks for is done
here; which policy counts is the topic's.
"""

import asyncio

from anabranch.broker.backlogs import backlog_bytes, of_clients, oldest_time_ms, slowest
from anabranch.broker.idle_subscriptions import IdleSubscriptions
from anabranch.broker.limits import TOPICS_PER_SLICE
from anabranch.broker.mishaps import Mishaps
from anabranch.broker.policies.quotas import EVICT, Exceeded, kept_bytes
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.broker.topics import Topics
from anabranch.errors import AnabranchError, ProtocolError
from anabranch.ids import Position
from anabranch.managed_ledger import newest_matching
from anabranch.policies.rules import DELETE_MODES
from anabranch.runtime import Clock, slices
from anabranch.runtime.network import Buffer
from anabranch.telemetry import get_logger
from anabranch.wire import publish_time_ms

_log = get_logger("broker")


class TopicUpkeep:
    """Looks after the topics of one broker."""

    def __init__(
        self, topics: Topics, clock: Clock, mishaps: Mishaps, *, interval_s: float
    ) -> None:
        self._mishaps = mishaps
        self._topics = topics
        self._clock = clock
        self._interval_s = interval_s
        self._unused_since_s: dict[Topic, float] = {}
        self._idle = IdleSubscriptions(clock)

    async def run(self) -> None:
        """Look after everything, again and again."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look_after_all()

    async def look_after_all(self) -> None:
        """Look after every open topic once."""
        async for topic in slices.in_slices(self._topics.all(), TOPICS_PER_SLICE):
            try:
                await self.look_after(topic)
            except AnabranchError as error:
                _log.warning("topic_not_looked_after", topic=str(topic.name), error=str(error))
            except Exception as error:  # noqa: BLE001 - the other topics need looking after too
                self._mishaps.report(f"upkeep of {topic.name}", error)
        # Those that were closed need not be remembered.
        self._unused_since_s = {
            topic: since for topic, since in self._unused_since_s.items() if not topic.closed
        }
        self._idle.forget_closed()

    async def look_after(self, topic: Topic) -> None:
        """Do what a topic's policies ask for now."""
        if topic.name.is_persistent:
            await self._expire(topic)
            await self._keep_within_quotas(topic)
            await self._idle.end_idle(topic)
        await self._delete_if_unused(topic)

    # --- expiry -------------------------------------------------------------------------------

    async def _expire(self, topic: Topic) -> None:
        ttl_s = topic.policies.message_ttl_s
        if ttl_s <= 0:
            return
        before_ms = self._clock.wall_ms() - ttl_s * 1000
        newest = await newest_matching(
            topic.ledger,
            topic.visibility.last_readable(),
            lambda entry: _is_published_before(entry, before_ms),
        )
        if newest is not None:
            for subscription in of_clients(topic):
                before = subscription.cursor.backlog()
                pass_over(subscription, newest)
                if passed := before - subscription.cursor.backlog():
                    subscription.expired.count(passed, self._clock.wall_ms())

    # --- quotas -------------------------------------------------------------------------------

    async def _keep_within_quotas(self, topic: Topic) -> None:
        exceeded = None
        behind = slowest(topic)
        if behind is not None:
            exceeded = self._size_exceeded(topic, behind) or await self._age_exceeded(topic, behind)
        if exceeded is not None and exceeded.action == EVICT:
            await self._evict(topic, exceeded)
            exceeded = None
        topic.over_quota = exceeded
        if exceeded is not None and topic.producers:
            _log.warning("backlog_quota_exceeded", topic=str(topic.name), why=exceeded.text)
            topic.disconnect_producers()

    def _size_exceeded(self, topic: Topic, behind: Subscription) -> Exceeded | None:
        quota = topic.policies.storage_quota
        size = backlog_bytes(topic, behind.cursor.mark_delete)
        if quota.bytes_max < 0 or size <= quota.bytes_max:
            return None
        return Exceeded(
            quota.policy, f"{size} bytes are not acknowledged, {quota.bytes_max} may be"
        )

    async def _age_exceeded(self, topic: Topic, behind: Subscription) -> Exceeded | None:
        quota = topic.policies.age_quota
        if quota.limit_time <= 0:
            return None
        oldest_ms = await oldest_time_ms(topic, behind)
        if oldest_ms is None or self._clock.wall_ms() - oldest_ms <= quota.limit_time * 1000:
            return None
        return Exceeded(
            quota.policy, f"a message is not acknowledged for more than {quota.limit_time} s"
        )

    async def _evict(self, topic: Topic, exceeded: Exceeded) -> None:
        """Pass over the oldest messages until the slowest subscription is within the quotas."""
        size_max = topic.policies.storage_quota.bytes_max
        age_s = topic.policies.age_quota.limit_time
        too_old = None
        if age_s > 0:
            before_ms = self._clock.wall_ms() - age_s * 1000
            too_old = await newest_matching(
                topic.ledger,
                topic.visibility.last_readable(),
                lambda entry: _is_published_before(entry, before_ms),
            )
        for subscription in of_clients(topic):
            before = subscription.cursor.backlog()
            if too_old is not None:
                pass_over(subscription, too_old)
            if size_max >= 0:
                _evict_bytes(topic, subscription, kept_bytes(size_max))
            if passed := before - subscription.cursor.backlog():
                _log.warning(
                    "backlog_evicted",
                    topic=str(topic.name),
                    subscription=subscription.name,
                    entries=passed,
                    why=exceeded.text,
                )

    # --- disuse -------------------------------------------------------------------------------

    async def _delete_if_unused(self, topic: Topic) -> None:
        rule = topic.policies.inactive_topics
        now_s = self._clock.monotonic_s()
        if not (rule.delete_while_inactive or not topic.name.is_persistent) or _is_used(topic):
            self._unused_since_s.pop(topic, None)
            return
        since_s = self._unused_since_s.setdefault(topic, now_s)
        if now_s - since_s >= rule.inactive_s_max and not _is_retained(topic):
            _log.info("unused_topic_deleted", topic=str(topic.name))
            self._unused_since_s.pop(topic, None)
            await self._topics.delete(topic.name)


def pass_over(subscription: Subscription, position: Position) -> None:
    """Acknowledge everything up to a position, as if its consumers had."""
    if subscription.cursor.mark_delete < position:
        subscription.cursor.acknowledge_cumulative(position)
        subscription.wake()


def _evict_bytes(topic: Topic, subscription: Subscription, kept: int) -> None:
    cursor = subscription.cursor
    size = backlog_bytes(topic, cursor.mark_delete)
    entries = cursor.backlog()
    if size > kept and entries:
        # Entries are of about the same size; the next look corrects what this one missed.
        cursor.skip(max(1, -(-entries * (size - kept) // size)))
        subscription.wake()


def _is_used(topic: Topic) -> bool:
    if topic.producers or any(each.consumers for each in topic.subscriptions.values()):
        return True
    if not topic.name.is_persistent:
        return False
    if topic.policies.inactive_topics.delete_mode == DELETE_MODES[1]:
        return any(each.cursor.backlog() for each in of_clients(topic))
    return bool(of_clients(topic))


def _is_retained(topic: Topic) -> bool:
    """Whether acknowledged messages are kept that somebody may yet come for."""
    rule = topic.policies.retention
    return topic.holds_messages and (rule.time_minutes != 0 or rule.size_mb != 0)


def _is_published_before(entry: Buffer, time_ms: int) -> bool:
    try:
        return publish_time_ms(entry) < time_ms
    except ProtocolError:
        return True  # nobody can tell, and so it does not hold up what comes after it
