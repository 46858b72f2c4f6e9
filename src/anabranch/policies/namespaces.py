"""The documents of a namespace: its policies, and what only its own cluster needs to know."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from anabranch.errors import InputError
from anabranch.policies.json_documents import JsonDocument, keyed
from anabranch.policies.rules import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    Bundles,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
)

BUNDLES_DEFAULT = 4
BUNDLES_MAX = 4096
_HASHES = 1 << 32
_BOUNDARY = re.compile("0x[0-9a-fA-F]{1,8}")


def even_bundles(count: int = BUNDLES_DEFAULT) -> Bundles:
    """Cut the range of hashes evenly.

    Raises:
        InputError: if the number of bundles is out of bounds.
    """
    if not 1 <= count <= BUNDLES_MAX:
        raise InputError(
            "Invalid number of bundles. Number of bundles has to be in the range of (0, 2^32]."
            if count < 1
            else f"at most {BUNDLES_MAX} bundles can be served, not {count}"
        )
    step = _HASHES // count
    boundaries = [f"0x{step * index:08x}" for index in range(count)]
    return Bundles(boundaries=(*boundaries, "0xffffffff"), num_bundles=count)


def given_bundles(boundaries: Sequence[str]) -> Bundles:
    """Cut the range of hashes as somebody wants it.

    Raises:
        InputError: if the boundaries do not rise from the lowest hash to the highest.
    """
    if not all(_BOUNDARY.fullmatch(each) for each in boundaries):
        raise InputError("boundaries of bundles have to be numbers from 0x00000000 to 0xffffffff")
    found = [int(each, 16) for each in boundaries]
    rising = all(low < high for low, high in pairwise(found))
    if not rising or len(found) < 2 or (found[0], found[-1]) != (0, _HASHES - 1):
        raise InputError("boundaries of bundles have to rise from 0x00000000 to 0xffffffff")
    if len(found) - 1 > BUNDLES_MAX:
        raise InputError(f"at most {BUNDLES_MAX} bundles can be served, not {len(found) - 1}")
    return Bundles(boundaries=tuple(f"0x{each:08x}" for each in found), num_bundles=len(found) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthPolicies(JsonDocument):
    """Who may do what: actions by role, by topic and role, and roles by subscription."""

    namespace_auth: Mapping[str, tuple[str, ...]] = keyed("namespace_auth", make=dict)
    topic_auth: Mapping[str, Mapping[str, tuple[str, ...]]] = keyed("destination_auth", make=dict)
    subscription_auth: Mapping[str, tuple[str, ...]] = keyed("subscription_auth_roles", make=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePolicies(JsonDocument):
    """`/admin/policies/TENANT/NAMESPACE`. None means that the broker's own setting counts."""

    auth_policies: AuthPolicies = keyed("auth_policies", make=AuthPolicies)
    replication_clusters: tuple[str, ...] = keyed("replication_clusters", ())
    allowed_clusters: tuple[str, ...] = keyed("allowed_clusters", ())
    bundles: Bundles | None = None
    backlog_quotas: Mapping[str, BacklogQuota] = keyed("backlog_quota_map", make=dict)
    cluster_dispatch_rate: Mapping[str, DispatchRate] = keyed("clusterDispatchRate", make=dict)
    topic_dispatch_rate: Mapping[str, DispatchRate] = keyed("topicDispatchRate", make=dict)
    subscription_dispatch_rate: Mapping[str, DispatchRate] = keyed(
        "subscriptionDispatchRate", make=dict
    )
    replicator_dispatch_rate: Mapping[str, DispatchRate] = keyed(
        "replicatorDispatchRate", make=dict
    )
    cluster_subscribe_rate: Mapping[str, SubscribeRate] = keyed("clusterSubscribeRate", make=dict)
    persistence: Persistence | None = None
    deduplication_enabled: bool | None = None
    auto_topic_creation: AutoTopicCreation | None = keyed("autoTopicCreationOverride", None)
    auto_subscription_creation: AutoSubscriptionCreation | None = keyed(
        "autoSubscriptionCreationOverride", None
    )
    publish_rate: Mapping[str, PublishRate] = keyed("publishMaxMessageRate", make=dict)
    latency_stats_sample_rate: Mapping[str, int] = keyed("latency_stats_sample_rate", make=dict)
    message_ttl_s: int | None = keyed("message_ttl_in_seconds", None, narrow=True)
    subscription_expiration_minutes: int | None = keyed(
        "subscription_expiration_time_minutes", None, narrow=True
    )
    retention: RetentionRule | None = keyed("retention_policies", None)
    deleted: bool = False
    encryption_required: bool = keyed("encryption_required", False)
    delayed_delivery: DelayedDelivery | None = keyed("delayed_delivery_policies", None)
    inactive_topics: InactiveTopics | None = keyed("inactive_topic_policies", None)
    subscription_auth_mode: str = keyed("subscription_auth_mode", "None")
    producers_per_topic_max: int | None = keyed("max_producers_per_topic", None, narrow=True)
    consumers_per_topic_max: int | None = keyed("max_consumers_per_topic", None, narrow=True)
    consumers_per_subscription_max: int | None = keyed(
        "max_consumers_per_subscription", None, narrow=True
    )
    unacked_per_consumer_max: int | None = keyed(
        "max_unacked_messages_per_consumer", None, narrow=True
    )
    unacked_per_subscription_max: int | None = keyed(
        "max_unacked_messages_per_subscription", None, narrow=True
    )
    subscriptions_per_topic_max: int | None = keyed(
        "max_subscriptions_per_topic", None, narrow=True
    )
    compaction_threshold: int | None = keyed("compaction_threshold", None)
    offload_threshold: int = keyed("offload_threshold", -1)
    offload_threshold_s: int = keyed("offload_threshold_in_seconds", -1)
    offload_deletion_lag_ms: int | None = keyed("offload_deletion_lag_ms", None)
    topics_per_namespace_max: int | None = keyed("max_topics_per_namespace", None, narrow=True)
    schema_auto_update_strategy: str | None = keyed(
        "schema_auto_update_compatibility_strategy", None
    )
    schema_compatibility_strategy: str = keyed("schema_compatibility_strategy", "UNDEFINED")
    schema_auto_update: bool | None = keyed("is_allow_auto_update_schema", None)
    schema_auto_update_with_replicator: bool = keyed(
        "is_allow_auto_update_schema_with_replicator", True
    )
    schema_validation_enforced: bool = keyed("schema_validation_enforced", False)
    offload_policies: Mapping[str, Any] | None = keyed("offload_policies", None)
    deduplication_snapshot_s: int | None = keyed(
        "deduplicationSnapshotIntervalSeconds", None, narrow=True
    )
    subscription_types_enabled: tuple[str, ...] = keyed("subscription_types_enabled", ())
    properties: Mapping[str, str] = keyed("properties", make=dict)
    resource_group_name: str | None = keyed("resource_group_name", None)
    migrated: bool = False
    entry_filters: Mapping[str, Any] | None = keyed("entryFilters", None)
    pauses_for_acknowledgements: bool | None = keyed(
        "dispatcherPauseOnAckStatePersistentEnabled", None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPolicies(JsonDocument):
    """`/admin/local-policies/TENANT/NAMESPACE`."""

    bundles: Bundles | None = None
    bookie_affinity_group: Mapping[str, Any] | None = None
    namespace_anti_affinity_group: str | None = None
    migrated: bool = False
