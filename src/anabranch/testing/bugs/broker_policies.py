"""Planted bugs of the policies that `anabranch.broker` lives by."""

from collections.abc import AsyncIterator

from anabranch.broker.policies.quotas import Exceeded
from anabranch.broker.policies.source import Changed, PolicySource
from anabranch.broker.producer import LiveConnection, Producer
from anabranch.broker.throttling import DispatchThrottle, PublishThrottle
from anabranch.broker.topic import Topic
from anabranch.broker.topic_upkeep import TopicUpkeep
from anabranch.managed_ledger.retention import Retention
from anabranch.metadata.store import Event
from anabranch.policies import RetentionRule
from anabranch.testing.planted import planted


@planted("nothing_expires", target="anabranch.broker.topic_upkeep:TopicUpkeep._expire")
async def nothing_expires(self: TopicUpkeep, topic: Topic) -> None:
    """Messages live on when their time is over."""


@planted("retention_is_not_applied", target="anabranch.broker.topic:retention_of")
def retention_is_not_applied(rule: RetentionRule) -> Retention | None:
    """What everybody acknowledged is removed, whatever retention says."""
    return Retention()


@planted(
    "quotas_are_not_looked_at",
    target="anabranch.broker.topic_upkeep:TopicUpkeep._keep_within_quotas",
)
async def quotas_are_not_looked_at(self: TopicUpkeep, topic: Topic) -> None:
    """Producers go on however large the backlog is."""


@planted("nothing_is_evicted", target="anabranch.broker.topic_upkeep:TopicUpkeep._evict")
async def nothing_is_evicted(self: TopicUpkeep, topic: Topic, exceeded: Exceeded) -> None:
    """A backlog that is to be cut stays as it is."""


@planted("topics_in_use_are_deleted", target="anabranch.broker.topic_upkeep:_is_retained")
def topics_in_use_are_deleted(topic: Topic) -> bool:
    """What is retained goes with a topic that nobody uses."""
    return False


@planted("there_is_room_for_everybody", target="anabranch.broker.topic:admit_producer")
def there_is_room_for_everybody(topic: Topic, producer: Producer) -> None:
    """Any number of producers is let in."""


@planted(
    "changed_policies_are_not_heard_of",
    target="anabranch.broker.policies.source:PolicySource._hear",
)
async def changed_policies_are_not_heard_of(
    self: PolicySource, events: AsyncIterator[Event], prefix: str, changed: Changed
) -> None:
    """Open topics live by the policies they were opened with."""


@planted("topics_have_no_policies_of_their_own", target="anabranch.policies.effective:_first")
def topics_have_no_policies_of_their_own(*choices: object, default: object) -> object:
    """Of two levels that say something the lower one is not heard."""
    said = [choice for choice in choices[1:] if choice is not None]
    return said[0] if said else default


@planted("topics_take_any_size", target="anabranch.broker.topic:largest_entry")
def topics_take_any_size(message_bytes_max: int) -> int:
    """Only the broker's own limit of sizes counts."""
    return 1 << 62


@planted("everybody_publishes_at_once", target="anabranch.broker.throttling:PublishThrottle.charge")
def everybody_publishes_at_once(
    self: PublishThrottle, connection: LiveConnection, messages: int, size: int
) -> None:
    """Producers are read from however fast they are."""


@planted(
    "everything_is_sent_at_once", target="anabranch.broker.throttling:DispatchThrottle.room_for"
)
def everything_is_sent_at_once(self: DispatchThrottle, wanted: int) -> int:
    """Consumers get what they can take, however fast that is."""
    return wanted
