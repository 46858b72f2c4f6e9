"""From messages to entries and back: batches, compression, checksums. Pure."""

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anabranch import limits
from anabranch.client.chunks import Assembly, cut
from anabranch.client.limits import ENTRY_METADATA_BYTES, MESSAGE_OVERHEAD_BYTES
from anabranch.client.message import Message, MessageId
from anabranch.errors import ConfigError, InputError, ProtocolError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import Position
from anabranch.wire import (
    Buffer,
    batch_part,
    build_entry,
    parse_entry,
    split_batch,
    verify_checksum,
)
from anabranch.wire import Message as Delivered
from anabranch.wire.compression import compress, decompress

NO_CHUNK = Position(-1, -1)
_BITS = 64
_WORD = 2**_BITS - 1


class Outgoing(NamedTuple):
    """A message to be sent."""

    value: bytes | None
    """None says that the key has no value any more."""
    key: str | bytes | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int | None
    sequence_id: int
    deliver_at_ms: int | None = None

    @property
    def size(self) -> int:
        """What it takes in an entry, roughly and rather too much."""
        size = MESSAGE_OVERHEAD_BYTES + len(self.value or b"") + len(self.ordering_key or b"")
        if self.key is not None:
            size += 2 * len(self.key)
        if self.properties:
            size += sum(
                len(key.encode()) + len(value.encode()) + MESSAGE_OVERHEAD_BYTES
                for key, value in self.properties.items()
            )
        return size


class PackedBatch(NamedTuple):
    """Messages of a batch as they stand in its entry, before that is compressed."""

    payload: Buffer
    messages: int
    first_sequence_id: int
    last_sequence_id: int
    size: int
    """What they take, each as `Outgoing.size` says."""
    key: str | bytes | None = None
    """The first's: what is spread by key is spread by the entry's, and the first speaks for all."""
    ordering_key: bytes | None = None


def _describe(about: pb.MessageMetadata | pb.SingleMessageMetadata, message: Outgoing) -> None:
    """Set the fields that entries and messages in batches have alike."""
    about.sequence_id = message.sequence_id
    if message.key is not None:
        _set_key(about, message.key)
    if message.ordering_key is not None:
        about.ordering_key = message.ordering_key
    if message.properties:
        about.properties.extend(
            [pb.KeyValue(key=key, value=value) for key, value in message.properties.items()]
        )
    if message.event_time_ms is not None:
        about.event_time = message.event_time_ms
    if message.value is None:
        about.null_value = True


def _set_key(about: pb.MessageMetadata | pb.SingleMessageMetadata, key: str | bytes) -> None:
    if isinstance(key, str):
        about.partition_key = key
        return
    about.partition_key = base64.b64encode(key).decode()
    about.partition_key_b64_encoded = True


class Packer:
    """Makes the entries of one producer."""

    def __init__(self, compression: pb.CompressionType) -> None:
        self._compression = compression
        self.producer_name = ""
        self.schema_version = b""

    def _metadata(self, sequence_id: int, publish_time_ms: int) -> pb.MessageMetadata:
        metadata = pb.MessageMetadata(
            producer_name=self.producer_name, sequence_id=sequence_id, publish_time=publish_time_ms
        )
        if self.schema_version:
            metadata.schema_version = self.schema_version
        return metadata

    def _finish(self, metadata: pb.MessageMetadata, payload: Buffer) -> bytes:
        return build_entry(metadata, self._packed(metadata, payload))

    def _packed(self, metadata: pb.MessageMetadata, payload: Buffer) -> Buffer:
        # Nothing stays as it is: packed, the C++ client takes it for damaged and drops it.
        if self._compression and payload:
            metadata.compression = self._compression
            metadata.uncompressed_size = len(payload)
            return compress(self._compression, bytes(payload))
        return payload

    def single(self, message: Outgoing, publish_time_ms: int) -> bytes:
        """Make the entry of one message."""
        metadata = self._single_metadata(message, publish_time_ms)
        return self._finish(metadata, message.value or b"")

    def _single_metadata(self, message: Outgoing, publish_time_ms: int) -> pb.MessageMetadata:
        metadata = self._metadata(message.sequence_id, publish_time_ms)
        _describe(metadata, message)
        if message.deliver_at_ms is not None:
            metadata.deliver_at_time = message.deliver_at_ms
        return metadata

    def chunks(self, message: Outgoing, publish_time_ms: int, entry_bytes_max: int) -> list[bytes]:
        """Make the entries of one message, several if it is larger than one.

        Raises:
            InputError: if there would be too many of them.
        """
        metadata = self._single_metadata(message, publish_time_ms)
        payload = self._packed(metadata, message.value or b"")
        if metadata.ByteSize() + len(payload) <= entry_bytes_max - ENTRY_METADATA_BYTES:
            return [build_entry(metadata, payload)]
        uuid = f"{self.producer_name}-{message.sequence_id}"
        return cut(metadata, bytes(payload), uuid, entry_bytes_max)

    def batch(self, messages: Sequence[Outgoing], publish_time_ms: int) -> bytes:
        """Make one entry of several messages, or of one that came alone."""
        first, last = messages[0], messages[-1]
        parts = []
        for message in messages:
            value = message.value or b""
            about = pb.SingleMessageMetadata(payload_size=len(value))
            _describe(about, message)
            parts.append(batch_part(about, value))
        return self.packed(
            PackedBatch(
                b"".join(parts),
                len(messages),
                first.sequence_id,
                last.sequence_id,
                0,
                first.key,
                first.ordering_key,
            ),
            publish_time_ms,
        )

    def packed(self, batch: PackedBatch, publish_time_ms: int) -> bytes:
        """Make one entry of messages that are packed already."""
        metadata = self._metadata(batch.first_sequence_id, publish_time_ms)
        metadata.highest_sequence_id = batch.last_sequence_id
        metadata.num_messages_in_batch = batch.messages
        if batch.key is not None:
            _set_key(metadata, batch.key)
        if batch.ordering_key is not None:
            metadata.ordering_key = batch.ordering_key
        return self._finish(metadata, batch.payload)


def check_outgoing(message: Outgoing) -> None:
    """Refuse what cannot be sent, before anything is changed.

    Raises:
        InputError: naming what is wrong with the message.
    """
    if message.value is not None and not isinstance(message.value, bytes | bytearray | memoryview):
        raise InputError(f"a message is bytes or None, not {type(message.value).__name__}")
    for name, number in (
        ("event_time_ms", message.event_time_ms),
        ("sequence_id", message.sequence_id),
        ("deliver_at_ms", message.deliver_at_ms),
    ):
        if number is not None and (not isinstance(number, int) or not 0 <= number < 2**63):
            raise InputError(f"{name} must be a whole number and not negative: {number!r}")
    if message.ordering_key is not None and not isinstance(message.ordering_key, bytes):
        raise InputError(f"an ordering key is bytes, not {type(message.ordering_key).__name__}")
    _check_texts(message)


def _check_texts(message: Outgoing) -> None:
    texts = [text for pair in (message.properties or {}).items() for text in pair]
    if not isinstance(message.key, bytes | None):
        texts.append(message.key)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"a key or property is text, not {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"a key or property that is no valid text: {text!r}") from None


def bits_of(words: Sequence[int] | None, count: int) -> int:
    """The bits of a set that travels as 64-bit words; None stands for all ones."""
    everything = (1 << count) - 1
    if words is None:
        return everything
    bits = 0
    for number, word in enumerate(words):
        bits |= (word & _WORD) << (number * _BITS)
    return bits & everything


def words_of(bits: int) -> tuple[int, ...]:
    """Undo `bits_of`: words as the wire has them, signed."""
    words = []
    while bits:
        word = bits & _WORD
        words.append(word - 2**_BITS if word >> (_BITS - 1) else word)
        bits >>= _BITS
    return tuple(words)


def unpack(delivered: Delivered, topic: str, assembly: Assembly | None = None) -> list[Message]:
    """Cut an entry into the messages that are still to be shown.

    An entry that cannot be read becomes one message that says why. Chunks wait in the assembly
    for the last one of their message.
    """
    place = (delivered.ledger_id, delivered.entry_id, delivered.partition)
    first = NO_CHUNK
    metadata = pb.MessageMetadata()
    payload: Buffer = delivered.entry
    try:
        if not verify_checksum(delivered.entry):
            raise ProtocolError("the checksum of the entry does not match")
        metadata, payload = parse_entry(delivered.entry)
        if metadata.num_chunks_from_msg > 1:
            if assembly is None:
                raise ConfigError("the entry is a chunk of a larger message")
            whole = assembly.add(metadata, payload, Position(*place[:2]))
            if whole is None:
                return []
            payload, first = memoryview(whole[0]), whole[1]
        readable = _readable(metadata, payload)
        if not metadata.HasField("num_messages_in_batch"):
            value = bytes(readable)
            return [
                Message(
                    topic,
                    MessageId(*place, -1, 0, *first),
                    metadata,
                    metadata,
                    value,
                    delivered.redelivery_count,
                )
            ]
        count = metadata.num_messages_in_batch
        shown = bits_of(delivered.ack_set, count)
        return [
            Message(
                topic,
                MessageId(*place, index, count),
                metadata,
                about,
                bytes(value),
                delivered.redelivery_count,
            )
            for index, (about, value) in enumerate(split_batch(readable, count))
            if shown >> index & 1 and not about.compacted_out
        ]
    except (ProtocolError, ConfigError) as problem:
        return [
            Message(
                topic, MessageId(*place, -1, 0, *first), metadata, metadata, bytes(payload),
                delivered.redelivery_count, problem,
            )
        ]  # fmt: skip


def _readable(metadata: pb.MessageMetadata, payload: Buffer) -> Buffer:
    if metadata.encryption_keys:
        raise ConfigError("the entry is encrypted, and this client has no keys")
    if metadata.uncompressed_size > limits.UNCOMPRESSED_BYTES_MAX:
        raise ProtocolError(
            f"an entry that says it unpacks to {metadata.uncompressed_size} bytes; "
            f"at most {limits.UNCOMPRESSED_BYTES_MAX} are unpacked"
        )
    return decompress(metadata.compression, payload, metadata.uncompressed_size)


def messages_charged(delivered: Delivered) -> int:
    """How many permits the broker took for an entry."""
    try:
        metadata, _ = parse_entry(delivered.entry)
    except ProtocolError:
        return 1
    count = max(1, metadata.num_messages_in_batch)
    return bits_of(delivered.ack_set, count).bit_count() if delivered.ack_set else count
