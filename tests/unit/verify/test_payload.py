"""Payloads identify themselves, and damage never passes for a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import Corruption, FormatError, InputError
from anabranch.verify.payload import PAYLOAD_BYTES_MIN, Payload, build, parse

RUN = "0123456789abcdef"
EXAMPLE, EXAMPLE_CRC = build(run=RUN, producer=3, epoch=1, seq=12, key="käse", length=200)


def test_layout_is_the_documented_one() -> None:
    assert EXAMPLE[:2] == b"AV"
    assert EXAMPLE[2] == 1
    assert EXAMPLE[3:11].hex() == RUN
    assert EXAMPLE[11:15] == b"\0\0\0\3"
    assert EXAMPLE[15:19] == b"\0\0\0\1"
    assert EXAMPLE[19:27] == b"\0\0\0\0\0\0\0\x0c"
    assert EXAMPLE[27:29] == b"\0\5"
    assert EXAMPLE[29:34].decode() == "käse"
    assert EXAMPLE[-4:] == EXAMPLE_CRC.to_bytes(4, "big")
    assert len(EXAMPLE) == 200


@given(
    producer=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 2**32 - 1),
    seq=st.integers(0, 2**64 - 1),
    key=st.text(max_size=40),
    length=st.integers(0, 10_000),
)
def test_what_was_built_is_read_back(
    producer: int, epoch: int, seq: int, key: str, length: int
) -> None:
    data, crc = build(run=RUN, producer=producer, epoch=epoch, seq=seq, key=key, length=length)
    assert parse(data) == Payload(RUN, producer, epoch, seq, key, crc)
    assert len(data) == max(length, PAYLOAD_BYTES_MIN + len(key.encode()))


@pytest.mark.parametrize("index", range(len(EXAMPLE)))
def test_any_flipped_bit_is_found(index: int) -> None:
    for bit in range(8):
        damaged = bytearray(EXAMPLE)
        damaged[index] ^= 1 << bit
        with pytest.raises((Corruption, FormatError)):
            parse(bytes(damaged))


def test_any_cut_and_any_addition_is_found() -> None:
    for length in range(len(EXAMPLE)):
        with pytest.raises((Corruption, FormatError)):
            parse(EXAMPLE[:length])
    with pytest.raises(Corruption):
        parse(EXAMPLE + b"\0")


def test_other_version_is_named() -> None:
    with pytest.raises(FormatError, match="version 9 is unknown"):
        parse(EXAMPLE[:2] + b"\x09" + EXAMPLE[3:])
    with pytest.raises(FormatError, match="not a payload"):
        parse(b"hello")


@pytest.mark.parametrize(
    ("run", "key", "complaint"),
    [("xyz", "k", "hexadecimal"), ("0123", "k", "hexadecimal"), (RUN, "k" * 70_000, "longer")],
)
def test_wrong_wishes_are_refused(run: str, key: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        build(run=run, producer=0, epoch=0, seq=1, key=key)
