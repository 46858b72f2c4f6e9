"""Planted bugs of the policies that `anabranch.broker` lives by."""

from collections.abc import AsyncIterator
from typing import Any

from anabranch.broker.deduplication import Deduplication
from anabranch.broker.policies.delivery_rules import DeliveryRules
from anabranch.broker.policies.quotas import Exceeded
from anabranch.broker.policies.source import Changed, PolicySource
from anabranch.broker.policies.subscribe_rates import Subscriber, SubscribeRates
from anabranch.broker.producer import LiveConnection, Producer
from anabranch.broker.throttling import DispatchThrottle, PublishThrottle
from anabranch.broker.topic import Topic
from anabranch.broker.topic_upkeep import TopicUpkeep
from anabranch.ledgers.store import LedgerQuorums
from anabranch.managed_ledger.retention import Retention
from anabranch.metadata.store import Event
from anabranch.policies import Persistence, RetentionRule
from anabranch.policies.effective import EffectivePolicies
from anabranch.testing.planted import original, planted


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


@planted("encryption_is_optional", target="anabranch.broker.policies.publishing:_judged")
def encryption_is_optional(topic: Topic, send: object) -> None:
    """Messages that anybody can read are stored where they must be encrypted."""
    del topic, send


@planted(
    "nobody_has_to_acknowledge",
    target="anabranch.broker.policies.delivery_rules:DeliveryRules.follow",
)
def nobody_has_to_acknowledge(self: DeliveryRules, policies: EffectivePolicies) -> None:
    """How much may be unacknowledged is what it always was, whatever the policies say."""
    self.delays = policies.delayed_delivery.active


@planted("delays_cannot_be_turned_off", target="anabranch.broker.topic:DeliveryRules.follow")
def delays_cannot_be_turned_off(self: DeliveryRules, policies: EffectivePolicies) -> None:
    """Messages are kept back where that is not allowed."""
    original("delays_cannot_be_turned_off")(self, policies)
    self.delays = True


@planted("namespaces_are_bottomless", target="anabranch.broker.namespaces:Namespaces.require_room")
async def namespaces_are_bottomless(self: object, topic: object, adding: int = 1) -> None:
    """However many topics there are, there may be more."""
    del self, topic, adding


@planted(
    "subscriptions_never_expire",
    target="anabranch.broker.idle_subscriptions:IdleSubscriptions.end_idle",
)
async def subscriptions_never_expire(self: object, topic: object) -> None:
    """A subscription that nobody uses keeps its backlog for ever."""
    del self, topic


@planted(
    "everybody_subscribes_again_and_again",
    target="anabranch.broker.policies.subscribe_rates:SubscribeRates.admit",
)
def everybody_subscribes_again_and_again(
    self: SubscribeRates, subscriber: Subscriber, now_s: float
) -> None:
    """Consumers subscribe as often as they like, whatever the policies say."""


@planted(
    "snapshots_have_their_own_time",
    target="anabranch.broker.deduplication:Deduplication.snapshot_every",
)
def snapshots_have_their_own_time(self: Deduplication, interval_s: int) -> None:
    """What is known of producers is stored when it always was, whatever the policies say."""
    if self._snapshot_s == 0:
        original("snapshots_have_their_own_time")(self, 120)


@planted("persistence_is_only_stored", target="anabranch.broker.topic:quorums_of")
def persistence_is_only_stored(rule: Persistence | None) -> LedgerQuorums | None:
    """Ledgers have the quorums of the store, whatever the policies say."""


@planted("the_broad_goes_before_the_narrow", target="anabranch.policies.effective:_first")
def the_broad_goes_before_the_narrow(*choices: Any, default: Any) -> Any:
    """What a namespace says counts before what its topic says."""
    said = [choice for choice in choices if choice is not None]
    return said[-1] if said else default
