"""The broker's level of policies is chosen by settings."""

import pytest

from anabranch.errors import ConfigError
from anabranch.policies import RetentionRule
from anabranch.policies.effective import PolicyDefaults
from anabranch.server.policy_defaults import policy_defaults
from anabranch.server.settings import Settings


def test_without_a_choice_the_defaults_are_pulsars() -> None:
    chosen, known = policy_defaults(Settings()), PolicyDefaults()
    assert chosen.auto_topic_creation == known.auto_topic_creation
    assert chosen.retention == known.retention
    assert chosen.inactive_topics == known.inactive_topics
    assert chosen.backlog_quota == known.backlog_quota
    assert chosen.schema_compatibility_strategy == known.schema_compatibility_strategy


@pytest.mark.goal("core.B11", part="levels", broken_by="settings_of_policies_do_nothing")
def test_settings_are_what_counts_last() -> None:
    chosen = policy_defaults(
        Settings(
            auto_create_topics=False,
            auto_topic_partitions=4,
            auto_create_subscriptions=False,
            retention_minutes=10,
            retention_mb=-1,
            message_ttl_s=5,
            backlog_quota_bytes=100,
            backlog_quota_s=7,
            backlog_quota_policy="producer_exception",
            delete_inactive_topics=False,
            inactive_topic_s=9,
            max_producers_per_topic=1,
            max_consumers_per_topic=2,
            max_consumers_per_subscription=3,
            max_subscriptions_per_topic=4,
            max_topics_per_namespace=8,
            max_unacked_messages_per_consumer=10,
            max_unacked_messages_per_subscription=20,
            subscription_expiration_minutes=30,
            require_encryption=True,
            publish_rate_messages=5,
            dispatch_rate_bytes=6,
            subscription_dispatch_rate_messages=7,
            subscription_dispatch_rate_bytes=8,
            subscribe_rate=9,
            subscribe_rate_period_s=11,
            deduplication=True,
            schema_compatibility="BACKWARD",
            schema_validation=True,
        )
    )
    assert not chosen.auto_topic_creation.allow
    assert chosen.auto_topic_creation.partitions == 4
    assert not chosen.auto_subscription_creation
    assert chosen.retention == RetentionRule(time_minutes=10, size_mb=-1)
    assert chosen.message_ttl_s == 5
    quota = chosen.backlog_quota
    assert (quota.bytes_max, quota.limit_time, quota.policy) == (100, 7, "producer_exception")
    assert not chosen.inactive_topics.delete_while_inactive
    assert chosen.inactive_topics.inactive_s_max == 9
    assert (chosen.producers_max, chosen.consumers_max) == (1, 2)
    assert (chosen.consumers_per_subscription_max, chosen.subscriptions_max) == (3, 4)
    assert chosen.topics_per_namespace_max == 8
    assert (chosen.unacked_per_consumer_max, chosen.unacked_per_subscription_max) == (10, 20)
    assert (chosen.subscription_expiration_minutes, chosen.encryption_required) == (30, True)
    assert (chosen.publish_rate.messages, chosen.dispatch_rate.bytes) == (5, 6)
    rate = chosen.subscription_dispatch_rate
    assert (rate.messages, rate.bytes) == (7, 8)
    assert (chosen.subscribe_rate.per_consumer, chosen.subscribe_rate.period_s) == (9, 11)
    assert chosen.deduplication_enabled
    assert chosen.schema_compatibility_strategy == "BACKWARD"
    assert chosen.schema_validation_enforced


def test_settings_that_contradict_each_other_are_named() -> None:
    with pytest.raises(ConfigError, match="retention_minutes and retention_mb"):
        policy_defaults(Settings(retention_minutes=5))
