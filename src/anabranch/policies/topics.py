"""The documents of a topic: how many partitions it has, and the policies of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.policies.json_documents import JsonDocument, keyed
from anabranch.policies.rules import (
    AutoSubscriptionCreation,
    BacklogQuota,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedTopic(JsonDocument):
    """`/admin/partitioned-topics/TENANT/NAMESPACE/DOMAIN/TOPIC`."""

    partitions: int = 0
    deleted: bool = False
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPolicies(JsonDocument):
    """What counts for one subscription of a topic."""

    dispatch_rate: DispatchRate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicies(JsonDocument):
    """`/admin/topic-policies/local/TENANT/NAMESPACE/DOMAIN/TOPIC`, shared by all partitions.

    None means that the namespace's policy counts.
    """

    backlog_quotas: Mapping[str, BacklogQuota] = keyed("backLogQuotaMap", make=dict)
    subscription_types_enabled: tuple[str, ...] = keyed("subscriptionTypesEnabled", ())
    replication_clusters: tuple[str, ...] | None = None
    shadow_topics: tuple[str, ...] | None = None
    is_global: bool = keyed("isGlobal", False)
    persistence: Persistence | None = None
    retention: RetentionRule | None = keyed("retentionPolicies", None)
    deduplication_enabled: bool | None = None
    message_ttl_s: int | None = keyed("messageTTLInSeconds", None)
    subscription_expiration_minutes: int | None = keyed("subscriptionExpirationTimeInMinutes", None)
    producers_max: int | None = keyed("maxProducerPerTopic", None)
    consumers_max: int | None = keyed("maxConsumerPerTopic", None)
    consumers_per_subscription_max: int | None = keyed("maxConsumersPerSubscription", None)
    unacked_per_consumer_max: int | None = keyed("maxUnackedMessagesOnConsumer", None)
    unacked_per_subscription_max: int | None = keyed("maxUnackedMessagesOnSubscription", None)
    delayed_delivery_tick_ms: int | None = keyed("delayedDeliveryTickTimeMillis", None)
    delayed_delivery_enabled: bool | None = None
    delayed_delivery_delay_ms_max: int | None = keyed("delayedDeliveryMaxDelayInMillis", None)
    offload_policies: Mapping[str, Any] | None = None
    inactive_topics: InactiveTopics | None = keyed("inactiveTopicPolicies", None)
    dispatch_rate: DispatchRate | None = None
    subscription_dispatch_rate: DispatchRate | None = None
    compaction_threshold: int | None = None
    publish_rate: PublishRate | None = None
    subscribe_rate: SubscribeRate | None = None
    deduplication_snapshot_s: int | None = keyed("deduplicationSnapshotIntervalSeconds", None)
    message_bytes_max: int | None = keyed("maxMessageSize", None)
    subscriptions_max: int | None = keyed("maxSubscriptionsPerTopic", None)
    replicator_dispatch_rate: DispatchRate | None = None
    schema_compatibility_strategy: str | None = None
    auto_subscription_creation: AutoSubscriptionCreation | None = keyed(
        "autoSubscriptionCreationOverride", None
    )
    schema_validation_enforced: bool | None = None
    entry_filters: Mapping[str, Any] | None = None
    pauses_for_acknowledgements: bool | None = keyed(
        "dispatcherPauseOnAckStatePersistentEnabled", None
    )
    subscription_policies: Mapping[str, SubscriptionPolicies] = keyed(
        "subscriptionPolicies", make=dict
    )
