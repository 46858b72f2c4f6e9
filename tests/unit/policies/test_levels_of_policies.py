"""Every policy at every level that Pulsar has it at: a topic's, its namespace's, the broker's."""

from dataclasses import fields, replace
from typing import Any, NamedTuple

import pytest

from anabranch.policies import (
    AutoSubscriptionCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    NamespacePolicies,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
    TopicPolicies,
)
from anabranch.policies.effective import EffectivePolicies, PolicyDefaults, resolve
from anabranch.policies.topics import SubscriptionPolicies

CLUSTER = "c"


class Levels(NamedTuple):
    """What says it at each level, and what counts then; None where Pulsar has no such level."""

    broker: tuple[dict[str, Any], Any] | None
    namespace: tuple[dict[str, Any], Any] | None
    topic: tuple[dict[str, Any], Any] | None


def alike(of_broker: str, of_namespace: str, of_topic: str, *values: Any) -> Levels:
    """A policy that all levels write the same way; three values."""
    by_broker, by_namespace, by_topic = values
    return Levels(
        ({of_broker: by_broker}, by_broker),
        ({of_namespace: by_namespace}, by_namespace),
        ({of_topic: by_topic}, by_topic),
    )


def number(name: str, in_namespace: str | None = None) -> Levels:
    return alike(name, in_namespace or name, name, 1, 2, 3)


def quota(kind: str) -> Levels:
    first, second, third = (BacklogQuota(limit_size=n, limit_time=n) for n in (1, 2, 3))
    return Levels(
        ({"backlog_quota": first}, first),
        ({"backlog_quotas": {kind: second}}, second),
        ({"backlog_quotas": {kind: third}}, third),
    )


def by_cluster(name: str, in_namespace: str, *values: Any) -> Levels:
    first, second, third = values
    return Levels(
        ({name: first}, first),
        ({in_namespace: {CLUSTER: second, "other": first}}, second),
        ({name: third}, third),
    )


DELAYS = [DelayedDelivery(tick_time_ms=n, active=n != 2, delay_ms_max=n) for n in (1, 2, 3)]
ALL = {
    "retention": alike(
        *("retention",) * 3, *(RetentionRule(time_minutes=n, size_mb=n) for n in (1, 2, 3))
    ),
    "message_ttl_s": number("message_ttl_s"),
    "storage_quota": quota("destination_storage"),
    "age_quota": quota("message_age"),
    "inactive_topics": alike(
        *("inactive_topics",) * 3, *(InactiveTopics(inactive_s_max=n) for n in (1, 2, 3))
    ),
    "delayed_delivery": Levels(
        ({"delayed_delivery": DELAYS[0]}, DELAYS[0]),
        ({"delayed_delivery": DELAYS[1]}, DELAYS[1]),
        (
            {
                "delayed_delivery_tick_ms": 3,
                "delayed_delivery_enabled": True,
                "delayed_delivery_delay_ms_max": 3,
            },
            DELAYS[2],
        ),
    ),
    "deduplication_enabled": alike(*("deduplication_enabled",) * 3, True, False, True),
    "deduplication_snapshot_s": number("deduplication_snapshot_s"),
    "producers_max": number("producers_max", "producers_per_topic_max"),
    "consumers_max": number("consumers_max", "consumers_per_topic_max"),
    "consumers_per_subscription_max": number("consumers_per_subscription_max"),
    "subscriptions_max": number("subscriptions_max", "subscriptions_per_topic_max"),
    "unacked_per_consumer_max": number("unacked_per_consumer_max"),
    "unacked_per_subscription_max": number("unacked_per_subscription_max"),
    "subscription_expiration_minutes": number("subscription_expiration_minutes"),
    "message_bytes_max": Levels(({"message_bytes_max": 1}, 1), None, ({"message_bytes_max": 3}, 3)),
    "publish_rate": by_cluster(
        "publish_rate", "publish_rate", *(PublishRate(messages=n) for n in (1, 2, 3))
    ),
    "dispatch_rate": by_cluster(
        "dispatch_rate", "topic_dispatch_rate", *(DispatchRate(messages=n) for n in (1, 2, 3))
    ),
    "subscription_dispatch_rate": by_cluster(
        "subscription_dispatch_rate",
        "subscription_dispatch_rate",
        *(DispatchRate(messages=n) for n in (1, 2, 3)),
    ),
    "subscribe_rate": by_cluster(
        "subscribe_rate",
        "cluster_subscribe_rate",
        *(SubscribeRate(per_consumer=n) for n in (1, 2, 3)),
    ),
    "persistence": Levels(
        None,
        ({"persistence": Persistence(bookkeeper_ensemble=2)}, Persistence(bookkeeper_ensemble=2)),
        ({"persistence": Persistence(bookkeeper_ensemble=3)}, Persistence(bookkeeper_ensemble=3)),
    ),
    "schema_compatibility_strategy": alike(
        *("schema_compatibility_strategy",) * 3, "FULL", "BACKWARD", "FORWARD"
    ),
    "schema_auto_update": Levels(
        ({"schema_auto_update": True}, True), ({"schema_auto_update": False}, False), None
    ),
    "schema_validation_enforced": alike(*("schema_validation_enforced",) * 3, False, True, False),
    "encryption_required": Levels(
        ({"encryption_required": False}, False), ({"encryption_required": True}, True), None
    ),
    "auto_subscription_creation": Levels(
        ({"auto_subscription_creation": True}, True),
        ({"auto_subscription_creation": AutoSubscriptionCreation(allow=False)}, False),
        ({"auto_subscription_creation": AutoSubscriptionCreation(allow=True)}, True),
    ),
    "subscription_types": Levels(
        None,
        ({"subscription_types_enabled": ("Shared",)}, ("Shared",)),
        ({"subscription_types_enabled": ("Failover",)}, ("Failover",)),
    ),
    "dispatch_rates_of": Levels(
        None,
        None,
        (
            {
                "subscription_policies": {
                    "s": SubscriptionPolicies(dispatch_rate=DispatchRate(messages=3))
                }
            },
            {"s": DispatchRate(messages=3)},
        ),
    ),
}


@pytest.mark.goal("core.B11", part="levels", broken_by="the_broad_goes_before_the_narrow")
@pytest.mark.parametrize("name", ALL)
def test_the_narrowest_level_that_says_something_counts(name: str) -> None:
    defaults, namespace, topic = PolicyDefaults(), NamespacePolicies(), TopicPolicies()
    levels = ALL[name]
    if levels.broker is not None:
        said, counts = levels.broker
        defaults = replace(defaults, **said)
        assert getattr(resolve(defaults, namespace, topic, cluster=CLUSTER), name) == counts
    if levels.namespace is not None:
        said, counts = levels.namespace
        namespace = replace(namespace, **said)
        assert getattr(resolve(defaults, namespace, topic, cluster=CLUSTER), name) == counts
    if levels.topic is not None:
        said, counts = levels.topic
        topic = replace(topic, **said)
        assert getattr(resolve(defaults, namespace, topic, cluster=CLUSTER), name) == counts


def test_every_policy_is_in_the_table() -> None:
    assert set(ALL) == {each.name for each in fields(EffectivePolicies)}
