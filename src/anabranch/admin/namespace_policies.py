"""The single policies of a namespace, one row each: what is read, what is accepted, what clears it.

Every policy is a field of the namespace's document; three endpoints are made of each row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from anabranch.admin.endpoints import EMPTY, Call, Endpoint, as_document
from anabranch.admin.namespaces import change, existing
from anabranch.admin.refusals import RestRefused
from anabranch.errors import InputError
from anabranch.policies import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    JsonDocument,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
    to_json,
)
from anabranch.policies.paths import CLUSTERS
from anabranch.policies.rules import COMPATIBILITY_STRATEGIES, QUOTA_ACTIONS, QUOTA_TYPES
from anabranch.security import Right

_ONE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
Read = Callable[[Call], Any]
"""Makes a field's value of the request."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: its page, its field, and how its value is read."""

    page: str
    field: str
    read: Read
    method: str = "POST"
    cleared: Any = None
    """What the field is when nothing was decided."""
    unset: Any = EMPTY
    """What is answered then."""
    can_be_cleared: bool = True
    per_cluster: bool = False
    """Kept for each cluster by its name; this cluster's own is read and set."""
    status_empty: bool = False
    """Whether Pulsar answers a change with 200 rather than 204."""


def _number(name: str, low: int = 0) -> Read:
    def read(call: Call) -> int:
        value = call.json()
        if type(value) is not int:
            raise RestRefused(400, f"the body has to be a whole number, for {name}")
        if value < low:
            raise RestRefused(412, f"{name} must be {low} or more")
        return value

    return read


def _flag(call: Call) -> bool:
    value = call.json()
    if not isinstance(value, bool):
        raise RestRefused(400, "the body has to be true or false")
    return value


def _ttl(call: Call) -> int:
    value = call.json()
    if type(value) is not int:
        raise RestRefused(400, "the body has to be a whole number of seconds")
    if value < 0:
        raise RestRefused(412, "Invalid value for message TTL, message TTL must >= 0")
    return value


def _choice(*choices: str) -> Read:
    def read(call: Call) -> str:
        value = call.json()
        if value not in choices:
            raise RestRefused(400, f"the body has to be one of {', '.join(choices)}")
        return str(value)

    return read


def _document(kind: type[JsonDocument]) -> Read:
    def read(call: Call) -> JsonDocument | None:
        value = call.json()
        if value is None:
            return None
        document = as_document(kind, value)
        try:
            if isinstance(document, RetentionRule | AutoTopicCreation):
                document.check()
        except InputError as error:
            status = 400 if isinstance(document, RetentionRule) else 406
            raise RestRefused(status, str(error)) from None
        return document

    return read


def _subscription_types(call: Call) -> tuple[str, ...]:
    value = call.json()
    if not isinstance(value, list) or not all(each in _SUBSCRIPTION_TYPES for each in value):
        raise RestRefused(400, f"the body has to be a list of {', '.join(_SUBSCRIPTION_TYPES)}")
    return tuple(value)


def _properties(call: Call) -> dict[str, str]:
    value = call.json()
    texts = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if not texts:
        raise RestRefused(400, "the body has to be an object of texts")
    return dict(value)


def _group(call: Call) -> str:
    value = call.json()
    if not isinstance(value, str) or not value.strip():
        raise RestRefused(412, "the body has to be the name of a group")
    return value


_RATE: Final = _document(DispatchRate)
POLICIES: Final = (
    Policy("retention", "retention", _document(RetentionRule)),
    Policy("messageTTL", "message_ttl_s", _ttl),
    Policy(
        "subscriptionExpirationTime",
        "subscription_expiration_minutes",
        _number("subscriptionExpirationTime"),
    ),
    Policy("deduplication", "deduplication_enabled", _flag),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplication_snapshot_s",
        _number("deduplicationSnapshotInterval"),
        can_be_cleared=False,
    ),
    Policy("persistence", "persistence", _document(Persistence)),
    Policy("autoTopicCreation", "auto_topic_creation", _document(AutoTopicCreation)),
    Policy(
        "autoSubscriptionCreation",
        "auto_subscription_creation",
        _document(AutoSubscriptionCreation),
    ),
    Policy("dispatchRate", "topic_dispatch_rate", _RATE, per_cluster=True),
    Policy("subscriptionDispatchRate", "subscription_dispatch_rate", _RATE, per_cluster=True),
    Policy("replicatorDispatchRate", "replicator_dispatch_rate", _RATE, per_cluster=True),
    Policy("publishRate", "publish_rate", _document(PublishRate), per_cluster=True),
    Policy("subscribeRate", "cluster_subscribe_rate", _document(SubscribeRate), per_cluster=True),
    Policy("delayedDelivery", "delayed_delivery", _document(DelayedDelivery)),
    Policy("inactiveTopicPolicies", "inactive_topics", _document(InactiveTopics)),
    Policy("maxProducersPerTopic", "producers_per_topic_max", _number("maxProducersPerTopic")),
    Policy("maxConsumersPerTopic", "consumers_per_topic_max", _number("maxConsumersPerTopic")),
    Policy(
        "maxConsumersPerSubscription",
        "consumers_per_subscription_max",
        _number("maxConsumersPerSubscription"),
    ),
    Policy(
        "maxUnackedMessagesPerConsumer",
        "unacked_per_consumer_max",
        _number("maxUnackedMessagesPerConsumer"),
    ),
    Policy(
        "maxUnackedMessagesPerSubscription",
        "unacked_per_subscription_max",
        _number("maxUnackedMessagesPerSubscription"),
    ),
    Policy(
        "maxSubscriptionsPerTopic",
        "subscriptions_per_topic_max",
        _number("maxSubscriptionsPerTopic"),
    ),
    Policy(
        "maxTopicsPerNamespace",
        "topics_per_namespace_max",
        _number("maxTopicsPerNamespace"),
        unset=0,
    ),
    Policy("encryptionRequired", "encryption_required", _flag, cleared=False, can_be_cleared=False),
    Policy(
        "subscriptionAuthMode",
        "subscription_auth_mode",
        _choice("None", "Prefix"),
        cleared="None",
        can_be_cleared=False,
    ),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        _choice(*COMPATIBILITY_STRATEGIES),
        method="PUT",
        cleared="UNDEFINED",
        can_be_cleared=False,
    ),
    Policy(
        "schemaValidationEnforced",
        "schema_validation_enforced",
        _flag,
        cleared=False,
        can_be_cleared=False,
    ),
    Policy(
        "isAllowAutoUpdateSchema", "schema_auto_update", _flag, unset=True, can_be_cleared=False
    ),
    Policy(
        "compactionThreshold", "compaction_threshold", _number("compactionThreshold"), method="PUT"
    ),
    Policy(
        "subscriptionTypesEnabled", "subscription_types_enabled", _subscription_types, cleared=()
    ),
    Policy("properties", "properties", _properties, method="PUT", cleared={}),
)


def _json(value: Any) -> Any:
    if isinstance(value, JsonDocument):
        return to_json(value)
    return list(value) if isinstance(value, tuple) else value


def _endpoints_of(policy: Policy) -> list[Endpoint]:
    async def get(call: Call) -> object:
        value = getattr(await existing(call), policy.field)
        if policy.per_cluster:
            value = value.get(call.served.cluster)
        return policy.unset if value is None else _json(value)

    async def put(call: Call) -> object:
        value = policy.read(call)
        await _store(call, policy, policy.cleared if value is None else value)
        return EMPTY if policy.status_empty else None

    async def clear(call: Call) -> None:
        await _store(call, policy, policy.cleared)

    path = f"{_ONE}/{policy.page}"
    rows = [
        Endpoint("GET", path, Right.ADMINISTER, get, f"{policy.page} of a namespace"),
        Endpoint(policy.method, path, Right.ADMINISTER, put, f"Set {policy.page}"),
    ]
    if policy.can_be_cleared:
        rows.append(Endpoint("DELETE", path, Right.ADMINISTER, clear, f"Clear {policy.page}"))
    return rows


async def _store(call: Call, policy: Policy, value: Any) -> None:
    if policy.per_cluster:
        kept = getattr(await existing(call), policy.field)
        kept = {name: kept[name] for name in kept if name != call.served.cluster}
        value = kept if value is None else {**kept, call.served.cluster: value}
    await change(call, **{policy.field: value})


# --- those that are not one field ------------------------------------------------------------


async def get_quotas(call: Call) -> object:
    """The backlog quotas by type."""
    quotas = (await existing(call)).backlog_quotas
    return {kind: to_json(quota) for kind, quota in quotas.items()}


async def set_quota(call: Call) -> None:
    """Limit what may be unacknowledged."""
    quota = call.document(BacklogQuota)
    if quota.policy not in QUOTA_ACTIONS:
        raise RestRefused(400, f"policy has to be one of {', '.join(QUOTA_ACTIONS)}")
    kept = (await existing(call)).backlog_quotas
    await change(call, backlog_quotas={**kept, _quota_type(call): quota})


async def clear_quota(call: Call) -> None:
    """Take a limit back."""
    kind = _quota_type(call)
    kept = (await existing(call)).backlog_quotas
    await change(call, backlog_quotas={name: kept[name] for name in kept if name != kind})


def _quota_type(call: Call) -> str:
    kind = call.query.get("backlogQuotaType", QUOTA_TYPES[0])
    if kind not in QUOTA_TYPES:
        raise RestRefused(400, f"backlogQuotaType has to be one of {', '.join(QUOTA_TYPES)}")
    return kind


async def get_clusters(call: Call) -> object:
    """The clusters a namespace is replicated between."""
    return list((await existing(call)).replication_clusters)


async def set_clusters(call: Call) -> object:
    """Name the clusters of a namespace; replication to others is not served."""
    clusters = call.json()
    if not isinstance(clusters, list) or not clusters:
        raise RestRefused(412, "the body has to be a list of clusters")
    known = await call.served.metadata.children(CLUSTERS)
    wrong = [name for name in clusters if name not in known]
    if wrong:
        raise RestRefused(403, f"Invalid cluster id: {wrong[0]}")
    if list(clusters) != [call.served.cluster]:
        raise RestRefused(405, "replication between clusters is not served")
    await change(call, replication_clusters=tuple(clusters))
    return EMPTY


async def get_property(call: Call) -> object:
    """One property."""
    found = (await existing(call)).properties.get(call.names["key"])
    return EMPTY if found is None else found


async def set_property(call: Call) -> None:
    """Set one property."""
    kept = (await existing(call)).properties
    await change(call, properties={**kept, call.names["key"]: call.names["value"]})


async def clear_property(call: Call) -> object:
    """Remove one property and return what it was."""
    kept = (await existing(call)).properties
    key = call.names["key"]
    await change(call, properties={name: kept[name] for name in kept if name != key})
    return kept.get(key, EMPTY)


def _row(method: str, page: str, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_ONE}/{page}", Right.ADMINISTER, serve, words)


POLICY_ENDPOINTS: Final = (
    *(endpoint for policy in POLICIES for endpoint in _endpoints_of(policy)),
    _row("GET", "backlogQuotaMap", get_quotas, "Backlog quotas"),
    _row("POST", "backlogQuota", set_quota, "Set a backlog quota"),
    _row("DELETE", "backlogQuota", clear_quota, "Clear a backlog quota"),
    _row("GET", "replication", get_clusters, "Clusters of a namespace"),
    _row("POST", "replication", set_clusters, "Set the clusters of a namespace"),
    _row("GET", "property/{key}", get_property, "A property of a namespace"),
    _row("PUT", "property/{key}/{value}", set_property, "Set a property"),
    _row("DELETE", "property/{key}", clear_property, "Remove a property"),
)
