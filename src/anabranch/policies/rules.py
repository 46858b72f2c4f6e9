"""The single rules that policies are made of, each as Pulsar writes it."""

from dataclasses import dataclass

from anabranch import limits
from anabranch.errors import InputError
from anabranch.policies.json_documents import JsonDocument, keyed

DESTINATION_STORAGE = "destination_storage"
MESSAGE_AGE = "message_age"
QUOTA_TYPES = (DESTINATION_STORAGE, MESSAGE_AGE)
QUOTA_ACTIONS = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
TOPIC_TYPES = ("partitioned", "non-partitioned")
DELETE_MODES = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
COMPATIBILITY_STRATEGIES = (
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL",
    "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip
AUTO_UPDATE_STRATEGIES = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
"""What an older policy calls strategies; it counts where the newer one is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule(JsonDocument):
    """How long acknowledged messages are kept; -1 is without limit."""

    time_minutes: int = keyed("retentionTimeInMinutes", 0, narrow=True)
    size_mb: int = keyed("retentionSizeInMB", 0)

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            InputError: if one of both is 0 and the other is not, or one is below -1.
        """
        if min(self.time_minutes, self.size_mb) < -1:
            raise InputError("Retention time and size must be -1 (no limit) or more")
        if (self.time_minutes == 0) != (self.size_mb == 0):
            raise InputError(
                "Invalid retention policy: it needs both time and size, or neither; "
                "use -1 for no limit"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQuota(JsonDocument):
    """How much may be unacknowledged, and what happens above that; limits below 0 are none."""

    limit: int | None = None
    """The limit of bytes under the name older versions gave it."""
    limit_size: int | None = None
    limit_time: int = keyed("limitTime", 0, narrow=True)
    """Seconds."""
    policy: str = QUOTA_ACTIONS[0]

    @property
    def bytes_max(self) -> int:
        """The limit of bytes; -1 for none."""
        chosen = self.limit if self.limit_size is None else self.limit_size
        return -1 if chosen is None else chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoTopicCreation(JsonDocument):
    """Whether a topic is created when it is asked for, and how."""

    allow: bool = keyed("allowAutoTopicCreation", False)
    topic_type: str | None = None
    default_num_partitions: int | None = keyed("defaultNumPartitions", None, narrow=True)

    @property
    def partitions(self) -> int:
        """How many partitions a new topic gets; 0 if it is not partitioned."""
        return (self.default_num_partitions or 0) if self.topic_type == TOPIC_TYPES[0] else 0

    def check(self) -> None:
        """Refuse what contradicts itself, in Pulsar's words.

        Raises:
            InputError: saying what is wrong.
        """
        if not self.allow:
            return
        if self.topic_type not in TOPIC_TYPES:
            raise InputError(f"Unknown topic type [{self.topic_type}]")
        count = self.default_num_partitions
        if self.topic_type == TOPIC_TYPES[0]:
            if count is None:
                raise InputError(
                    "[defaultNumPartitions] cannot be null when the type is partitioned."
                )
            if count <= 0:
                raise InputError("[defaultNumPartitions] cannot be less than 1 for partition type.")
        elif count is not None:
            raise InputError(
                "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoSubscriptionCreation(JsonDocument):
    """Whether a subscription is created when a consumer asks for it."""

    allow: bool = keyed("allowAutoSubscriptionCreation", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRate(JsonDocument):
    """How fast messages are sent to consumers; 0 and below is without limit."""

    messages: int = keyed("dispatchThrottlingRateInMsg", -1, narrow=True)
    bytes: int = keyed("dispatchThrottlingRateInByte", -1)
    relative_to_publish_rate: bool = False
    period_s: int = keyed("ratePeriodInSecond", 1, narrow=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRate(JsonDocument):
    """How fast messages are taken per second; 0 and below is without limit."""

    messages: int = keyed("publishThrottlingRateInMsg", -1, narrow=True)
    bytes: int = keyed("publishThrottlingRateInByte", -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRate(JsonDocument):
    """How often one consumer may subscribe; 0 and below is without limit."""

    per_consumer: int = keyed("subscribeThrottlingRatePerConsumer", -1, narrow=True)
    period_s: int = keyed("ratePeriodInSecond", 30, narrow=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Persistence(JsonDocument):
    """On how many bookies entries are, and how often acknowledgements are stored."""

    bookkeeper_ensemble: int = 2
    bookkeeper_write_quorum: int = 2
    bookkeeper_ack_quorum: int = 2
    managed_ledger_max_mark_delete_rate: float = -1.0
    managed_ledger_storage_class_name: str | None = None

    @property
    def contradicts_itself(self) -> bool:
        """Whether no ledger can have such quorums, however many bookies there are."""
        ensemble, write = self.bookkeeper_ensemble, self.bookkeeper_write_quorum
        return not ensemble >= write >= self.bookkeeper_ack_quorum > 0

    @property
    def is_too_wide(self) -> bool:
        """Whether it wants more bookies than a ledger may have."""
        return self.bookkeeper_ensemble > limits.BOOKKEEPER_ENSEMBLE_MAX

    def check(self) -> None:
        """Refuse what no ledger can have, in Pulsar's words.

        Raises:
            InputError: saying what is wrong.
        """
        if self.is_too_wide:
            raise InputError(f"Bookkeeper-Ensemble must be <= {limits.BOOKKEEPER_ENSEMBLE_MAX}")
        if self.contradicts_itself:
            raise InputError(
                f"Bookkeeper Ensemble ({self.bookkeeper_ensemble}) >= "
                f"WriteQuorum ({self.bookkeeper_write_quorum}) >= "
                f"AckQuorum ({self.bookkeeper_ack_quorum}), and all above 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedDelivery(JsonDocument):
    """Whether messages may be held back until their time."""

    tick_time_ms: int = keyed("tickTime", 0)
    active: bool = False
    delay_ms_max: int = keyed("maxDeliveryDelayInMillis", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveTopics(JsonDocument):
    """Whether topics that nobody uses are deleted, and when."""

    delete_mode: str | None = keyed("inactiveTopicDeleteMode", None)
    inactive_s_max: int = keyed("maxInactiveDurationSeconds", 0, narrow=True)
    delete_while_inactive: bool = False

    def check(self) -> None:
        """Refuse a mode that there is not.

        Raises:
            InputError: naming those that there are.
        """
        if self.delete_mode not in (None, *DELETE_MODES):
            raise InputError(f"inactiveTopicDeleteMode has to be one of {', '.join(DELETE_MODES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundles(JsonDocument):
    """How a namespace is cut into ranges of hashes."""

    boundaries: tuple[str, ...] = ()
    num_bundles: int = keyed("numBundles", 0, narrow=True)
