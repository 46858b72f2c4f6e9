"""The policies of single topics, one row each; what a topic does not say is its namespace's to say.

They are one document for all partitions of a topic. With `applied` a page answers what counts in
the end. Policies of all clusters together (`isGlobal`) are not served.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from anabranch import limits
from anabranch.admin import policy_values as values
from anabranch.admin.endpoints import EMPTY, Call, Endpoint
from anabranch.admin.policy_rows import (
    Level,
    Policy,
    as_json,
    bounded,
    endpoints_of,
    what_counts,
    without,
)
from anabranch.admin.quota_rows import quota_endpoints
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_access import partitioned, require_namespace
from anabranch.errors import NotFound
from anabranch.policies import (
    AutoSubscriptionCreation,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
    TopicPolicies,
    to_json,
)
from anabranch.policies.effective import EffectivePolicies
from anabranch.policies.paths import topic_policies_path
from anabranch.policies.rules import (
    COMPATIBILITY_STRATEGIES,
    DESTINATION_STORAGE,
    MESSAGE_AGE,
    QUOTA_TYPES,
)
from anabranch.policies.topics import SubscriptionPolicies
from anabranch.security import Right

_ONE: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


async def existing(call: Call) -> TopicPolicies:
    """The policies of the topic in the path.

    Raises:
        RestRefused: if there is no such topic, or it is one partition of it.
    """
    await _require_topic(call)
    found = await call.documents.get(TopicPolicies, topic_policies_path(call.topic))
    return found or TopicPolicies()


async def change(call: Call, **changes: Any) -> None:
    """Change single fields of the policies of the topic in the path."""
    await change_by(call, lambda old: replace(old, **changes))


async def change_by(call: Call, make: Callable[[TopicPolicies], TopicPolicies]) -> None:
    """The same by what they are when they are changed, whoever else changes them."""
    await _require_topic(call)
    if call.flag("isGlobal"):
        raise RestRefused(405, "policies of all clusters together are not served")
    path = topic_policies_path(call.topic)
    while True:
        try:
            await call.documents.change(TopicPolicies, path, make)
        except NotFound:
            if not await call.documents.create(path, make(TopicPolicies())):
                continue  # somebody else was faster
        return


async def forget_all(call: Call) -> None:
    """Take back everything that was decided for a topic."""
    await _require_topic(call)
    await call.broker.policies.forget(call.topic)


async def _require_topic(call: Call) -> None:
    if call.topic.partition >= 0:
        raise RestRefused(412, "Not allowed to set/get topic policy for a partition")
    await require_namespace(call)
    if await partitioned(call) is None and not await call.broker.topics.exists(call.topic):
        raise RestRefused(404, f"Topic {call.topic} not found")


def _field(name: str) -> Callable[[EffectivePolicies], Any]:
    return lambda policies: getattr(policies, name)


_LEVEL: Final = Level(_ONE, "topic", existing, change_by)
_RATE: Final = values.document(DispatchRate)
TOPIC_POLICIES: Final = (
    Policy("retention", "retention", values.document(RetentionRule), applied=_field("retention")),
    Policy(
        "messageTTL",
        "message_ttl_s",
        values.seconds_to_live_in_query,
        applied=_field("message_ttl_s"),
    ),
    Policy(
        "deduplicationEnabled",
        "deduplication_enabled",
        values.flag,
        applied=_field("deduplication_enabled"),
    ),
    bounded(
        "deduplicationSnapshotInterval",
        "deduplication_snapshot_s",
        applied=_field("deduplication_snapshot_s"),
    ),
    Policy(
        "persistence",
        "persistence",
        values.document(Persistence),
        applied=_field("persistence"),
    ),
    Policy(
        "autoSubscriptionCreation",
        "auto_subscription_creation",
        values.document(AutoSubscriptionCreation),
        applied=lambda found: AutoSubscriptionCreation(allow=found.auto_subscription_creation),
    ),
    Policy("dispatchRate", "dispatch_rate", _RATE, applied=_field("dispatch_rate")),
    Policy(
        "subscriptionDispatchRate",
        "subscription_dispatch_rate",
        _RATE,
        applied=_field("subscription_dispatch_rate"),
    ),
    Policy("replicatorDispatchRate", "replicator_dispatch_rate", _RATE),
    Policy(
        "publishRate",
        "publish_rate",
        values.document(PublishRate),
        applied=_field("publish_rate"),
        unset=None,
    ),
    Policy(
        "subscribeRate",
        "subscribe_rate",
        values.document(SubscribeRate),
        applied=_field("subscribe_rate"),
    ),
    Policy(
        "inactiveTopicPolicies",
        "inactive_topics",
        values.document(InactiveTopics),
        applied=_field("inactive_topics"),
    ),
    bounded("maxProducers", "producers_max", applied=_field("producers_max")),
    bounded("maxConsumers", "consumers_max", applied=_field("consumers_max")),
    bounded(
        "maxConsumersPerSubscription",
        "consumers_per_subscription_max",
        applied=_field("consumers_per_subscription_max"),
        unset=None,
    ),
    bounded(
        "maxUnackedMessagesOnConsumer",
        "unacked_per_consumer_max",
        applied=_field("unacked_per_consumer_max"),
    ),
    bounded(
        "maxUnackedMessagesOnSubscription",
        "unacked_per_subscription_max",
        applied=_field("unacked_per_subscription_max"),
    ),
    bounded(
        "maxSubscriptionsPerTopic",
        "subscriptions_max",
        applied=_field("subscriptions_max"),
        unset=None,
    ),
    Policy(
        "maxMessageSize",
        "message_bytes_max",
        values.number("maxMessageSize", high=limits.MESSAGE_BYTES_SETTING_MAX),
        unset=None,
    ),
    bounded(
        "subscriptionExpirationTime",
        "subscription_expiration_minutes",
        applied=_field("subscription_expiration_minutes"),
    ),
    Policy("compactionThreshold", "compaction_threshold", values.without_compaction),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        values.choice(*COMPATIBILITY_STRATEGIES),
        method="PUT",
        applied=_field("schema_compatibility_strategy"),
    ),
    Policy(
        "schemaValidationEnforced",
        "schema_validation_enforced",
        values.flag,
        unset=False,
        can_be_cleared=False,
        applied=_field("schema_validation_enforced"),
    ),
    Policy(
        "subscriptionTypesEnabled",
        "subscription_types_enabled",
        values.subscription_types,
        cleared=(),
    ),
)


# --- those that are not one field ------------------------------------------------------------


async def get_quotas(call: Call) -> object:
    """The backlog quotas by type."""
    quotas = dict((await existing(call)).backlog_quotas)
    if call.flag("applied"):
        counts = await what_counts(call)
        quotas = {DESTINATION_STORAGE: counts.storage_quota, MESSAGE_AGE: counts.age_quota}
    return {kind: to_json(quotas[kind]) for kind in QUOTA_TYPES if kind in quotas}


async def get_delayed(call: Call) -> object:
    """Whether messages may be held back until their time."""
    own = await existing(call)
    if call.flag("applied"):
        return to_json((await what_counts(call)).delayed_delivery)
    if own.delayed_delivery_enabled is None:
        return EMPTY
    return to_json(
        DelayedDelivery(
            tick_time_ms=own.delayed_delivery_tick_ms or 0,
            active=own.delayed_delivery_enabled,
            delay_ms_max=own.delayed_delivery_delay_ms_max or 0,
        )
    )


async def set_delayed(call: Call) -> None:
    """Decide whether messages may be held back."""
    wanted = values.document(DelayedDelivery)(call)
    await change(
        call,
        delayed_delivery_enabled=wanted.active if wanted else None,
        delayed_delivery_tick_ms=wanted.tick_time_ms if wanted else None,
        delayed_delivery_delay_ms_max=wanted.delay_ms_max if wanted else None,
    )


async def clear_delayed(call: Call) -> None:
    """Leave it to the namespace."""
    await change(
        call,
        delayed_delivery_enabled=None,
        delayed_delivery_tick_ms=None,
        delayed_delivery_delay_ms_max=None,
    )


async def get_rate_of(call: Call) -> object:
    """How fast one subscription is sent messages."""
    found = (await existing(call)).subscription_policies.get(call.subscription)
    return EMPTY if found is None or found.dispatch_rate is None else as_json(found.dispatch_rate)


async def set_rate_of(call: Call) -> None:
    """Decide how fast one subscription is sent messages."""
    await _change_rate(call, call.document(DispatchRate))


async def clear_rate_of(call: Call) -> None:
    """Leave it to what counts for all subscriptions."""
    await _change_rate(call, None)


async def _change_rate(call: Call, rate: DispatchRate | None) -> None:
    name = call.subscription

    def make(old: TopicPolicies) -> TopicPolicies:
        kept = without(old.subscription_policies, name)
        if rate is not None:
            kept[name] = SubscriptionPolicies(dispatch_rate=rate)
        return replace(old, subscription_policies=kept)

    await change_by(call, make)


def _row(method: str, page: str, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_ONE}/{page}", Right.ADMINISTER, serve, words)


TOPIC_POLICY_ENDPOINTS: Final = (
    *(endpoint for policy in TOPIC_POLICIES for endpoint in endpoints_of(policy, _LEVEL)),
    *quota_endpoints(_LEVEL, get_quotas),
    _row("DELETE", "policies", forget_all, "Take back all policies of a topic"),
    _row("GET", "delayedDelivery", get_delayed, "Whether messages may be held back"),
    _row("POST", "delayedDelivery", set_delayed, "Set whether messages may be held back"),
    _row("DELETE", "delayedDelivery", clear_delayed, "Leave it to the namespace"),
    _row("GET", "{subscription}/dispatchRate", get_rate_of, "dispatchRate of a subscription"),
    _row("POST", "{subscription}/dispatchRate", set_rate_of, "Set the rate of a subscription"),
    _row("DELETE", "{subscription}/dispatchRate", clear_rate_of, "Clear the rate of one"),
)
