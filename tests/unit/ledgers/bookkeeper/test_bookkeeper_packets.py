"""Entry packets: bytes as the Java side makes them, and every damage found."""

import pytest

from anabranch.errors import Corruption
from anabranch.ledgers.bookkeeper.digests import LAST_ENTRY, DigestType, PacketDigest, master_key

HEADER = "00000000000000070000000000000000ffffffffffffffff0000000000000005"
DIGESTS = {
    DigestType.CRC32: "00000000b9e72242",
    DigestType.CRC32C: "9e3e717b",
    DigestType.HMAC: "613fdcc8ace86a92ee633b6472f451ac2ef5f114",
    DigestType.DUMMY: "",
}
PASSWORD = b"passwd"
every_digest = pytest.mark.parametrize("digest_type", list(DigestType))


def packet_of(digest_type: DigestType, password: bytes = PASSWORD) -> bytearray:
    digest = PacketDigest(digest_type, password)
    return bytearray(digest.header_and_digest(7, 0, -1, 5, b"hello") + b"hello")


@every_digest
def test_a_packet_has_the_known_bytes(digest_type: DigestType) -> None:
    assert packet_of(digest_type).hex() == HEADER + DIGESTS[digest_type] + b"hello".hex()
    assert PacketDigest(digest_type, PASSWORD).overhead_bytes == 32 + len(DIGESTS[digest_type]) // 2


@every_digest
def test_payloads_of_any_buffer_give_the_same(digest_type: DigestType) -> None:
    digest = PacketDigest(digest_type, PASSWORD)
    expected = digest.header_and_digest(1, 2, 1, 99, b"payload")
    for payload in (bytearray(b"payload"), memoryview(b"a payload")[2:]):
        assert digest.header_and_digest(1, 2, 1, 99, payload) == expected


@every_digest
def test_a_packet_is_read_as_itself_or_as_the_last(digest_type: DigestType) -> None:
    digest = PacketDigest(digest_type, PASSWORD)
    data = digest.header_and_digest(7, 4, 2, 30, b"entry") + b"entry"
    for asked in (4, LAST_ENTRY):
        packet = digest.open_packet(memoryview(data), 7, asked)
        assert (packet.entry_id, packet.last_confirmed, packet.length) == (4, 2, 30)
        assert packet.payload == b"entry"


@pytest.mark.parametrize("digest_type", [DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC])
def test_no_byte_changes_unnoticed(digest_type: DigestType) -> None:
    digest = PacketDigest(digest_type, PASSWORD)
    for place in range(len(packet_of(digest_type))):
        damaged = packet_of(digest_type)
        damaged[place] ^= 0x40
        with pytest.raises(Corruption, match="ledger 7"):
            digest.open_packet(damaged, 7, 0)


@every_digest
def test_a_short_packet_is_refused(digest_type: DigestType) -> None:
    digest = PacketDigest(digest_type, PASSWORD)
    for size in range(digest.overhead_bytes):
        with pytest.raises(Corruption, match="at least"):
            digest.open_packet(packet_of(digest_type)[:size], 7, 0)


@every_digest
@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "reason"),
    [(8, 0, "of ledger 7"), (7, 1, "of entry 0"), (8, LAST_ENTRY, "of ledger 7")],
)
def test_another_entrys_packet_is_refused(
    digest_type: DigestType, ledger_id: int, entry_id: int, reason: str
) -> None:
    with pytest.raises(Corruption, match=reason):
        PacketDigest(digest_type, PASSWORD).open_packet(packet_of(digest_type), ledger_id, entry_id)


@pytest.mark.parametrize(("confirmed", "length"), [(-2, 5), (-1, 4)])
def test_impossible_numbers_are_refused_without_a_digest_too(confirmed: int, length: int) -> None:
    digest = PacketDigest(DigestType.DUMMY, b"")
    with pytest.raises(Corruption):
        digest.open_packet(
            digest.header_and_digest(7, 0, confirmed, length, b"hello") + b"hello", 7, 0
        )


def test_a_wrong_password_shows_in_the_keyed_digest_alone() -> None:
    with pytest.raises(Corruption, match="HMAC"):
        PacketDigest(DigestType.HMAC, b"other").open_packet(packet_of(DigestType.HMAC), 7, 0)
    PacketDigest(DigestType.CRC32C, b"other").open_packet(packet_of(DigestType.CRC32C), 7, 0)


def test_master_keys_are_the_known_ones() -> None:
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert master_key(PASSWORD).hex() == "9596625852f7fafc2c9cf0f9f7f3e5995206452b"


def test_a_last_confirmed_entry_travels_alone() -> None:
    digest = PacketDigest(DigestType.CRC32C, b"")
    packet = digest.lac_packet(7, 3)
    assert packet.hex() == "000000000000000700000000000000039640a704"
    assert digest.open_lac_packet(packet, 7) == 3


@every_digest
def test_a_damaged_last_confirmed_entry_is_refused(digest_type: DigestType) -> None:
    digest = PacketDigest(digest_type, PASSWORD)
    packet = digest.lac_packet(7, 3)
    assert digest.open_lac_packet(packet, 7) == 3
    for wrong, ledger_id in ((packet[:-1], 7), (packet + b"x", 7), (packet, 8)):
        with pytest.raises(Corruption):
            digest.open_lac_packet(wrong, ledger_id)
    if digest_type is not DigestType.DUMMY:
        with pytest.raises(Corruption, match="digest"):
            digest.open_lac_packet(b"\x01" + packet[1:], 7)
