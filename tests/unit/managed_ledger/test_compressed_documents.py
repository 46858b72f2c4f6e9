"""Compressed nodes: Pulsar's form is read, ours is that form, damage is named."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.block
import pytest

from anabranch import limits
from anabranch.errors import ConfigError, FormatError
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import Position
from anabranch.managed_ledger import DocumentCompression, ManagedLedger, ManagedLedgerConfig
from anabranch.managed_ledger.chain import LedgerSpan
from anabranch.managed_ledger.compressed_documents import unpack
from anabranch.managed_ledger.formats import ChainDocument, decode_chain, encode_chain
from anabranch.wire.compression import COMPRESSIONS, Compression

NAME = "t/ns/persistent/topic"
PATH = f"/managed-ledgers/{NAME}"
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]

CHAIN = ChainDocument(tuple(LedgerSpan(n, 10, 1000, 1_700_000_000_000) for n in range(100)))
PLAIN = encode_chain(CHAIN)
KINDS: tuple[Compression, ...] = COMPRESSIONS[1:]


def unfinished_zlib(data: bytes) -> bytes:
    """As Pulsar writes it: flushed, and without an end."""
    stream = zlib.compressobj()
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


def packed_by_others(kind: Compression) -> bytes:
    """As it is written by a program that shares no code with ours."""
    body = {
        "lz4": lambda: lz4.block.compress(PLAIN, store_size=False),
        "zlib": lambda: unfinished_zlib(PLAIN),
        "zstd": lambda: bytes(cramjam.zstd.compress(PLAIN)),
        "snappy": lambda: bytes(cramjam.snappy.compress_raw(PLAIN)),
    }[kind]()
    size = len(PLAIN)
    assert 128 <= size < 1 << 14, "two bytes as a varint"
    metadata = bytes([0x08, COMPRESSIONS.index(kind), 0x10, size & 0x7F | 0x80, size >> 7])
    return b"\x47\x78" + b"\x00\x00\x00\x05" + metadata + body


@pytest.mark.goal("core.L6", part="compressed forms", broken_by="compressed_head_is_little_endian")
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_of_others_is_read(kind: Compression) -> None:
    assert decode_chain(packed_by_others(kind), "n") == CHAIN


@pytest.mark.goal("core.L6", part="compressed forms", broken_by="every_document_is_said_to_be_lz4")
@pytest.mark.parametrize("kind", KINDS)
def test_ours_has_the_same_form(kind: Compression) -> None:
    value = DocumentCompression(kind, above_bytes=100).pack(PLAIN)
    assert value[:11] == packed_by_others(kind)[:11]
    assert len(value) < len(PLAIN) / 2
    assert unpack(value, "a chain") == PLAIN


@pytest.mark.goal("core.L6", part="compressed forms", broken_by="zlib_without_an_end_is_refused")
def test_zlib_as_pulsar_writes_it_is_read() -> None:
    assert decode_chain(packed_by_others("zlib"), "n") == CHAIN


def test_small_documents_and_no_compression_leave_bytes_as_they_are() -> None:
    assert DocumentCompression().pack(PLAIN) == PLAIN
    assert DocumentCompression("zlib").pack(PLAIN) == PLAIN
    assert DocumentCompression("zlib", above_bytes=len(PLAIN)).pack(PLAIN) == PLAIN
    assert DocumentCompression("zlib", above_bytes=len(PLAIN) - 1).pack(PLAIN) != PLAIN
    assert limits.DOCUMENT_COMPRESSED_ABOVE_BYTES == 16384, "as Pulsar does"


def test_unknown_kinds_are_refused_when_set() -> None:
    with pytest.raises(ConfigError, match="gzip"):
        DocumentCompression("gzip")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="-1"):
        DocumentCompression("lz4", above_bytes=-1)


GOOD = packed_by_others("zlib")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (GOOD[:4], "ends within its head"),
        (GOOD[:9], "ends within its head"),
        (GOOD[:6] + b"\xff" + GOOD[7:], "head is damaged"),
        (GOOD[:7] + b"\x09" + GOOD[8:], "does not know"),
        (GOOD[:9] + b"\x81\x01" + GOOD[11:], "compressed and damaged: .* 129 were said"),
        (GOOD[:20] + b"\xff\xff" + GOOD[22:], "compressed and damaged"),
        (GOOD[:-30], "compressed and damaged"),
        (
            b"\x47\x78\x00\x00\x00\x08\x08\x02\x10\xff\xff\xff\xff\x07" + GOOD[11:],
            "says that it has 2147483647 bytes",
        ),
    ],
)
def test_damage_is_named(value: bytes, named: str) -> None:
    with pytest.raises(FormatError, match=f"managed ledger some/name.*{named}"):
        decode_chain(value, "some/name")


@pytest.mark.goal("core.L6", part="compressed forms", broken_by="every_document_is_said_to_be_lz4")
async def test_owners_with_different_settings_read_each_other(
    world: World, append_all: AppendAll
) -> None:
    zlib_always = DocumentCompression("zlib", above_bytes=0)
    packing = ManagedLedgerConfig(
        ledger_entries_max=10, chain_compression=zlib_always, cursor_compression=zlib_always
    )
    ledger = await world.open(packing)
    cursor = await ledger.open_cursor("s", initial="earliest", cursor_properties={"k": "v"})
    positions = await append_all(ledger, 25)
    cursor.acknowledge(positions[1::2])
    await cursor.flushed()
    for path in (PATH, f"{PATH}/s"):
        assert (await world.metadata.get(path)).value.startswith(b"\x47\x78")
    plain = await world.open(ManagedLedgerConfig(ledger_entries_max=10))
    assert [span.entries for span in plain.ledgers] == [10, 10, 5, 0]
    cursor = plain.cursors["s"]
    assert [n for n, p in enumerate(positions) if cursor.is_acknowledged(p)] == [*range(1, 25, 2)]
    assert cursor.cursor_properties == {"k": "v"}
    node = await world.metadata.get(PATH)
    assert len(pb.ManagedLedgerInfo.FromString(node.value).ledgerInfo) == 4, "plain again"
    node = await world.metadata.get(f"{PATH}/s")
    assert pb.ManagedCursorInfo.FromString(node.value).cursorsLedgerId == -1
    again = await world.open(packing)
    assert again.cursors["s"].backlog() == 13
    assert (await world.metadata.get(f"{PATH}/s")).value.startswith(b"\x47\x78")
