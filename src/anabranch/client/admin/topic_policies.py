"""The single policies of a topic: where each is set, and what it is. Pure.

Those that have the page of a namespace's are the namespace's.
"""

from collections.abc import Mapping
from typing import Any, Final

from anabranch.client.admin import namespace_policies as of_namespaces
from anabranch.client.admin.namespace_policies import Policy

RETENTION: Final = of_namespaces.RETENTION
MESSAGE_TTL_S: Final = Policy("message-ttl", "messageTTL", int, in_query="messageTTL")
SUBSCRIPTION_EXPIRATION_MINUTES: Final = of_namespaces.SUBSCRIPTION_EXPIRATION_MINUTES
DEDUPLICATION: Final = Policy("deduplication", "deduplicationEnabled", bool)
DEDUPLICATION_SNAPSHOT_S: Final = Policy(
    "deduplication-snapshot", "deduplicationSnapshotInterval", int
)
PERSISTENCE: Final = of_namespaces.PERSISTENCE
AUTO_SUBSCRIPTION_CREATION: Final = of_namespaces.AUTO_SUBSCRIPTION_CREATION
DISPATCH_RATE: Final = of_namespaces.DISPATCH_RATE
SUBSCRIPTION_DISPATCH_RATE: Final = of_namespaces.SUBSCRIPTION_DISPATCH_RATE
PUBLISH_RATE: Final = of_namespaces.PUBLISH_RATE
SUBSCRIBE_RATE: Final = of_namespaces.SUBSCRIBE_RATE
DELAYED_DELIVERY: Final = of_namespaces.DELAYED_DELIVERY
INACTIVE_TOPICS: Final = of_namespaces.INACTIVE_TOPICS
PRODUCERS_MAX: Final = Policy("max-producers", "maxProducers", int)
CONSUMERS_MAX: Final = Policy("max-consumers", "maxConsumers", int)
CONSUMERS_PER_SUBSCRIPTION_MAX: Final = of_namespaces.CONSUMERS_PER_SUBSCRIPTION_MAX
UNACKED_PER_CONSUMER_MAX: Final = Policy(
    "max-unacked-per-consumer", "maxUnackedMessagesOnConsumer", int
)
UNACKED_PER_SUBSCRIPTION_MAX: Final = Policy(
    "max-unacked-per-subscription", "maxUnackedMessagesOnSubscription", int
)
SUBSCRIPTIONS_MAX: Final = of_namespaces.SUBSCRIPTIONS_PER_TOPIC_MAX
MESSAGE_BYTES_MAX: Final = Policy("max-message-bytes", "maxMessageSize", int)
SCHEMA_COMPATIBILITY: Final = of_namespaces.SCHEMA_COMPATIBILITY
SCHEMA_VALIDATION_ENFORCED: Final = of_namespaces.SCHEMA_VALIDATION_ENFORCED
SUBSCRIPTION_TYPES: Final = of_namespaces.SUBSCRIPTION_TYPES

TOPIC_POLICIES: Final[Mapping[str, Policy[Any]]] = {
    policy.name: policy
    for policy in (
        RETENTION, MESSAGE_TTL_S, SUBSCRIPTION_EXPIRATION_MINUTES, DEDUPLICATION,
        DEDUPLICATION_SNAPSHOT_S, PERSISTENCE, AUTO_SUBSCRIPTION_CREATION, DISPATCH_RATE,
        SUBSCRIPTION_DISPATCH_RATE, PUBLISH_RATE, SUBSCRIBE_RATE, DELAYED_DELIVERY,
        INACTIVE_TOPICS, PRODUCERS_MAX, CONSUMERS_MAX, CONSUMERS_PER_SUBSCRIPTION_MAX,
        UNACKED_PER_CONSUMER_MAX, UNACKED_PER_SUBSCRIPTION_MAX, SUBSCRIPTIONS_MAX,
        MESSAGE_BYTES_MAX, SCHEMA_COMPATIBILITY, SCHEMA_VALIDATION_ENFORCED, SUBSCRIPTION_TYPES,
    )
}  # fmt: skip
"""By name."""
