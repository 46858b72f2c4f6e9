"""Looking into an entry — what SEND carries, ledgers store and MESSAGE brings — without copying it.

    [0x0e02 · size u32 · BrokerEntryMetadata]  put in front by a broker, not covered by the checksum
    [0x0e01 · crc32c u32]                      over everything after it
    size u32 · MessageMetadata · payload       the payload of a batch is cut by `split_batch`

Nothing here changes, decompresses or decrypts a payload.
"""

from collections.abc import Iterator
from struct import Struct

from crc32c import crc32c
from google.protobuf.message import DecodeError

from anabranch.errors import ProtocolError
from anabranch.generated.pulsar_api_pb2 import (
    BrokerEntryMetadata,
    MessageMetadata,
    SingleMessageMetadata,
)
from anabranch.wire.commands import Buffer
from anabranch.wire.entry_metadata import EntryMetadata, parse_message_metadata

MAGIC_CRC32C = 0x0E01
MAGIC_BROKER_METADATA = 0x0E02

_head = Struct(">HI")
"""A magic and the number after it."""
_u32 = Struct(">I")
_common_head = Struct(">HII")
"""A checksum and the size of the metadata: how nearly every entry begins."""


def _producer_part(entry: Buffer) -> int:
    """Where the producer's own bytes begin, behind what a broker put in front."""
    if len(entry) < _head.size:
        return 0
    magic, size = _head.unpack_from(entry)
    if magic != MAGIC_BROKER_METADATA:
        return 0
    start: int = _head.size + size
    if start > len(entry):
        raise ProtocolError(f"broker metadata of {size} bytes in an entry of {len(entry)}")
    return start


def _checksum(entry: Buffer) -> tuple[int | None, int]:
    """The checksum that the entry carries, and where the bytes that it covers begin."""
    at = _producer_part(entry)
    if len(entry) - at >= _head.size:
        magic, checksum = _head.unpack_from(entry, at)
        if magic == MAGIC_CRC32C:
            return checksum, at + _head.size
    return None, at


def _metadata_range(entry: Buffer) -> tuple[int, int]:
    """Where the MessageMetadata begins and ends."""
    length = len(entry)
    if length >= _common_head.size:
        magic, _, size = _common_head.unpack_from(entry)
        end = _common_head.size + size
        if magic == MAGIC_CRC32C and end <= length:
            return _common_head.size, end
    _, at = _checksum(entry)
    start = at + _u32.size
    if start <= length:
        end = start + _u32.unpack_from(entry, at)[0]
        if end <= length:
            return start, end
    raise ProtocolError(f"an entry of {length} bytes ends within its metadata")


def verify_checksum(entry: Buffer) -> bool:
    """Whether the entry is as its producer sent it; an entry without a checksum passes.

    Raises:
        ProtocolError: if what a broker put in front does not fit the entry.
    """
    if len(entry) >= _head.size:
        magic, checksum = _head.unpack_from(entry)
        if magic == MAGIC_CRC32C:  # nearly all that producers send
            return bool(crc32c(memoryview(entry)[_head.size :]) == checksum)
    checksum, start = _checksum(entry)
    return checksum is None or crc32c(memoryview(entry)[start:]) == checksum


def message_count(entry: Buffer) -> int:
    """How many messages the entry holds: 1, or what a batch says.

    Raises:
        ProtocolError: if the entry or its metadata is malformed, or the batch is empty.
    """
    start, end = _metadata_range(entry)
    count = parse_message_metadata(bytes(entry[start:end])).num_messages_in_batch
    if count < 1:
        raise ProtocolError(f"a batch of {count} messages")
    return count


def read_metadata(entry: Buffer) -> EntryMetadata:
    """Read what the producer said about the entry.

    Raises:
        ProtocolError: if the entry or its metadata is malformed.
    """
    start, end = _metadata_range(entry)
    return EntryMetadata(parse_message_metadata(bytes(entry[start:end])))


def publish_time_ms(entry: Buffer) -> int:
    """When the entry was published: by the broker's clock if it said so, else by the producer's.

    Raises:
        ProtocolError: if the entry or its metadata is malformed.
    """
    from_broker = broker_metadata(entry)
    if from_broker is not None and from_broker.HasField("broker_timestamp"):
        return from_broker.broker_timestamp
    return read_metadata(entry).publish_time


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
        return BrokerEntryMetadata.FromString(bytes(entry[_head.size : start]))
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
    size = _u32.pack(len(head))
    checksum = crc32c(payload, crc32c(head, crc32c(size)))
    return b"".join((_head.pack(MAGIC_CRC32C, checksum), size, head, payload))


def parse_entry(entry: Buffer) -> tuple[MessageMetadata, memoryview]:
    """Read all that the producer said about the entry, and where its payload is.

    Raises:
        ProtocolError: if the entry or its metadata is malformed.
    """
    start, end = _metadata_range(entry)
    return parse_message_metadata(bytes(entry[start:end])), memoryview(entry)[end:]


def batch_part(metadata: SingleMessageMetadata, payload: Buffer) -> bytes:
    """Make one message of a batch; parts are joined and compressed together."""
    head = metadata.SerializeToString()
    return b"".join((_u32.pack(len(head)), head, payload))


def split_batch(payload: Buffer, count: int) -> Iterator[tuple[SingleMessageMetadata, memoryview]]:
    """Cut the payload of a batch, after decryption and decompression, into its messages.

    Raises:
        ProtocolError: if it does not hold exactly `count` well-formed messages.
    """
    view = memoryview(payload)
    at = 0
    for index in range(count):
        start = at + _u32.size
        body = start + _u32.unpack_from(view, at)[0] if start <= len(view) else start
        if body > len(view):
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
