"""Messages into entries and back: compression, batches, damage. Compared with other libraries."""

import subprocess
import sys
import zlib

import lz4.block
import pytest

from anabranch import limits
from anabranch.client import Compression, Message
from anabranch.client.packing import Outgoing, Packer, bits_of, messages_charged, unpack, words_of
from anabranch.errors import ConfigError, InputError, ProtocolError
from anabranch.generated.pulsar_api_pb2 import EncryptionKeys, MessageMetadata
from anabranch.wire import Message as Delivered
from anabranch.wire import build_entry, parse_entry
from anabranch.wire.compression import COMPRESSIONS, compress, compression_number, decompress

TEXT = b"a river that leaves, runs beside, and comes back; " * 50
PACKED = [name for name in COMPRESSIONS if name != "none"]


def outgoing(number: int, value: bytes | None = TEXT, key: str | bytes | None = None) -> Outgoing:
    return Outgoing(value, key, None, None, None, number)


def packer(compression: Compression) -> Packer:
    made = Packer(compression_number(compression))
    made.producer_name = "p"
    return made


def delivered(
    entry: bytes, *, ack_set: tuple[int, ...] | None = None, redelivered: int = 0
) -> Delivered:
    return Delivered(1, 7, 3, -1, redelivered, ack_set, None, memoryview(entry))


def only(messages: list[Message]) -> Message:
    (message,) = messages
    return message


@pytest.mark.parametrize("name", PACKED)
def test_payloads_survive_and_get_smaller(name: Compression) -> None:
    number = compression_number(name)
    packed = compress(number, TEXT)
    assert len(packed) < len(TEXT) / 5
    assert bytes(decompress(number, memoryview(packed), len(TEXT))) == TEXT


def test_formats_are_those_of_the_plain_libraries() -> None:
    assert lz4.block.decompress(compress(1, TEXT), uncompressed_size=len(TEXT)) == TEXT
    assert decompress(1, lz4.block.compress(TEXT, store_size=False), len(TEXT)) == TEXT
    assert zlib.decompress(compress(2, TEXT)) == TEXT
    unfinished = zlib.compressobj()
    flushed = unfinished.compress(TEXT) + unfinished.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(2, flushed, len(TEXT)) == TEXT, "Pulsar's Java client writes no end"
    assert compress(3, TEXT)[:4] == b"\x28\xb5\x2f\xfd", "a frame of zstd begins so"
    assert compress(4, b"abcd")[0] == 4, "raw snappy begins with the length"


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("said", [len(TEXT) - 1, len(TEXT) + 1, 0])
def test_a_payload_of_another_size_is_refused(name: Compression, said: int) -> None:
    number = compression_number(name)
    with pytest.raises(ProtocolError, match=name):
        decompress(number, compress(number, TEXT), said)


@pytest.mark.parametrize("name", PACKED)
def test_a_damaged_payload_is_refused(name: Compression) -> None:
    number = compression_number(name)
    whole = compress(number, bytes(range(256)) * 4)
    with pytest.raises(ProtocolError, match=name):
        decompress(number, whole[: len(whole) // 2], 1024)


def test_a_compression_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="no compression 'gzip'; there are none, lz4"):
        compression_number("gzip")  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="unknown compression 9"):
        decompress(9, b"", 0)


def test_a_missing_library_names_the_extra() -> None:
    program = """
import sys
sys.modules["cramjam"] = None
from anabranch.wire.compression import compression_number
from anabranch.errors import ConfigError
assert compression_number("zlib") == 2
for name in ("lz4", "zstd", "snappy"):
    try:
        compression_number(name)
    except ConfigError as error:
        assert "pip install 'anabranch[compression]'" in str(error), error
    else:
        raise SystemExit(f"{name} works without its library")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_batch_comes_apart_as_it_was_put_together(compression: Compression) -> None:
    messages = [
        Outgoing(TEXT, "k", b"o", {"a": "1", "ü": ""}, 1_700_000_000_000, 10),
        Outgoing(b"", b"\x00\xff", None, None, None, 11),
        Outgoing(None, "gone", None, None, None, 15),
    ]
    entry = packer(compression).batch(messages, 1_800_000_000_000)
    first, second, third = unpack(delivered(entry, redelivered=2), "t")
    assert [m.value for m in (first, second, third)] == [TEXT, b"", b""]
    assert [m.sequence_id for m in (first, second, third)] == [10, 11, 15]
    assert [str(m.id) for m in (first, second, third)] == ["7:3:0", "7:3:1", "7:3:2"]
    assert {m.id.batch_size for m in (first, second, third)} == {3}
    assert (first.key, first.key_bytes, first.ordering_key) == ("k", b"k", b"o")
    assert (first.properties, first.event_time_ms) == ({"a": "1", "ü": ""}, 1_700_000_000_000)
    assert (second.key_bytes, second.ordering_key, second.event_time_ms) == (b"\0\xff", None, None)
    assert [m.is_null for m in (first, second, third)] == [False, False, True]
    assert (first.publish_time_ms, first.producer_name) == (1_800_000_000_000, "p")
    assert first.redelivery_count == 2
    metadata, _ = parse_entry(entry)
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (10, 15)
    assert metadata.partition_key == "k"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_message_alone_has_no_batch(compression: Compression) -> None:
    entry = packer(compression).single(Outgoing(TEXT, "k", None, {"a": "b"}, None, 4), 5)
    message = only(unpack(delivered(entry), "t"))
    assert (message.value, message.key, message.properties) == (TEXT, "k", {"a": "b"})
    assert (message.id.batch_index, message.id.batch_size) == (-1, 0)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_nothing_is_not_compressed(compression: Compression) -> None:
    metadata, payload = parse_entry(packer(compression).single(outgoing(0, b""), 0))
    assert (metadata.compression, metadata.uncompressed_size, len(payload)) == (0, 0, 0)


def test_messages_acknowledged_before_are_not_shown_again() -> None:
    entry = packer("none").batch([outgoing(n, b"%d" % n) for n in range(70)], 0)
    left = words_of(1 << 1 | 1 << 64 | 1 << 69)
    messages = unpack(delivered(entry, ack_set=left), "t")
    assert [m.value for m in messages] == [b"1", b"64", b"69"]
    assert messages_charged(delivered(entry, ack_set=left)) == 3
    assert messages_charged(delivered(entry)) == 70
    assert messages_charged(delivered(b"damaged")) == 1


def test_bit_sets_travel_as_signed_words() -> None:
    assert words_of(1 << 63) == (-(2**63),)
    assert words_of(0) == ()
    assert bits_of((-1, 1), 66) == 2**65 - 1
    assert bits_of(None, 3) == 0b111
    assert bits_of((-1,), 3) == 0b111, "bits beyond the batch are none"


def spoil(entry: bytes) -> bytes:
    return entry[:-1] + bytes([entry[-1] ^ 1])


def with_metadata(**fields: object) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)
    for name, value in fields.items():
        if name == "encryption_keys":
            metadata.encryption_keys.append(EncryptionKeys(key="k", value=b"v"))
        else:
            setattr(metadata, name, value)
    return build_entry(metadata, b"payload")


@pytest.mark.parametrize(
    ("entry", "kind", "words"),
    [
        (spoil(packer("none").single(outgoing(0), 0)), ProtocolError, "checksum"),
        (b"", ProtocolError, "ends within its metadata"),
        (with_metadata(compression=1, uncompressed_size=70), ProtocolError, "lz4"),
        (with_metadata(num_messages_in_batch=3), ProtocolError, "batch of 3"),
        (with_metadata(encryption_keys=1), ConfigError, "encrypted"),
        (with_metadata(num_chunks_from_msg=2), ConfigError, "chunk"),
        (
            with_metadata(compression=2, uncompressed_size=limits.UNCOMPRESSED_BYTES_MAX + 1),
            ProtocolError,
            "at most",
        ),
    ],
)
def test_what_cannot_be_read_arrives_and_says_so(
    entry: bytes, kind: type[Exception], words: str
) -> None:
    message = only(unpack(delivered(entry), "t"))
    assert message.id.position == (7, 3)
    with pytest.raises(kind, match=words):
        _ = message.value
    assert isinstance(message.problem, kind)


def test_values_that_are_no_bytes_are_refused() -> None:
    from anabranch.client.packing import check_outgoing

    for wrong, words in (
        (outgoing(0)._replace(value="text"), "bytes or None, not str"),  # type: ignore[arg-type]
        (outgoing(0)._replace(event_time_ms=-1), "event_time_ms"),
        (outgoing(-1), "sequence_id"),
    ):
        with pytest.raises(InputError, match=words):
            check_outgoing(wrong)
