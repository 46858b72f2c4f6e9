"""The settings of policies: what counts where neither a topic nor its namespace says anything."""

from dataclasses import dataclass

from anabranch import limits
from anabranch.policies.limits import POLICY_CHECK_INTERVAL_S
from anabranch.policies.rules import COMPATIBILITY_STRATEGIES, DELETE_MODES, QUOTA_ACTIONS
from anabranch.server.setting import setting

_STRATEGIES = tuple(each for each in COMPATIBILITY_STRATEGIES if each != "UNDEFINED")


@dataclass(frozen=True, kw_only=True)  # no slots: of the bases of `Settings` one may have them
class PolicySettings:
    """What an operator may choose about policies. A limit of 0 is none."""

    auto_create_topics: bool = setting(
        True, "Create a topic when the first producer or consumer asks for it."
    )
    auto_topic_partitions: int = setting(
        0,
        "Partitions of a topic that is created by asking; 0 makes it one without.",
        low=0,
        high=1000,
    )
    auto_create_subscriptions: bool = setting(
        True, "Create a subscription when the first consumer asks for it."
    )
    retention_minutes: int = setting(
        0, "Minutes for which acknowledged messages are kept; -1 for ever.", low=-1
    )
    retention_mb: int = setting(
        0, "Mebibytes of acknowledged messages that are kept; -1 for any number.", low=-1
    )
    message_ttl_s: int = setting(
        0, "Seconds after which a message counts as acknowledged; 0 for never.", low=0
    )
    backlog_quota_bytes: int = setting(
        -1, "Bytes of a topic that may be unacknowledged; -1 for any number.", low=-1
    )
    backlog_quota_s: int = setting(
        -1, "Seconds for which a message may be unacknowledged; -1 for ever.", low=-1
    )
    backlog_quota_policy: str = setting(
        QUOTA_ACTIONS[0], "What happens above a backlog quota.", choices=QUOTA_ACTIONS
    )
    delete_inactive_topics: bool = setting(True, "Delete topics that nobody uses.")
    inactive_topic_mode: str = setting(
        DELETE_MODES[0], "When a topic without clients is not used.", choices=DELETE_MODES
    )
    inactive_topic_s: int = setting(
        60, "Seconds without use after which a topic is deleted.", low=1
    )
    max_producers_per_topic: int = setting(
        0, "Producers a topic may have; 0 for any number.", low=0
    )
    max_consumers_per_topic: int = setting(
        0, "Consumers a topic may have; 0 for any number.", low=0
    )
    max_consumers_per_subscription: int = setting(
        0, "Consumers a subscription may have; 0 for any number.", low=0
    )
    max_subscriptions_per_topic: int = setting(
        0, "Subscriptions a topic may have; 0 for any number.", low=0
    )
    max_topics_per_namespace: int = setting(
        0, "Topics a namespace may have, partitions counted singly; 0 for any number.", low=0
    )
    max_unacked_messages_per_consumer: int = setting(
        limits.UNACKED_MESSAGES_PER_CONSUMER_MAX,
        "Messages a consumer of a shared type may hold unacknowledged; 0 for any number.",
        low=0,
    )
    max_unacked_messages_per_subscription: int = setting(
        limits.UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX,
        "The same for all consumers of a subscription together.",
        low=0,
    )
    subscription_expiration_minutes: int = setting(
        0, "Minutes without consumers after which a subscription is deleted; 0 for never.", low=0
    )
    require_encryption: bool = setting(
        False, "Refuse producers that do not encrypt, in every namespace."
    )
    publish_rate_messages: int = setting(
        0, "Messages per second that a topic takes; 0 for any number.", low=0
    )
    publish_rate_bytes: int = setting(
        0, "Bytes per second that a topic takes; 0 for any number.", low=0
    )
    dispatch_rate_messages: int = setting(
        0, "Messages per second that a topic sends to each subscription; 0 for any number.", low=0
    )
    dispatch_rate_bytes: int = setting(
        0, "Bytes per second that a topic sends to each subscription; 0 for any number.", low=0
    )
    subscription_dispatch_rate_messages: int = setting(
        0, "Messages a second that a subscription may send; 0 for any number.", low=0
    )
    subscription_dispatch_rate_bytes: int = setting(
        0, "Bytes a second that a subscription may send; 0 for any number.", low=0
    )
    subscribe_rate: int = setting(
        0, "How often a consumer may subscribe in a period; 0 for any number.", low=0
    )
    subscribe_rate_period_s: int = setting(30, "Seconds of such a period.", low=1, high=86400)
    deduplication: bool = setting(
        False,
        "Store a message once that a producer sends again, unless a namespace says otherwise.",
    )
    schema_compatibility: str = setting(
        "FULL", "Which changes of a schema are allowed.", choices=_STRATEGIES
    )
    schema_validation: bool = setting(
        False, "Refuse producers without a schema where a topic has one."
    )
    policy_check_s: float = setting(
        POLICY_CHECK_INTERVAL_S,
        "Seconds between two looks for what has expired, is too much, or is not used.",
        low=0.1,
        high=3600,
    )
