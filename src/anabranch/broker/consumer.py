"""One consumer on one connection: its permits, what it holds unacknowledged, how it is written to.

The consumer decides nothing about which entry it gets; that is `dispatch`'s. Permits count
messages, not entries, and may go below zero because a batch is never split.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from anabranch import limits
from anabranch.broker.policies.delivery_rules import DeliveryRules
from anabranch.broker.traffic import Traffic
from anabranch.errors import ProtocolError
from anabranch.ids import Position
from anabranch.runtime.network import Buffer
from anabranch.wire import (
    MAGIC_CRC32C,
    EntryMetadata,
    encode,
    message_header,
    replies,
    without_broker_metadata,
)

_CHECKSUM_SECOND_BYTE: Final = MAGIC_CRC32C & 0xFF


class Delivery(NamedTuple):
    """One entry on its way to a consumer."""

    position: Position
    payload: Buffer
    message_count: int
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    metadata: EntryMetadata | None = None
    """What the producer said about it, if that can be read."""
    is_plain: bool = False
    """Whether it is known that nothing about it is special."""


class KeySharing(NamedTuple):
    """How a consumer wants to share a subscription by key."""

    sticky: bool = False
    """It names the ranges of hashes that it wants; else they are divided among all."""
    out_of_order: bool = False
    """It does without the order of a key's messages when consumers come and go."""
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last hash of each."""


class Outlet(Protocol):
    """The connection a consumer writes to."""

    messages_out: int
    """Messages sent to all its consumers so far."""

    @property
    def writable(self) -> bool:
        """Whether the peer keeps up with what is sent."""
        ...

    def write_out(self, parts: list[Buffer]) -> None:
        """Queue buffers for the peer."""
        ...

    async def is_alive(self) -> bool:
        """Ask the peer for a sign of life; false (and the connection closed) if none comes."""
        ...


class Consumer:
    """The broker's side of a subscribed consumer."""

    __slots__ = (
        "_blocked", "consumer_id", "disconnect", "epoch", "messages_per_entry", "name", "outlet",
        "partition", "pending", "permits", "priority", "rules", "said", "sharing", "since_ms",
        "totals", "traffic", "unacked_messages",
    )  # fmt: skip

    def __init__(
        self,
        outlet: Outlet,
        *,
        consumer_id: int,
        name: str,
        priority: int,
        partition: int,
        epoch: int | None,
        disconnect: Callable[[], None],
        sharing: KeySharing | None = None,
        rules: DeliveryRules | None = None,
        said: Mapping[str, str] | None = None,
    ) -> None:
        self.outlet = outlet
        self.consumer_id = consumer_id
        self.name = name
        self.priority = priority
        self.epoch = epoch
        """Echoed in every message, so that the client can drop those from before a rewind."""
        self.disconnect = disconnect
        """Tell the client that the broker closed this consumer; it will come back."""
        self.partition = partition
        """Of the topic; -1 if it has none."""
        self.sharing = sharing
        """For Key_Shared only."""
        self.rules = rules or DeliveryRules()
        self.said = said or {}
        """What its client says about it, for whoever looks at statistics."""
        self.since_ms = self.rules.now_ms()
        self.traffic = Traffic()
        self.totals = Traffic()
        """Those of its subscription."""
        self.permits = 0
        self.unacked_messages = 0
        """Counted for shared types only, as Pulsar does."""
        self._blocked = False
        self.messages_per_entry = 1.0
        self.pending: dict[Position, int] = {}
        """Entries delivered and not acknowledged, with their message counts; shared types only."""

    @property
    def can_take(self) -> bool:
        """Whether another entry may be sent now."""
        return self.permits > 0 and not self._blocked and self.outlet.writable

    def entries_wanted(self) -> int:
        """How many entries its permits are worth, judged by the batches it got lately."""
        return max(
            1, min(limits.READ_BATCH_ENTRIES_MAX, int(self.permits / self.messages_per_entry))
        )

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Send entries and charge them to the permits."""
        parts: list[Buffer] = []
        messages = size = again = 0
        for position, stored, message_count, redelivery_count, ack_set, *_ in deliveries:
            # Nearly all begin with a checksum, and so with nothing that is not for clients.
            is_plain = len(stored) > 1 and stored[1] == _CHECKSUM_SECOND_BYTE
            payload = stored if is_plain else _as_sent(stored)
            parts.append(
                message_header(
                    self.consumer_id,
                    position[0],
                    position[1],
                    len(payload),
                    partition=self.partition,
                    redelivery_count=redelivery_count,
                    ack_set=ack_set,
                    consumer_epoch=self.epoch,
                )
            )
            parts.append(payload)
            messages += message_count
            size += len(payload)
            if redelivery_count:
                again += 1
        self.permits -= messages
        self.outlet.messages_out += messages
        self.messages_per_entry = 0.9 * self.messages_per_entry + 0.1 * messages / len(deliveries)
        self._count(messages, size, again)
        self.outlet.write_out(parts)

    def _count(self, messages: int, size: int, again: int) -> None:
        now_ms = self.rules.now_ms()
        for traffic in (self.traffic, self.totals):
            traffic.messages += messages
            traffic.bytes += size
            traffic.again += again
            traffic.last_ms = now_ms

    @property
    def is_blocked(self) -> bool:
        """Whether it has to acknowledge something before it is sent more."""
        return self._blocked

    def tell_active(self, is_active: bool) -> None:
        """Tell the client whether it is the one that gets the messages now."""
        change = replies.active_consumer_change(self.consumer_id, is_active=is_active)
        self.outlet.write_out([encode(change)])

    def hold(self, position: Position, messages: int) -> None:
        """An entry is sent that has to be acknowledged."""
        self.unacked_messages += messages - self.pending.get(position, 0)
        self.pending[position] = messages
        if 0 < self.rules.unacked_per_consumer_max <= self.unacked_messages:
            self._blocked = True

    def settle(self, messages: int) -> None:
        """Messages were acknowledged or taken back."""
        self.unacked_messages = max(0, self.unacked_messages - messages)
        most = self.rules.unacked_per_consumer_max
        if most <= 0 or self.unacked_messages <= most // 2:
            self._blocked = False


def _as_sent(stored: Buffer) -> Buffer:
    """An entry as its producer sent it: what Pulsar's brokers put in front is not for clients."""
    try:
        return without_broker_metadata(stored)
    except ProtocolError:
        return stored  # damaged: clients name it as corrupt and acknowledge
