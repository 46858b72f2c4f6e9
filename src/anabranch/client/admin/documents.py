"""What the web interface tells of topics: figures, schemas, messages. Typed as far as is useful.

What is not named here is kept in `unknown`, as the server said it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.client.message import Message, MessageId
from anabranch.policies.json_documents import JsonDocument, keyed
from anabranch.wire import MessageMetadata, split_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats(JsonDocument):
    """A producer of a topic."""

    producer_id: int = 0
    producer_name: str = ""
    address: str = ""
    access_mode: str = ""
    client_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats(JsonDocument):
    """A consumer of a subscription."""

    consumer_name: str = ""
    address: str = ""
    available_permits: int = 0
    unacked_messages: int = 0
    client_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats(JsonDocument):
    """A subscription, and who receives from it."""

    messages_backlog: int = keyed("msgBacklog", 0)
    backlog_size: int = 0
    unacked_messages: int = 0
    messages_delayed: int = keyed("msgDelayed", 0)
    messages_out: int = keyed("msgOutCounter", 0)
    bytes_out: int = keyed("bytesOutCounter", 0)
    type: str = ""
    is_durable: bool = True
    consumers: tuple[ConsumerStats, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats(JsonDocument):
    """A topic: what came in, what is stored, who is connected."""

    messages_in: int = keyed("msgInCounter", 0)
    bytes_in: int = keyed("bytesInCounter", 0)
    messages_out: int = keyed("msgOutCounter", 0)
    bytes_out: int = keyed("bytesOutCounter", 0)
    storage_size: int = 0
    backlog_size: int = 0
    publishers: tuple[PublisherStats, ...] = ()
    subscriptions: Mapping[str, SubscriptionStats] = field(default_factory=dict)
    partitions: Mapping[str, Any] = field(default_factory=dict)
    """Of a partitioned topic: the figures of each partition, as the server said them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion(JsonDocument):
    """One version of a topic's schema."""

    version: int = -1
    type: str = ""
    timestamp: int = 0
    data: str = ""
    """The schema's own text."""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peeked:
    """A message that was looked at without being received."""

    id: str
    """LEDGER:ENTRY."""
    data: bytes
    """The payload; of a batch all of it, in the form in which it travels."""
    batch_messages: int
    """How many messages the batch has; 0 if it is none."""
    key: str | None
    properties: Mapping[str, str]
    is_encrypted: bool = False
    """Whether `data` is as its producer sealed it, of a batch too."""

    def messages(self) -> "list[Peeked]":
        """The messages of a batch, each by itself; of anything else this one alone.

        Raises:
            ProtocolError: if the batch is damaged.
        """
        if not self.batch_messages or self.is_encrypted:
            return [self]
        found = []
        for index, (about, value) in enumerate(split_batch(self.data, self.batch_messages)):
            one = Message("", MessageId(-1, -1), MessageMetadata(), about, bytes(value), 0)
            found.append(Peeked(f"{self.id}:{index}", one.value, 0, one.key, one.properties))
        return found


def message_id_of(said: Any) -> MessageId:
    """Read an id that the web interface told."""
    if not isinstance(said, dict):
        return MessageId(-1, -1)
    return MessageId(
        int(said.get("ledgerId", -1)),
        int(said.get("entryId", -1)),
        int(said.get("partitionIndex", -1)),
        int(said.get("batchIndex", -1)),
    )


def message_id_json(message_id: MessageId) -> dict[str, int]:
    """Write an id as the web interface reads it."""
    return {
        "ledgerId": message_id.ledger_id,
        "entryId": message_id.entry_id,
        "partitionIndex": message_id.partition,
        "batchIndex": message_id.batch_index,
    }
