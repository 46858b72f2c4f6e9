"""What the SDK hands out: ids of messages, and messages as they arrived. Pure."""

import base64
from typing import Final, NamedTuple, final

from anabranch.errors import AnabranchError
from anabranch.generated.pulsar_api_pb2 import (
    MessageIdData,
    MessageMetadata,
    SingleMessageMetadata,
)
from anabranch.ids import Position
from anabranch.limits import LEDGER_ID_MAX
from anabranch.wire import signed


class MessageId(NamedTuple):
    """Where a message is. Ids of one topic are ordered as its messages are."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    """Its place in a batch; -1 for a message that has an entry of its own."""
    batch_size: int = 0
    """How many messages the batch has; 0 if it is none."""
    first_chunk_ledger_id: int = -1
    first_chunk_entry_id: int = -1
    """Where a message in chunks begins; it is at its last chunk."""

    @classmethod
    def of(cls, data: MessageIdData) -> "MessageId":
        """Read an id of the wire."""
        size = data.batch_size
        return cls(
            signed(data.ledgerId), signed(data.entryId), data.partition, data.batch_index, size
        )

    @property
    def position(self) -> Position:
        """The entry that holds it."""
        return Position(self.ledger_id, self.entry_id)

    @property
    def first_position(self) -> Position:
        """The entry with which it begins: another one if it is in chunks."""
        if self.first_chunk_entry_id < 0:
            return self.position
        return Position(self.first_chunk_ledger_id, self.first_chunk_entry_id)

    @property
    def is_duplicate(self) -> bool:
        """Whether the broker had the message already, and did not say where."""
        return self.entry_id < 0

    def __str__(self) -> str:
        place = f"{self.ledger_id}:{self.entry_id}"
        return place if self.batch_index < 0 else f"{place}:{self.batch_index}"


EARLIEST: Final = MessageId(-1, -1)
"""Before the first message of any topic."""
LATEST: Final = MessageId(LEDGER_ID_MAX, LEDGER_ID_MAX)
"""Behind the last message of any topic."""


def _text(value: str | bytes) -> str:
    """Protobuf hands out a string that is not UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def comes_before(found: "MessageId", start: "MessageId", inclusive: bool) -> bool:
    """Whether a message of the first entry that is read comes before the place to begin at."""
    if found.position != start.position:
        return False  # the broker begins with this entry
    if found.batch_index < 0 or start.batch_index < 0 or found.batch_index == start.batch_index:
        return not inclusive
    return found.batch_index < start.batch_index


@final
class Message:
    """A message as it arrived. What nobody asks for is not decoded."""

    __slots__ = ("_about", "_entry", "_problem", "_value", "id", "redelivery_count", "topic")

    def __init__(
        self,
        topic: str,
        message_id: MessageId,
        entry: MessageMetadata,
        about: MessageMetadata | SingleMessageMetadata,
        value: bytes,
        redelivery_count: int,
        problem: AnabranchError | None = None,
    ) -> None:
        """`about` says what is the message's own; it is `entry` if the message is no batch's."""
        self.topic = topic
        self.id = message_id
        self.redelivery_count = redelivery_count
        """How often it was handed out before, as far as the broker remembers."""
        self._entry = entry
        self._about = about
        self._value = value
        self._problem = problem

    @property
    def value(self) -> bytes:
        """The payload; empty if the message stands for null.

        Raises:
            ProtocolError: if the entry is damaged.
            ConfigError: if this client cannot read it, for want of a codec or a key.
        """
        if self._problem is not None:
            raise self._problem
        return self._value

    @property
    def raw_value(self) -> bytes:
        """The payload; of a message that cannot be read, what there is of it as it was stored."""
        return self._value

    @property
    def problem(self) -> AnabranchError | None:
        """What `value` would raise. Such a message stands for its whole entry."""
        return self._problem

    @property
    def stored_bytes(self) -> int:
        """What it takes in memory, roughly."""
        return len(self._value)

    @property
    def is_null(self) -> bool:
        """Whether it says that its key has no value any more."""
        return self._about.null_value

    @property
    def key(self) -> str | None:
        """The key as text; of a key of bytes its base64 form, see `key_bytes`."""
        about = self._about
        return _text(about.partition_key) if about.HasField("partition_key") else None

    @property
    def key_bytes(self) -> bytes | None:
        """The key as bytes."""
        key = self.key
        if key is None:
            return None
        return base64.b64decode(key) if self._about.partition_key_b64_encoded else key.encode()

    @property
    def has_key_of_bytes(self) -> bool:
        """Whether the key is bytes and not text."""
        return self._about.partition_key_b64_encoded

    @property
    def ordering_key(self) -> bytes | None:
        """What decides the order instead of the key."""
        about = self._about
        return about.ordering_key if about.HasField("ordering_key") else None

    @property
    def properties(self) -> dict[str, str]:
        """What the application put beside the payload."""
        return {_text(pair.key): _text(pair.value) for pair in self._about.properties}

    @property
    def event_time_ms(self) -> int | None:
        """What the application calls the time of the message."""
        return self._about.event_time or None

    @property
    def publish_time_ms(self) -> int:
        """The producer's clock at the sending."""
        return self._entry.publish_time

    @property
    def producer_name(self) -> str:
        """Who sent it."""
        return _text(self._entry.producer_name)

    @property
    def sequence_id(self) -> int:
        """Which of its producer's messages it is."""
        about = self._about
        if about.HasField("sequence_id"):
            return about.sequence_id
        # Producers that do not number the messages of a batch count up from its first.
        return self._entry.sequence_id + max(0, self.id.batch_index)

    @property
    def schema_version(self) -> bytes | None:
        """Under which schema it was written."""
        entry = self._entry
        return entry.schema_version if entry.HasField("schema_version") else None

    def __repr__(self) -> str:
        what = f"{len(self._value)} bytes" if self._problem is None else str(self._problem)
        return f"<Message {self.id} of {self.topic}: {what}>"
