"""Which level wins: a topic's own policy, else its namespace's, else the broker's setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from anabranch import limits
from anabranch.policies.namespaces import NamespacePolicies
from anabranch.policies.rules import (
    AUTO_UPDATE_STRATEGIES,
    DELETE_MODES,
    DESTINATION_STORAGE,
    MESSAGE_AGE,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
)
from anabranch.policies.topics import TopicPolicies

T = TypeVar("T")
UNDEFINED: Final = "UNDEFINED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDefaults:
    """What counts where neither namespace nor topic says anything; the defaults are Pulsar's.

    A number of 0 means no limit, as it does in policies.
    """

    auto_topic_creation: AutoTopicCreation = AutoTopicCreation(
        allow=True, topic_type="non-partitioned"
    )
    auto_subscription_creation: bool = True
    retention: RetentionRule = RetentionRule()
    message_ttl_s: int = 0
    backlog_quota: BacklogQuota = BacklogQuota(limit_size=-1, limit_time=-1)
    inactive_topics: InactiveTopics = InactiveTopics(
        delete_mode=DELETE_MODES[0], inactive_s_max=60, delete_while_inactive=True
    )
    delayed_delivery: DelayedDelivery = DelayedDelivery(tick_time_ms=100, active=True)
    deduplication_enabled: bool = False
    deduplication_snapshot_s: int = 120
    producers_max: int = 0
    consumers_max: int = 0
    consumers_per_subscription_max: int = 0
    subscriptions_max: int = 0
    unacked_per_consumer_max: int = limits.UNACKED_MESSAGES_PER_CONSUMER_MAX
    unacked_per_subscription_max: int = limits.UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX
    subscription_expiration_minutes: int = 0
    encryption_required: bool = False
    topics_per_namespace_max: int = 0
    message_bytes_max: int = 0
    """Of a topic; the broker's own limit counts in any case."""
    publish_rate: PublishRate = PublishRate()
    dispatch_rate: DispatchRate = DispatchRate()
    subscription_dispatch_rate: DispatchRate = DispatchRate()
    subscribe_rate: SubscribeRate = SubscribeRate()
    schema_compatibility_strategy: str = "FULL"
    schema_auto_update: bool = True
    schema_validation_enforced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicies:
    """What counts for one topic."""

    auto_subscription_creation: bool
    retention: RetentionRule
    message_ttl_s: int
    storage_quota: BacklogQuota
    age_quota: BacklogQuota
    inactive_topics: InactiveTopics
    delayed_delivery: DelayedDelivery
    deduplication_enabled: bool
    deduplication_snapshot_s: int
    """How often what is known of producers is stored; at 0 only after a number of entries."""
    producers_max: int
    consumers_max: int
    consumers_per_subscription_max: int
    subscriptions_max: int
    unacked_per_consumer_max: int
    unacked_per_subscription_max: int
    subscription_expiration_minutes: int
    message_bytes_max: int
    publish_rate: PublishRate
    dispatch_rate: DispatchRate
    subscription_dispatch_rate: DispatchRate
    subscribe_rate: SubscribeRate
    persistence: Persistence | None
    """None for the ledger store's own quorums."""
    schema_compatibility_strategy: str
    schema_auto_update: bool
    schema_validation_enforced: bool
    encryption_required: bool
    subscription_types: tuple[str, ...] = field(default=())
    """Names of those that may be used; none named means all."""
    dispatch_rates_of: Mapping[str, DispatchRate] = field(default_factory=dict)
    """Of single subscriptions, by name."""

    def dispatch_rate_of(self, subscription: str) -> DispatchRate:
        """How fast a subscription is sent messages."""
        return self.dispatch_rates_of.get(subscription, self.subscription_dispatch_rate)


def auto_topic_creation(
    defaults: PolicyDefaults, namespace: NamespacePolicies
) -> AutoTopicCreation:
    """Whether and how topics of a namespace are created when they are asked for."""
    if namespace.deleted:
        return AutoTopicCreation(allow=False)
    chosen = namespace.auto_topic_creation
    return defaults.auto_topic_creation if chosen is None else chosen


def resolve(
    defaults: PolicyDefaults,
    namespace: NamespacePolicies,
    topic: TopicPolicies | None = None,
    *,
    cluster: str,
) -> EffectivePolicies:
    """What counts for a topic: rates of a namespace are kept by cluster, the rest is for all."""
    own = topic or TopicPolicies()
    publish_rate = _first(
        own.publish_rate, namespace.publish_rate.get(cluster), default=defaults.publish_rate
    )
    dispatch_rate, subscription_dispatch_rate = _dispatch_rates(defaults, namespace, own, cluster)
    return EffectivePolicies(
        auto_subscription_creation=_auto_subscription(defaults, namespace, own),
        retention=_first(own.retention, namespace.retention, default=defaults.retention),
        message_ttl_s=_first(
            own.message_ttl_s, namespace.message_ttl_s, default=defaults.message_ttl_s
        ),
        storage_quota=_quota(DESTINATION_STORAGE, defaults, namespace, own),
        age_quota=_quota(MESSAGE_AGE, defaults, namespace, own),
        inactive_topics=_first(
            own.inactive_topics, namespace.inactive_topics, default=defaults.inactive_topics
        ),
        delayed_delivery=_delayed(defaults, namespace, own),
        deduplication_enabled=_first(
            own.deduplication_enabled,
            namespace.deduplication_enabled,
            default=defaults.deduplication_enabled,
        ),
        deduplication_snapshot_s=_first(
            own.deduplication_snapshot_s,
            namespace.deduplication_snapshot_s,
            default=defaults.deduplication_snapshot_s,
        ),
        **_numbers(defaults, namespace, own),
        message_bytes_max=_first(own.message_bytes_max, default=defaults.message_bytes_max),
        publish_rate=publish_rate,
        dispatch_rate=dispatch_rate,
        subscription_dispatch_rate=subscription_dispatch_rate,
        subscribe_rate=_first(
            own.subscribe_rate,
            namespace.cluster_subscribe_rate.get(cluster),
            default=defaults.subscribe_rate,
        ),
        persistence=_either(own.persistence, namespace.persistence),
        schema_compatibility_strategy=_strategy(defaults, namespace, own),
        schema_auto_update=_first(
            namespace.schema_auto_update, default=defaults.schema_auto_update
        ),
        schema_validation_enforced=_first(
            own.schema_validation_enforced,
            default=namespace.schema_validation_enforced or defaults.schema_validation_enforced,
        ),
        encryption_required=namespace.encryption_required or defaults.encryption_required,
        subscription_types=own.subscription_types_enabled or namespace.subscription_types_enabled,
        dispatch_rates_of=_rates_of_subscriptions(own),
    )


_NUMBERS: Final = {
    "producers_max": "producers_per_topic_max",
    "consumers_max": "consumers_per_topic_max",
    "consumers_per_subscription_max": "consumers_per_subscription_max",
    "subscriptions_max": "subscriptions_per_topic_max",
    "unacked_per_consumer_max": "unacked_per_consumer_max",
    "unacked_per_subscription_max": "unacked_per_subscription_max",
    "subscription_expiration_minutes": "subscription_expiration_minutes",
}
"""Numbers that all three levels have, and how a namespace's document names them."""


def _numbers(
    defaults: PolicyDefaults, namespace: NamespacePolicies, own: TopicPolicies
) -> dict[str, int]:
    return {
        name: _first(
            getattr(own, name), getattr(namespace, in_namespace), default=getattr(defaults, name)
        )
        for name, in_namespace in _NUMBERS.items()
    }


def _dispatch_rates(
    defaults: PolicyDefaults, namespace: NamespacePolicies, own: TopicPolicies, cluster: str
) -> tuple[DispatchRate, DispatchRate]:
    of_topic = _first(
        own.dispatch_rate,
        namespace.topic_dispatch_rate.get(cluster),
        default=defaults.dispatch_rate,
    )
    of_subscription = _first(
        own.subscription_dispatch_rate,
        namespace.subscription_dispatch_rate.get(cluster),
        default=defaults.subscription_dispatch_rate,
    )
    return of_topic, of_subscription


def _rates_of_subscriptions(own: TopicPolicies) -> dict[str, DispatchRate]:
    return {
        name: policies.dispatch_rate
        for name, policies in own.subscription_policies.items()
        if policies.dispatch_rate is not None
    }


def _first(*choices: T | None, default: T) -> T:
    return next((choice for choice in choices if choice is not None), default)


def _either(first: T | None, second: T | None) -> T | None:
    return second if first is None else first


def _auto_subscription(
    defaults: PolicyDefaults, namespace: NamespacePolicies, own: TopicPolicies
) -> bool:
    chosen = _either(own.auto_subscription_creation, namespace.auto_subscription_creation)
    return defaults.auto_subscription_creation if chosen is None else chosen.allow


def _quota(
    kind: str, defaults: PolicyDefaults, namespace: NamespacePolicies, own: TopicPolicies
) -> BacklogQuota:
    maps: tuple[Mapping[str, BacklogQuota], ...] = (own.backlog_quotas, namespace.backlog_quotas)
    return _first(*(each.get(kind) for each in maps), default=defaults.backlog_quota)


def _delayed(
    defaults: PolicyDefaults, namespace: NamespacePolicies, own: TopicPolicies
) -> DelayedDelivery:
    below = namespace.delayed_delivery or defaults.delayed_delivery
    return DelayedDelivery(
        tick_time_ms=_first(own.delayed_delivery_tick_ms, default=below.tick_time_ms),
        active=_first(own.delayed_delivery_enabled, default=below.active),
        delay_ms_max=_first(own.delayed_delivery_delay_ms_max, default=below.delay_ms_max),
    )


def _strategy(defaults: PolicyDefaults, namespace: NamespacePolicies, own: TopicPolicies) -> str:
    older = AUTO_UPDATE_STRATEGIES.get(namespace.schema_auto_update_strategy or "")
    newer = namespace.schema_compatibility_strategy
    for chosen in (own.schema_compatibility_strategy, newer, older):
        if chosen is not None and chosen != UNDEFINED:
            return chosen
    return defaults.schema_compatibility_strategy
