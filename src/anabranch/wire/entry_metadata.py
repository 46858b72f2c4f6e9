"""What the producer said about an entry, read when asked for.

A dispatcher wants two or three of these per entry; reading all of them would cost more than the
rest of its work.
"""

from google.protobuf.message import DecodeError

from anabranch.errors import ProtocolError
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.wire.slow_parse import missing_fields


def _text(value: str | bytes) -> str:
    """Protobuf hands out a string that is not UTF-8 as bytes; a stored entry must stay readable."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def parse_message_metadata(data: bytes) -> MessageMetadata:
    """Read the protobuf.

    Raises:
        ProtocolError: if it is malformed or lacks a required field.
    """
    try:
        metadata = MessageMetadata.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"message metadata of {len(data)} bytes is malformed") from error
    if not metadata.IsInitialized():
        raise ProtocolError(f"message metadata lacks {missing_fields(metadata)}")
    return metadata


class EntryMetadata:
    """An immutable reading of a MessageMetadata. None means: not said."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: MessageMetadata) -> None:
        self._metadata = metadata

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EntryMetadata) and self._metadata == other._metadata

    def __hash__(self) -> int:
        return hash((self.producer_name, self.sequence_id, self.chunk_id))

    def __repr__(self) -> str:
        return f"EntryMetadata({str(self._metadata).strip()!r})"

    @property
    def is_plain(self) -> bool:
        """Whether it is for whoever comes next, now: no marker, chunk, later time, transaction.

        One question for nearly every entry, where each of these would be one more.
        """
        has = self._metadata.HasField
        return not (
            has("deliver_at_time")
            or has("chunk_id")
            or has("marker_type")
            or has("txnid_most_bits")
        )

    @property
    def producer_name(self) -> str:
        """Unique among the live producers of the topic."""
        return _text(self._metadata.producer_name)

    @property
    def sequence_id(self) -> int:
        """Of the first message, counted by the producer."""
        return self._metadata.sequence_id

    @property
    def highest_sequence_id(self) -> int | None:
        """Of the last message of a batch."""
        metadata = self._metadata
        return metadata.highest_sequence_id if metadata.HasField("highest_sequence_id") else None

    @property
    def publish_time(self) -> int:
        """The producer's clock, in ms."""
        return self._metadata.publish_time

    @property
    def event_time(self) -> int | None:
        """What the application calls the time of the message, in ms."""
        metadata = self._metadata
        return metadata.event_time if metadata.HasField("event_time") else None

    @property
    def deliver_at_time(self) -> int | None:
        """Not before this time, in ms."""
        metadata = self._metadata
        return metadata.deliver_at_time if metadata.HasField("deliver_at_time") else None

    @property
    def num_messages_in_batch(self) -> int | None:
        """None for a single message; a batch may well hold one."""
        metadata = self._metadata
        if metadata.HasField("num_messages_in_batch"):
            return metadata.num_messages_in_batch
        return None

    @property
    def message_count(self) -> int:
        """How many messages the entry holds."""
        return self._metadata.num_messages_in_batch

    @property
    def partition_key(self) -> str | None:
        """The key as sent: base64 if `partition_key_b64_encoded`."""
        metadata = self._metadata
        return _text(metadata.partition_key) if metadata.HasField("partition_key") else None

    @property
    def partition_key_b64_encoded(self) -> bool:
        """Whether the key is bytes in base64."""
        return self._metadata.partition_key_b64_encoded

    @property
    def null_partition_key(self) -> bool:
        """Whether the key was null and not empty."""
        return self._metadata.null_partition_key

    @property
    def ordering_key(self) -> bytes | None:
        """Decides the order instead of the partition key."""
        metadata = self._metadata
        return metadata.ordering_key if metadata.HasField("ordering_key") else None

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """Those of a single message, or those that the producer gave to a whole batch."""
        pairs = self._metadata.properties
        return tuple((_text(pair.key), _text(pair.value)) for pair in pairs)

    @property
    def compression(self) -> int:
        """A `CompressionType`."""
        return self._metadata.compression

    @property
    def uncompressed_size(self) -> int:
        """Bytes of the payload before compression."""
        return self._metadata.uncompressed_size

    @property
    def encrypted(self) -> bool:
        """Whether the payload can be read with a key only."""
        return len(self._metadata.encryption_keys) > 0

    @property
    def schema_version(self) -> bytes | None:
        """Under which schema the payload was written."""
        metadata = self._metadata
        return metadata.schema_version if metadata.HasField("schema_version") else None

    @property
    def null_value(self) -> bool:
        """Whether the payload stands for null: the key is deleted."""
        return self._metadata.null_value

    @property
    def marker_type(self) -> int | None:
        """What a broker wrote for brokers; such entries are not shown to clients."""
        metadata = self._metadata
        return metadata.marker_type if metadata.HasField("marker_type") else None

    @property
    def txn(self) -> tuple[int, int] | None:
        """(most, least) bits of the transaction."""
        metadata = self._metadata
        if metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits"):
            return metadata.txnid_most_bits, metadata.txnid_least_bits
        return None

    @property
    def replicated_from(self) -> str | None:
        """The cluster in which it was published."""
        metadata = self._metadata
        return _text(metadata.replicated_from) if metadata.HasField("replicated_from") else None

    @property
    def uuid(self) -> str | None:
        """What the chunks of one message share."""
        metadata = self._metadata
        return _text(metadata.uuid) if metadata.HasField("uuid") else None

    @property
    def chunk_id(self) -> int | None:
        """Which chunk of a large message this is."""
        metadata = self._metadata
        return metadata.chunk_id if metadata.HasField("chunk_id") else None

    @property
    def num_chunks_from_msg(self) -> int | None:
        """How many chunks the large message has."""
        metadata = self._metadata
        return metadata.num_chunks_from_msg if metadata.HasField("num_chunks_from_msg") else None

    @property
    def total_chunk_msg_size(self) -> int | None:
        """Bytes of all chunks together."""
        metadata = self._metadata
        return metadata.total_chunk_msg_size if metadata.HasField("total_chunk_msg_size") else None
