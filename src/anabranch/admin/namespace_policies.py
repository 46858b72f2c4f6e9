"""The single policies of a namespace, one row each: what is read, what is accepted, what clears it.

Every policy is a field of the namespace's document; three endpoints are made of each row.
"""

from dataclasses import replace
from typing import Any, Final

from anabranch.admin import policy_values as values
from anabranch.admin.endpoints import EMPTY, Call, Endpoint
from anabranch.admin.namespaces import change_by, existing
from anabranch.admin.policy_rows import Level, Policy, bounded, endpoints_of, without
from anabranch.admin.quota_rows import quota_endpoints
from anabranch.policies import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
    to_json,
)
from anabranch.policies.rules import AUTO_UPDATE_STRATEGIES, COMPATIBILITY_STRATEGIES
from anabranch.security import Right

_LEVEL: Final = Level("/admin/v2/namespaces/{tenant}/{namespace}", "namespace", existing, change_by)
_RATE: Final = values.document(DispatchRate)
POLICIES: Final = (
    Policy("retention", "retention", values.document(RetentionRule)),
    Policy("messageTTL", "message_ttl_s", values.seconds_to_live),
    bounded("subscriptionExpirationTime", "subscription_expiration_minutes"),
    Policy("deduplication", "deduplication_enabled", values.flag),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplication_snapshot_s",
        values.number_or_none("deduplicationSnapshotInterval"),
        can_be_cleared=False,
    ),
    Policy("persistence", "persistence", values.document(Persistence)),
    Policy("autoTopicCreation", "auto_topic_creation", values.document(AutoTopicCreation)),
    Policy(
        "autoSubscriptionCreation",
        "auto_subscription_creation",
        values.document(AutoSubscriptionCreation),
    ),
    Policy("dispatchRate", "topic_dispatch_rate", _RATE, per_cluster=True),
    Policy("subscriptionDispatchRate", "subscription_dispatch_rate", _RATE, per_cluster=True),
    Policy("replicatorDispatchRate", "replicator_dispatch_rate", _RATE, per_cluster=True),
    Policy("publishRate", "publish_rate", values.document(PublishRate), per_cluster=True),
    Policy(
        "subscribeRate", "cluster_subscribe_rate", values.document(SubscribeRate), per_cluster=True
    ),
    Policy("delayedDelivery", "delayed_delivery", values.document(DelayedDelivery)),
    Policy("inactiveTopicPolicies", "inactive_topics", values.document(InactiveTopics)),
    bounded("maxProducersPerTopic", "producers_per_topic_max"),
    bounded("maxConsumersPerTopic", "consumers_per_topic_max"),
    bounded("maxConsumersPerSubscription", "consumers_per_subscription_max"),
    bounded("maxUnackedMessagesPerConsumer", "unacked_per_consumer_max"),
    bounded("maxUnackedMessagesPerSubscription", "unacked_per_subscription_max"),
    bounded("maxSubscriptionsPerTopic", "subscriptions_per_topic_max"),
    bounded(
        "maxTopicsPerNamespace",
        "topics_per_namespace_max",
        unset=0,
    ),
    Policy(
        "encryptionRequired",
        "encryption_required",
        values.flag,
        cleared=False,
        can_be_cleared=False,
    ),
    Policy(
        "subscriptionAuthMode",
        "subscription_auth_mode",
        values.choice("None", "Prefix"),
        cleared="None",
        can_be_cleared=False,
    ),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        values.choice(*COMPATIBILITY_STRATEGIES),
        method="PUT",
        cleared="UNDEFINED",
        can_be_cleared=False,
    ),
    Policy(
        "schemaAutoUpdateCompatibilityStrategy",
        "schema_auto_update_strategy",
        values.choice(*AUTO_UPDATE_STRATEGIES),
        method="PUT",
        can_be_cleared=False,
    ),
    Policy(
        "schemaValidationEnforced",
        "schema_validation_enforced",
        values.flag,
        cleared=False,
        can_be_cleared=False,
    ),
    Policy(
        "isAllowAutoUpdateSchema",
        "schema_auto_update",
        values.flag,
        unset=True,
        can_be_cleared=False,
    ),
    Policy("compactionThreshold", "compaction_threshold", values.without_compaction, method="PUT"),
    Policy(
        "subscriptionTypesEnabled",
        "subscription_types_enabled",
        values.subscription_types,
        cleared=(),
    ),
    Policy("properties", "properties", values.properties, method="PUT", cleared={}),
)


# --- those that are not one field ------------------------------------------------------------


async def get_quotas(call: Call) -> object:
    """The backlog quotas by type."""
    quotas = (await existing(call)).backlog_quotas
    return {kind: to_json(quota) for kind, quota in quotas.items()}


async def get_property(call: Call) -> object:
    """One property."""
    found = (await existing(call)).properties.get(call.names["key"])
    return EMPTY if found is None else found


async def set_property(call: Call) -> None:
    """Set one property."""
    key, value = call.names["key"], call.names["value"]
    await change_by(call, lambda old: replace(old, properties={**old.properties, key: value}))


async def clear_property(call: Call) -> object:
    """Remove one property and return what it was."""
    key, found = call.names["key"], (await existing(call)).properties
    await change_by(call, lambda old: replace(old, properties=without(old.properties, key)))
    return found.get(key, EMPTY)


def _row(method: str, page: str, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_LEVEL.path}/{page}", Right.ADMINISTER, serve, words)


POLICY_ENDPOINTS: Final = (
    *(endpoint for policy in POLICIES for endpoint in endpoints_of(policy, _LEVEL)),
    *quota_endpoints(_LEVEL, get_quotas),
    _row("GET", "property/{key}", get_property, "A property of a namespace"),
    _row("PUT", "property/{key}/{value}", set_property, "Set a property"),
    _row("DELETE", "property/{key}", clear_property, "Remove a property"),
)
