"""What can be learned of an entry without touching its payload."""

import struct

import pytest

from anabranch import wire
from anabranch.errors import ProtocolError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire import MessageMetadata

PLAIN = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_700_000_000_000)
ENTRY = wire.build_entry(PLAIN, b"payload")
BROKER_METADATA = pb.BrokerEntryMetadata(broker_timestamp=5, index=11).SerializeToString()
STAMPED = struct.pack(">HI", 0x0E02, len(BROKER_METADATA)) + BROKER_METADATA + ENTRY


def batch_payload(*payloads: bytes) -> bytes:
    parts: list[bytes] = []
    for index, payload in enumerate(payloads):
        single = pb.SingleMessageMetadata(payload_size=len(payload), sequence_id=index)
        head = single.SerializeToString()
        parts += (struct.pack(">I", len(head)), head, payload)
    return b"".join(parts)


def test_layout_is_the_one_on_the_wire() -> None:
    metadata = PLAIN.SerializeToString()
    assert ENTRY[:2] == b"\x0e\x01"
    assert ENTRY[6:10] == struct.pack(">I", len(metadata))
    assert ENTRY[10:] == metadata + b"payload"


def test_checksum_is_castagnoli_over_all_that_follows() -> None:
    # The check value that every description of CRC-32C gives.
    covered = b"123456789"
    assert wire.verify_checksum(b"\x0e\x01" + bytes.fromhex("e3069283") + covered)
    assert not wire.verify_checksum(b"\x0e\x01" + bytes.fromhex("e3069284") + covered)


@pytest.mark.parametrize("entry", [ENTRY, STAMPED, memoryview(ENTRY), bytearray(STAMPED)])
def test_intact_entries_pass(entry: wire.Buffer) -> None:
    assert wire.verify_checksum(entry)
    assert bytes(wire.payload_of(entry)) == b"payload"
    assert wire.message_count(entry) == 1
    assert wire.read_metadata(entry).producer_name == "p"


@pytest.mark.parametrize("position", [2, 6, 10, 20, len(ENTRY) - 1])
def test_a_changed_byte_is_noticed(position: int) -> None:
    changed = bytearray(ENTRY)
    changed[position] ^= 1
    assert not wire.verify_checksum(changed)


def test_an_entry_without_checksum_passes() -> None:
    bare = ENTRY[6:]
    assert wire.verify_checksum(bare)
    assert bytes(wire.payload_of(bare)) == b"payload"


def test_what_a_broker_put_in_front_can_be_read_and_left_out() -> None:
    stamped = wire.broker_metadata(STAMPED)
    assert stamped is not None
    assert stamped.index == 11
    assert wire.broker_metadata(ENTRY) is None
    assert wire.without_broker_metadata(STAMPED) == ENTRY
    assert wire.without_broker_metadata(ENTRY) is ENTRY


@pytest.mark.parametrize("length", range(len(ENTRY) - len(b"payload")))
def test_an_entry_that_ends_early_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        wire.message_count(ENTRY[:length])


@pytest.mark.parametrize("length", range(6, len(STAMPED) - len(ENTRY)))
def test_broker_metadata_that_ends_early_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match="broker metadata"):
        wire.verify_checksum(STAMPED[:length])


def test_metadata_must_be_complete() -> None:
    metadata = b"\x10\x07"
    with pytest.raises(ProtocolError, match="producer_name"):
        wire.read_metadata(struct.pack(">I", len(metadata)) + metadata)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_batch_is_counted_by_its_metadata(count: int) -> None:
    metadata = MessageMetadata(num_messages_in_batch=count)
    metadata.MergeFrom(PLAIN)
    entry = wire.build_entry(metadata, b"compressed")
    assert wire.message_count(entry) == count
    assert wire.read_metadata(entry).num_messages_in_batch == count


@pytest.mark.parametrize("count", [0, -1])
def test_a_batch_of_nothing_is_refused(count: int) -> None:
    metadata = MessageMetadata(num_messages_in_batch=count)
    metadata.MergeFrom(PLAIN)
    with pytest.raises(ProtocolError, match=f"batch of {count}"):
        wire.message_count(wire.build_entry(metadata, b""))


def test_what_was_not_said_reads_as_none() -> None:
    metadata = wire.read_metadata(ENTRY)
    assert metadata.num_messages_in_batch is None
    assert metadata.message_count == 1
    unsaid = (
        "event_time highest_sequence_id partition_key ordering_key schema_version deliver_at_time"
        " marker_type txn replicated_from uuid chunk_id num_chunks_from_msg total_chunk_msg_size"
    )
    assert [name for name in unsaid.split() if getattr(metadata, name) is not None] == []
    assert not metadata.null_value
    assert not metadata.encrypted
    assert metadata.properties == ()


def test_what_was_said_is_read() -> None:
    said = MessageMetadata(
        producer_name="p",
        sequence_id=7,
        highest_sequence_id=9,
        publish_time=1,
        event_time=2,
        deliver_at_time=3,
        partition_key="a2V5",
        partition_key_b64_encoded=True,
        null_partition_key=True,
        ordering_key=b"order",
        properties=[pb.KeyValue(key="a", value="b")],
        compression=pb.ZSTD,
        uncompressed_size=100,
        encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")],
        schema_version=b"\x00",
        null_value=True,
        marker_type=21,
        txnid_most_bits=4,
        txnid_least_bits=5,
        replicated_from="blue",
        uuid="p-7",
        chunk_id=0,
        num_chunks_from_msg=2,
        total_chunk_msg_size=200,
    )
    metadata = wire.read_metadata(wire.build_entry(said, b""))
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (7, 9)
    assert (metadata.publish_time, metadata.event_time, metadata.deliver_at_time) == (1, 2, 3)
    assert (metadata.partition_key, metadata.partition_key_b64_encoded) == ("a2V5", True)
    assert (metadata.null_partition_key, metadata.ordering_key) == (True, b"order")
    assert metadata.properties == (("a", "b"),)
    assert (metadata.compression, metadata.uncompressed_size) == (pb.ZSTD, 100)
    assert (metadata.encrypted, metadata.schema_version, metadata.null_value) == (True, b"\0", True)
    assert (metadata.marker_type, metadata.txn) == (21, (4, 5))
    assert (metadata.replicated_from, metadata.uuid) == ("blue", "p-7")
    assert (metadata.chunk_id, metadata.num_chunks_from_msg) == (0, 2)
    assert metadata.total_chunk_msg_size == 200


def test_readings_compare_by_what_was_said() -> None:
    assert wire.read_metadata(ENTRY) == wire.read_metadata(STAMPED)
    assert hash(wire.read_metadata(ENTRY)) == hash(wire.read_metadata(STAMPED))
    other = MessageMetadata(partition_key="k")
    other.MergeFrom(PLAIN)
    assert wire.read_metadata(wire.build_entry(other, b"")) != wire.read_metadata(ENTRY)


def test_a_key_that_is_not_text_stays_readable() -> None:
    metadata = PLAIN.SerializeToString() + b"\x32\x02\xff\xfe"
    entry = struct.pack(">I", len(metadata)) + metadata
    assert wire.read_metadata(entry).partition_key == "\ufffd\ufffd"


def test_a_batch_is_cut_into_its_messages() -> None:
    payload = batch_payload(b"one", b"", b"three")
    cut = list(wire.split_batch(payload, 3))
    assert [bytes(body) for _, body in cut] == [b"one", b"", b"three"]
    assert [single.sequence_id for single, _ in cut] == [0, 1, 2]
    assert cut[0][1].obj is payload


@pytest.mark.parametrize(
    ("payload", "count", "reason"),
    [
        (batch_payload(b"one"), 2, "metadata of message 1"),
        (batch_payload(b"one", b"two"), 1, "bytes after the last message"),
        (batch_payload(b"one")[:-1], 1, "declares 3 bytes where 2 are left"),
        (b"\x00\x00", 1, "metadata of message 0"),
        (b"\x00\x00\x00\x00", 1, "does not say how long"),
        (b"\x00\x00\x00\x01\xff", 1, "malformed"),
        (b"\x00\x00\x00\x0b\x18" + b"\xff" * 9 + b"\x01", 1, "declares -1 bytes"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(payload: bytes, count: int, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        list(wire.split_batch(payload, count))
