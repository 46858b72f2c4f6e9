"""How the server's settings read as the policies that count where nothing else is said."""

from anabranch.errors import ConfigError, InputError
from anabranch.policies import (
    AutoTopicCreation,
    BacklogQuota,
    DispatchRate,
    InactiveTopics,
    PublishRate,
    RetentionRule,
    SubscribeRate,
)
from anabranch.policies.effective import PolicyDefaults
from anabranch.policies.rules import TOPIC_TYPES
from anabranch.server.policy_settings import PolicySettings


def policy_defaults(settings: PolicySettings) -> PolicyDefaults:
    """The broker's level of all policies.

    Raises:
        ConfigError: if two settings contradict each other.
    """
    retention = RetentionRule(
        time_minutes=settings.retention_minutes, size_mb=settings.retention_mb
    )
    try:
        retention.check()
    except InputError as error:
        raise ConfigError(f"retention_minutes and retention_mb: {error}") from error
    partitions = settings.auto_topic_partitions
    return PolicyDefaults(
        auto_topic_creation=AutoTopicCreation(
            allow=settings.auto_create_topics,
            topic_type=TOPIC_TYPES[0] if partitions else TOPIC_TYPES[1],
            default_num_partitions=partitions or None,
        ),
        auto_subscription_creation=settings.auto_create_subscriptions,
        retention=retention,
        message_ttl_s=settings.message_ttl_s,
        backlog_quota=BacklogQuota(
            limit_size=settings.backlog_quota_bytes,
            limit_time=settings.backlog_quota_s,
            policy=settings.backlog_quota_policy,
        ),
        inactive_topics=InactiveTopics(
            delete_mode=settings.inactive_topic_mode,
            inactive_s_max=settings.inactive_topic_s,
            delete_while_inactive=settings.delete_inactive_topics,
        ),
        deduplication_enabled=settings.deduplication,
        producers_max=settings.max_producers_per_topic,
        consumers_max=settings.max_consumers_per_topic,
        consumers_per_subscription_max=settings.max_consumers_per_subscription,
        subscriptions_max=settings.max_subscriptions_per_topic,
        topics_per_namespace_max=settings.max_topics_per_namespace,
        unacked_per_consumer_max=settings.max_unacked_messages_per_consumer,
        unacked_per_subscription_max=settings.max_unacked_messages_per_subscription,
        subscription_expiration_minutes=settings.subscription_expiration_minutes,
        encryption_required=settings.require_encryption,
        publish_rate=PublishRate(
            messages=settings.publish_rate_messages, bytes=settings.publish_rate_bytes
        ),
        dispatch_rate=DispatchRate(
            messages=settings.dispatch_rate_messages, bytes=settings.dispatch_rate_bytes
        ),
        subscription_dispatch_rate=DispatchRate(
            messages=settings.subscription_dispatch_rate_messages,
            bytes=settings.subscription_dispatch_rate_bytes,
        ),
        subscribe_rate=SubscribeRate(
            per_consumer=settings.subscribe_rate, period_s=settings.subscribe_rate_period_s
        ),
        schema_compatibility_strategy=settings.schema_compatibility,
        schema_validation_enforced=settings.schema_validation,
    )
