"""The bytes of Pulsar's documents: fixed states have fixed bytes, foreign fields survive."""

import pytest

from anabranch.errors import FormatError
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import Position
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.managed_ledger.formats import (
    ChainDocument,
    CursorDocument,
    decode_chain,
    decode_cursor,
    decode_position_entry,
    encode_chain,
    encode_cursor,
    encode_position_entry,
    restore_acknowledged,
)

CHAIN = ChainDocument(
    spans=(LedgerSpan(3, 10, 1000, 1_700_000_000_000), LedgerSpan(300)),
    terminated=Position(3, 9),
    properties={"b": "2", "a": "1"},
)
CHAIN_HEX = (
    "0a0e0803100a18e8072080d095ffbc31"  # ledger 3: entries 10, size 1000, closed
    "0a0508ac022000"  # ledger 300: open
    "120408031009"  # terminated at 3:9
    "1a060a0161120131"  # property a = 1
    "1a060a0162120132"  # property b = 2
)


def test_chain_has_fixed_bytes() -> None:
    assert encode_chain(CHAIN).hex() == CHAIN_HEX
    assert decode_chain(bytes.fromhex(CHAIN_HEX), "n") == CHAIN


def test_cursor_has_fixed_bytes() -> None:
    chain = Chain([LedgerSpan(3, 10, 1000, 1)], 300)
    state = Acknowledged(chain, Position(3, 2))
    state.acknowledge([Position(3, 4), Position(3, 5)])
    value = encode_cursor(state, {"p": -5}, {"k": "v"})
    assert value is not None
    expected = (
        "08ffffffffffffffffff01"  # no cursor ledger
        "10031802"  # mark-delete 3:2
        "220c0a0408031003120408031005"  # (3:3, 3:5]
        "2a0e0a017010fbffffffffffffffff01"  # property p = -5
        "42060a016b120176"  # cursor property k = v
    )
    assert value.hex() == expected
    batch = bytes.fromhex("3a130a040803100710ffffffffffffffffff011005")  # as Pulsar puts it there
    back = restore_acknowledged(decode_cursor(value + batch, "c"), chain)
    assert list(back.ranges()) == [(3, 4, 5)]
    assert list(back.batches()) == [(Position(3, 7), (-1, 5))]
    assert back.mark_delete == Position(3, 2)
    assert encode_cursor(back, {}, {}) is None, "Pulsar would not read it from there"


def test_bitmaps_of_a_cursor_ledger_are_ranges() -> None:
    info = pb.PositionInfo(ledgerId=3, entryId=0)
    info.individualDeletedMessageRanges.add(key=3, values=[0b1100, -1, 1 << 62])
    info.individualDeletedMessageRanges.add(key=4, values=[-(1 << 63)])
    node = CursorDocument(cursor_ledger_id=9, mark_delete=None)
    document = decode_position_entry(info.SerializeToString(), node, "c")
    assert document.ranges == (
        (Position(3, 1), Position(3, 3)),
        (Position(3, 63), Position(3, 127)),
        (Position(3, 189), Position(3, 190)),
        (Position(4, 62), Position(4, 63)),
    )


def test_entry_of_a_cursor_ledger_has_fixed_bytes() -> None:
    chain = Chain([LedgerSpan(3, 200, 1000, 1)], 300)
    state = Acknowledged(chain, Position(3, 2))
    state.acknowledge([Position(3, 4), Position(3, 5), *(Position(3, n) for n in range(63, 129))])
    state.acknowledge_batch(Position(3, 7), [-1, 5])
    value = encode_position_entry(state, {"p": -5}, "c")
    expected = (
        "08031002"  # mark-delete 3:2
        "220e0a017010fbffffffffffffffff01"  # property p = -5
        "2a130a040803100710ffffffffffffffffff011005"  # batch 3:7
        "321a0803"  # bitmap of ledger 3
        "10b0808080808080808001"  # 4, 5 and 63
        "10ffffffffffffffffff01"  # 64 to 127
        "1001"  # 128
    )
    assert value.hex() == expected
    node = CursorDocument(cursor_ledger_id=9, mark_delete=None)
    back = restore_acknowledged(decode_position_entry(value, node, "c"), chain)
    assert list(back.ranges()) == [(3, 4, 5), (3, 63, 128)]
    assert list(back.batches()) == [(Position(3, 7), (-1, 5))]


def test_fields_of_others_survive() -> None:
    info = pb.ManagedLedgerInfo()
    ledger = info.ledgerInfo.add(ledgerId=4, entries=2, size=20, timestamp=5)
    ledger.offloadContext.driverMetadata.name = "s3"
    ledger.properties.add(key="cluster", value="new")
    info.ledgerInfo.add(ledgerId=5, timestamp=0)
    unknown = b"\xfa\x3f\x03abc"  # field 1023, which nobody has defined
    value = info.SerializeToString() + unknown
    assert encode_chain(decode_chain(value, "n")) == value


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"\x47\x78\x00\x00\x00\x04", "compressed"),
        (b"\xff\xff\xff", "is not a ManagedLedgerInfo"),
        (b"\x0a\x02\x10\x01", "required field"),
        (bytes.fromhex("0a0408052000" + "0a0408042000"), "lists ledger 4 after 5"),
    ],
)
def test_unreadable_chain_is_refused_by_name(value: bytes, named: str) -> None:
    with pytest.raises(FormatError, match=f"managed ledger some/name.*{named}"):
        decode_chain(value, "some/name")
