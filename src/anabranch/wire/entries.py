"""Looking into an entry — what SEND carries, ledgers store and MESSAGE brings — without copying it.

    [0x0e02 · size u32 · BrokerEntryMetadata]  put in front by a broker, not covered by the checksum
    [0x0e01 · crc32c u32]                      over everything after it
    size u32 · MessageMetadata · payload       the payload of a batch is cut by `split_batch`

Nothing here changes, decompresses or decrypts a payload.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from anabranch.errors import ProtocolError
from anabranch.generated.pulsar_api_pb2 import (
    BrokerEntryMetadata,
    MessageMetadata,
    SingleMessageMetadata,
)
from anabranch.wire.commands import Buffer
from anabranch.wire.slow_parse import missing_fields

MAGIC_CRC32C = 0x0E01
MAGIC_BROKER_METADATA = 0x0E02

_MAGIC_FIRST_BYTE = 0x0E
_CRC32C_SECOND_BYTE = MAGIC_CRC32C & 0xFF
_BROKER_METADATA_SECOND_BYTE = MAGIC_BROKER_METADATA & 0xFF
_MAGIC_BYTES = 2
_U32_BYTES = 4
_HEAD_BYTES = _MAGIC_BYTES + _U32_BYTES


@dataclass(frozen=True, slots=True)
class EntryMetadata:
    """What the producer said about an entry. None means: not said."""

    producer_name: str
    sequence_id: int
    publish_time: int
    event_time: int | None
    num_messages_in_batch: int | None
    """None for a single message; a batch may well hold one."""
    highest_sequence_id: int | None
    partition_key: str | None
    partition_key_b64_encoded: bool
    ordering_key: bytes | None
    properties: tuple[tuple[str, str], ...]
    compression: int
    uncompressed_size: int
    schema_version: bytes | None
    deliver_at_time: int | None
    marker_type: int | None
    txn: tuple[int, int] | None
    """(most, least) bits."""
    replicated_from: str | None
    null_value: bool
    encrypted: bool
    uuid: str | None
    chunk_id: int | None
    num_chunks_from_msg: int | None
    total_chunk_msg_size: int | None

    @property
    def message_count(self) -> int:
        """How many messages the entry holds."""
        return 1 if self.num_messages_in_batch is None else self.num_messages_in_batch


class EntryFacts(NamedTuple):
    """What a broker must know of an entry to deliver it; read for every delivery."""

    message_count: int
    marker_type: int
    """-1 for what clients published."""
    txn: tuple[int, int] | None
    """(most, least) bits."""
    replicated_from: str


def _u32(entry: Buffer, at: int) -> int:
    return int.from_bytes(entry[at : at + _U32_BYTES], "big")


def _producer_part(entry: Buffer) -> int:
    """Where the producer's own bytes begin, behind what a broker put in front."""
    if (
        len(entry) < _HEAD_BYTES
        or entry[1] != _BROKER_METADATA_SECOND_BYTE
        or entry[0] != _MAGIC_FIRST_BYTE
    ):
        return 0
    start = _HEAD_BYTES + _u32(entry, _MAGIC_BYTES)
    if start > len(entry):
        raise ProtocolError(
            f"broker metadata of {start - _HEAD_BYTES} bytes in an entry of {len(entry)}"
        )
    return start


def _has_checksum(entry: Buffer, at: int) -> bool:
    return (
        len(entry) - at >= _HEAD_BYTES
        and entry[at] == _MAGIC_FIRST_BYTE
        and entry[at + 1] == _CRC32C_SECOND_BYTE
    )


def _metadata_range(entry: Buffer) -> tuple[int, int]:
    """Where the MessageMetadata begins and ends."""
    at = _producer_part(entry)
    if _has_checksum(entry, at):
        at += _HEAD_BYTES
    start = at + _U32_BYTES
    end = start + _u32(entry, at)
    if start > len(entry) or end > len(entry):
        raise ProtocolError(f"an entry of {len(entry)} bytes ends within its metadata")
    return start, end


def _parse_metadata(entry: Buffer) -> MessageMetadata:
    start, end = _metadata_range(entry)
    try:
        metadata = MessageMetadata.FromString(bytes(entry[start:end]))
    except DecodeError as error:
        raise ProtocolError(f"message metadata of {end - start} bytes is malformed") from error
    if not metadata.IsInitialized():
        raise ProtocolError(f"message metadata lacks {missing_fields(metadata)}")
    return metadata


def verify_checksum(entry: Buffer) -> bool:
    """Whether the entry is as its producer sent it; an entry without a checksum passes.

    Raises:
        ProtocolError: if the entry ends too early to tell.
    """
    at = _producer_part(entry)
    if not _has_checksum(entry, at):
        return True
    view = memoryview(entry)
    return crc32c(view[at + _HEAD_BYTES :]) == _u32(entry, at + _MAGIC_BYTES)


def message_count(entry: Buffer) -> int:
    """How many messages the entry holds: 1, or what a batch says.

    Raises:
        ProtocolError: if the entry or its metadata is malformed, or the batch is empty.
    """
    metadata = _parse_metadata(entry)
    count = metadata.num_messages_in_batch
    if count < 1:
        raise ProtocolError(f"a batch of {count} messages")
    return count


def entry_facts(entry: Buffer) -> EntryFacts:
    """What a broker must know of an entry to deliver it.

    Raises:
        ProtocolError: if the entry or its metadata is malformed, or the batch is empty.
    """
    metadata = _parse_metadata(entry)
    count = metadata.num_messages_in_batch
    if count < 1:
        raise ProtocolError(f"a batch of {count} messages")
    txn = None
    if metadata.HasField("txnid_most_bits"):
        txn = (metadata.txnid_most_bits, metadata.txnid_least_bits)
    marker_type = metadata.marker_type if metadata.HasField("marker_type") else -1
    return EntryFacts(count, marker_type, txn, _text(metadata.replicated_from))


def _text(value: str | bytes) -> str:
    """Protobuf hands out a string that is not UTF-8 as bytes; a stored entry must stay readable."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def read_metadata(entry: Buffer) -> EntryMetadata:
    """Read what the producer said about the entry.

    Raises:
        ProtocolError: if the entry or its metadata is malformed.
    """
    metadata = _parse_metadata(entry)
    has = metadata.HasField
    txn = None
    if has("txnid_most_bits") and has("txnid_least_bits"):
        txn = (metadata.txnid_most_bits, metadata.txnid_least_bits)
    return EntryMetadata(
        producer_name=_text(metadata.producer_name),
        sequence_id=metadata.sequence_id,
        publish_time=metadata.publish_time,
        event_time=metadata.event_time if has("event_time") else None,
        num_messages_in_batch=(
            metadata.num_messages_in_batch if has("num_messages_in_batch") else None
        ),
        highest_sequence_id=metadata.highest_sequence_id if has("highest_sequence_id") else None,
        partition_key=_text(metadata.partition_key) if has("partition_key") else None,
        partition_key_b64_encoded=metadata.partition_key_b64_encoded,
        ordering_key=metadata.ordering_key if has("ordering_key") else None,
        properties=tuple((_text(pair.key), _text(pair.value)) for pair in metadata.properties),
        compression=metadata.compression,
        uncompressed_size=metadata.uncompressed_size,
        schema_version=metadata.schema_version if has("schema_version") else None,
        deliver_at_time=metadata.deliver_at_time if has("deliver_at_time") else None,
        marker_type=metadata.marker_type if has("marker_type") else None,
        txn=txn,
        replicated_from=_text(metadata.replicated_from) if has("replicated_from") else None,
        null_value=metadata.null_value,
        encrypted=len(metadata.encryption_keys) > 0,
        uuid=_text(metadata.uuid) if has("uuid") else None,
        chunk_id=metadata.chunk_id if has("chunk_id") else None,
        num_chunks_from_msg=metadata.num_chunks_from_msg if has("num_chunks_from_msg") else None,
        total_chunk_msg_size=metadata.total_chunk_msg_size if has("total_chunk_msg_size") else None,
    )


def payload_of(entry: Buffer) -> memoryview:
    """The payload, still compressed and encrypted if the producer made it so.

    Raises:
        ProtocolError: if the entry ends within its metadata.
    """
    _, end = _metadata_range(entry)
    return memoryview(entry)[end:]


def broker_metadata(entry: Buffer) -> BrokerEntryMetadata | None:
    """What a broker put in front of the entry, if one did.

    Raises:
        ProtocolError: if it is malformed.
    """
    start = _producer_part(entry)
    if start == 0:
        return None
    try:
        return BrokerEntryMetadata.FromString(bytes(entry[_HEAD_BYTES:start]))
    except DecodeError as error:
        raise ProtocolError("broker entry metadata is malformed") from error


def without_broker_metadata(entry: Buffer) -> Buffer:
    """The producer's own bytes: what a client may see unless it asked for more.

    Raises:
        ProtocolError: if what the broker put in front does not fit the entry.
    """
    start = _producer_part(entry)
    return memoryview(entry)[start:] if start else entry


def build_entry(metadata: MessageMetadata, payload: Buffer) -> bytes:
    """Make an entry as producers do, with a checksum."""
    head = metadata.SerializeToString()
    size = len(head).to_bytes(_U32_BYTES, "big")
    checksum = crc32c(payload, crc32c(head, crc32c(size)))
    return b"".join(
        (
            MAGIC_CRC32C.to_bytes(_MAGIC_BYTES, "big"),
            checksum.to_bytes(_U32_BYTES, "big"),
            size,
            head,
            payload,
        )
    )


def split_batch(payload: Buffer, count: int) -> Iterator[tuple[SingleMessageMetadata, memoryview]]:
    """Cut the payload of a batch, after decryption and decompression, into its messages.

    Raises:
        ProtocolError: if it does not hold exactly `count` well-formed messages.
    """
    view = memoryview(payload)
    at = 0
    for index in range(count):
        start = at + _U32_BYTES
        body = start + _u32(view, at)
        if start > len(view) or body > len(view):
            raise ProtocolError(f"a batch of {count} ends within the metadata of message {index}")
        try:
            single = SingleMessageMetadata.FromString(bytes(view[start:body]))
        except DecodeError as error:
            raise ProtocolError(f"metadata of message {index} in a batch is malformed") from error
        if not single.HasField("payload_size"):
            raise ProtocolError(f"message {index} in a batch does not say how long it is")
        at = body + single.payload_size
        if single.payload_size < 0 or at > len(view):
            raise ProtocolError(
                f"message {index} in a batch declares {single.payload_size} bytes"
                f" where {len(view) - body} are left"
            )
        yield single, view[body:at]
    if at != len(view):
        raise ProtocolError(f"{len(view) - at} bytes after the last message of a batch of {count}")
