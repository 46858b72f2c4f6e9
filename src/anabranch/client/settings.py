"""What can be chosen about producers, consumers and readers. Pure; checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from anabranch import limits
from anabranch.client.limits import (
    BATCH_BYTES_MAX,
    BATCH_DELAY_S,
    CONSUMER_QUEUE_BYTES,
    CONSUMER_QUEUE_MESSAGES,
    NEGATIVE_ACK_DELAY_S,
    PRODUCER_PENDING_BYTES,
    PRODUCER_PENDING_MESSAGES,
    SEND_TIMEOUT_S,
)
from anabranch.errors import ConfigError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.generated.pulsar_api_pb2 import CommandSubscribe
from anabranch.wire.compression import Compression

SubscriptionType = Literal["exclusive", "shared", "failover", "key_shared"]
InitialPosition = Literal["latest", "earliest"]
AccessMode = Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"]
ACCESS_MODES: Final = {
    "shared": pb.Shared,
    "exclusive": pb.Exclusive,
    "wait_for_exclusive": pb.WaitForExclusive,
    "exclusive_with_fencing": pb.ExclusiveWithFencing,
}
SUBSCRIPTION_TYPES: Final = {
    "exclusive": CommandSubscribe.Exclusive,
    "shared": CommandSubscribe.Shared,
    "failover": CommandSubscribe.Failover,
    "key_shared": CommandSubscribe.Key_Shared,
}
KEY_HASHES: Final = 65_536
ORDERED_TYPES: Final = ("exclusive", "failover")
INITIAL_POSITIONS: Final = {
    "latest": CommandSubscribe.Latest,
    "earliest": CommandSubscribe.Earliest,
}


@dataclass(frozen=True, slots=True)
class Batching:
    """When gathered messages go out as one entry: at the first of these bounds."""

    messages_max: int = limits.BATCH_MESSAGES_MAX
    bytes_max: int = BATCH_BYTES_MAX
    delay_s: float = BATCH_DELAY_S
    """How long the first message waits for company; 0 gathers what one turn of the loop sends."""

    def __post_init__(self) -> None:
        if self.messages_max < 1 or self.bytes_max < 1 or self.delay_s < 0:
            raise ConfigError(f"bounds of a batch must be positive: {self}")


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the broker is told of it; payloads stay bytes."""

    kind: str
    """A name of the protocol, such as `Json` or `Avro`."""
    data: bytes = b""
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    def as_wire(self) -> pb.Schema:
        """Return it as it travels.

        Raises:
            ConfigError: if the protocol has no such kind.
        """
        if self.kind not in pb.Schema.Type.keys():  # noqa: SIM118 - no dict
            raise ConfigError(
                f"no schema kind {self.kind!r}; there are {', '.join(pb.Schema.Type.keys())}"
            )
        pairs = [pb.KeyValue(key=key, value=value) for key, value in self.properties.items()]
        return pb.Schema(name=self.name, schema_data=self.data, type=self.kind, properties=pairs)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer works; see `Client.producer`."""

    name: str = ""
    batching: Batching | None = None
    compression: Compression = "none"
    pending_messages_max: int = PRODUCER_PENDING_MESSAGES
    pending_bytes_max: int = PRODUCER_PENDING_BYTES
    send_timeout_s: float | None = SEND_TIMEOUT_S
    properties: Mapping[str, str] | None = None
    schema: Schema | None = None
    access_mode: AccessMode = "shared"
    chunking: bool = False
    initial_subscription: str = ""

    def __post_init__(self) -> None:
        if self.access_mode not in ACCESS_MODES:
            raise ConfigError(
                f"no access mode {self.access_mode!r}; there are {', '.join(ACCESS_MODES)}"
            )
        if self.chunking and self.batching is not None:
            raise ConfigError("chunks and batches exclude each other: chunking needs batching=None")
        if self.send_timeout_s is not None and self.send_timeout_s <= 0:
            raise ConfigError(f"send_timeout_s must be positive, or None: {self.send_timeout_s}")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer works; see `Client.consumer`."""

    subscription_type: SubscriptionType = "exclusive"
    initial_position: InitialPosition = "latest"
    name: str = ""
    queue_messages: int = CONSUMER_QUEUE_MESSAGES
    queue_bytes: int = CONSUMER_QUEUE_BYTES
    negative_ack_delay_s: float = NEGATIVE_ACK_DELAY_S
    priority: int = 0
    properties: Mapping[str, str] | None = None
    schema: Schema | None = None
    durable: bool = True
    """False for a reader: nothing is remembered when it leaves."""
    key_ranges: tuple[tuple[int, int], ...] = ()
    """Key_Shared: the hashes this consumer wants; none for a share of all."""
    out_of_order: bool = False
    """Key_Shared: whether a key may move before its messages are acknowledged."""
    read_compacted: bool = False
    subscription_properties: Mapping[str, str] | None = None
    create_topic: bool = True

    def __post_init__(self) -> None:
        if self.key_ranges and self.subscription_type != "key_shared":
            raise ConfigError("key_ranges are for key_shared subscriptions")
        for first, last in self.key_ranges:
            if not 0 <= first <= last < KEY_HASHES:
                raise ConfigError(f"({first}, {last}) is no range within 0 to {KEY_HASHES - 1}")
        if self.subscription_type not in SUBSCRIPTION_TYPES:
            raise ConfigError(
                f"no subscription type {self.subscription_type!r}; "
                f"there are {', '.join(SUBSCRIPTION_TYPES)}"
            )
        if self.initial_position not in INITIAL_POSITIONS:
            raise ConfigError(f"initial_position is latest or earliest: {self.initial_position!r}")

    def key_sharing(self) -> pb.KeySharedMeta | None:
        """What a broker is told of how keys are divided."""
        if self.subscription_type != "key_shared":
            return None
        sticky = pb.KeySharedMode.STICKY if self.key_ranges else pb.KeySharedMode.AUTO_SPLIT
        return pb.KeySharedMeta(
            keySharedMode=sticky,
            hashRanges=[pb.IntRange(start=first, end=last) for first, last in self.key_ranges],
            allowOutOfOrderDelivery=self.out_of_order,
        )
