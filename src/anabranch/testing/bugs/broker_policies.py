"""Planted bugs of the policies that `anabranch.broker` lives by."""

from collections.abc import AsyncIterator

from anabranch.broker.policies.quotas import Exceeded
from anabranch.broker.policies.source import Changed, PolicySource
from anabranch.broker.producer import Producer
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
