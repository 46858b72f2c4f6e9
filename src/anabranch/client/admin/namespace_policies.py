"""The single policies of a namespace: where each is set, and what it is. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from anabranch.errors import ConfigError, FormatError
from anabranch.policies import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    JsonDocument,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
    from_json,
    to_json,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policy(Generic[T]):
    """One policy. `T` is what its value is."""

    name: str
    """As commands name it."""
    page: str
    kind: type[T]
    method: str = "POST"
    in_query: str = ""
    """Under which name the value goes into the query; into the body if there is none."""

    def read(self, value: Any) -> T:
        """Make a value of what JSON text said.

        Raises:
            ConfigError: if it is none.
        """
        try:
            if issubclass(self.kind, JsonDocument):
                return from_json(self.kind, value)
        except FormatError as error:
            raise ConfigError(f"{self.name}: {error}") from None
        if self.kind is tuple and isinstance(value, list):
            return cast("T", tuple(value))
        if type(value) is not self.kind:
            raise ConfigError(f"{self.name} has to be {_WORDS[self.kind]}, not {value!r}")
        return value

    def write(self, value: T) -> Any:
        """Return what is sent as JSON."""
        if isinstance(value, JsonDocument):
            return to_json(value)
        return list(value) if isinstance(value, tuple) else value


_WORDS: Final[dict[type, str]] = {
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    tuple: "a list",
    dict: "an object",
}

RETENTION: Final = Policy("retention", "retention", RetentionRule)
MESSAGE_TTL_S: Final = Policy("message-ttl", "messageTTL", int)
SUBSCRIPTION_EXPIRATION_MINUTES: Final = Policy(
    "subscription-expiration", "subscriptionExpirationTime", int
)
DEDUPLICATION: Final = Policy("deduplication", "deduplication", bool)
PERSISTENCE: Final = Policy("persistence", "persistence", Persistence)
AUTO_TOPIC_CREATION: Final = Policy("auto-topic-creation", "autoTopicCreation", AutoTopicCreation)
AUTO_SUBSCRIPTION_CREATION: Final = Policy(
    "auto-subscription-creation", "autoSubscriptionCreation", AutoSubscriptionCreation
)
DISPATCH_RATE: Final = Policy("dispatch-rate", "dispatchRate", DispatchRate)
SUBSCRIPTION_DISPATCH_RATE: Final = Policy(
    "subscription-dispatch-rate", "subscriptionDispatchRate", DispatchRate
)
PUBLISH_RATE: Final = Policy("publish-rate", "publishRate", PublishRate)
SUBSCRIBE_RATE: Final = Policy("subscribe-rate", "subscribeRate", SubscribeRate)
DELAYED_DELIVERY: Final = Policy("delayed-delivery", "delayedDelivery", DelayedDelivery)
INACTIVE_TOPICS: Final = Policy("inactive-topics", "inactiveTopicPolicies", InactiveTopics)
PRODUCERS_PER_TOPIC_MAX: Final = Policy("max-producers-per-topic", "maxProducersPerTopic", int)
CONSUMERS_PER_TOPIC_MAX: Final = Policy("max-consumers-per-topic", "maxConsumersPerTopic", int)
CONSUMERS_PER_SUBSCRIPTION_MAX: Final = Policy(
    "max-consumers-per-subscription", "maxConsumersPerSubscription", int
)
UNACKED_PER_CONSUMER_MAX: Final = Policy(
    "max-unacked-per-consumer", "maxUnackedMessagesPerConsumer", int
)
UNACKED_PER_SUBSCRIPTION_MAX: Final = Policy(
    "max-unacked-per-subscription", "maxUnackedMessagesPerSubscription", int
)
SUBSCRIPTIONS_PER_TOPIC_MAX: Final = Policy(
    "max-subscriptions-per-topic", "maxSubscriptionsPerTopic", int
)
TOPICS_MAX: Final = Policy("max-topics", "maxTopicsPerNamespace", int)
ENCRYPTION_REQUIRED: Final = Policy("encryption-required", "encryptionRequired", bool)
SCHEMA_COMPATIBILITY: Final = Policy(
    "schema-compatibility", "schemaCompatibilityStrategy", str, "PUT"
)
SCHEMA_VALIDATION_ENFORCED: Final = Policy(
    "schema-validation-enforced", "schemaValidationEnforced", bool
)
SCHEMA_AUTO_UPDATE: Final = Policy("schema-auto-update", "isAllowAutoUpdateSchema", bool)
SUBSCRIPTION_TYPES: Final = Policy("subscription-types", "subscriptionTypesEnabled", tuple)
PROPERTIES: Final = Policy("properties", "properties", dict, "PUT")

POLICIES: Final[Mapping[str, Policy[Any]]] = {
    policy.name: policy
    for policy in (
        RETENTION, MESSAGE_TTL_S, SUBSCRIPTION_EXPIRATION_MINUTES, DEDUPLICATION, PERSISTENCE,
        AUTO_TOPIC_CREATION, AUTO_SUBSCRIPTION_CREATION, DISPATCH_RATE,
        SUBSCRIPTION_DISPATCH_RATE, PUBLISH_RATE, SUBSCRIBE_RATE, DELAYED_DELIVERY,
        INACTIVE_TOPICS, PRODUCERS_PER_TOPIC_MAX, CONSUMERS_PER_TOPIC_MAX,
        CONSUMERS_PER_SUBSCRIPTION_MAX, UNACKED_PER_CONSUMER_MAX, UNACKED_PER_SUBSCRIPTION_MAX,
        SUBSCRIPTIONS_PER_TOPIC_MAX, TOPICS_MAX, ENCRYPTION_REQUIRED, SCHEMA_COMPATIBILITY,
        SCHEMA_VALIDATION_ENFORCED, SCHEMA_AUTO_UPDATE, SUBSCRIPTION_TYPES, PROPERTIES,
    )
}  # fmt: skip
"""By name."""
