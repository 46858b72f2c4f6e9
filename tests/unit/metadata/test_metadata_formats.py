"""The formats of commands and snapshots: round trips, frozen bytes, unknown ones refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.consensus.log import LogPosition
from anabranch.errors import Corruption, FormatError
from anabranch.metadata import commands, snapshot
from anabranch.metadata.commands import Command
from anabranch.metadata.snapshot import SnapshotHeader, SnapshotReader
from anabranch.metadata.store import ABSENT, ANY, Delete, Expected, Put, Revision, Version
from anabranch.metadata.tree import Counters, Entry

NUMBERS = st.integers(0, 2**63 - 1)
EXPECTED: st.SearchStrategy[Expected] = st.one_of(
    st.just(ANY), st.just(ABSENT), st.builds(Version, NUMBERS, NUMBERS, NUMBERS)
)
PATHS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.builds(
        Command,
        st.integers(-(2**63), 2**63 - 1),
        st.lists(
            st.one_of(
                st.builds(Put, PATHS, st.binary(max_size=50), EXPECTED),
                st.builds(Delete, PATHS, EXPECTED),
            ),
            max_size=5,
        ),
    )
)
def test_command_round_trip(command: Command) -> None:
    data = commands.encode(command)
    assert commands.decode(data) == command
    for cut in range(len(data)):
        with pytest.raises(FormatError):
            commands.decode(data[:cut])


def test_command_bytes_are_frozen() -> None:
    command = Command(7, [Put("/a", b"v", Version(1, 2, 3)), Delete("/b", ABSENT)])
    assert commands.encode(command).hex() == (
        "01" "0000000000000007" "00000002"
        "01" "02" "0002" "00000001" "000000000000000100000000000000020000000000000003" "2f61" "76"
        "02" "01" "0002" "00000000" "2f62"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("", "format nothing"),
        ("02", "format 02"),
        ("0100000000000000000000000109000002000000002f61", "unknown kind 9"),
        ("0100000000000000000000000101070002000000002f61", "unknown condition 7"),
        ("010000000000000000000000010200000200000000ffff", "cannot be read"),
        ("0100000000000000000000000000", "has 14 bytes, expected 13"),
    ],
)
def test_unknown_command_is_refused_and_named(data: str, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        commands.decode(bytes.fromhex(data))


HEADER = SnapshotHeader(LogPosition(3, 99), Counters(Revision(2, 50), 12))
NODES = [("/", Entry(b"", 0, 0, 0, 0, 0, 0)), ("/ä", Entry(b"\x00value", 4, 2, 1, 7, -5, 1 << 40))]


def snapshot_bytes() -> bytes:
    return b"".join(
        [
            snapshot.encode_header(HEADER),
            snapshot.encode_nodes(NODES[:1]),
            snapshot.encode_nodes(NODES[1:]),
            snapshot.encode_end(2),
        ]
    )


def read_snapshot(content: bytes) -> list[tuple[str, Entry]]:
    reader = SnapshotReader("the file", content)
    assert reader.header == HEADER
    return [node for block in reader.blocks() for node in block]


def test_snapshot_round_trip() -> None:
    assert read_snapshot(snapshot_bytes()) == NODES


def test_snapshot_that_is_cut_anywhere_is_refused() -> None:
    content = snapshot_bytes()
    for cut in range(len(content)):
        with pytest.raises((Corruption, FormatError), match="the file"):
            read_snapshot(content[:cut])


def test_snapshot_with_any_flipped_bit_is_refused() -> None:
    content = bytearray(snapshot_bytes())
    for place in range(len(content)):
        content[place] ^= 0x10
        with pytest.raises((Corruption, FormatError), match="the file"):
            read_snapshot(bytes(content))
        content[place] ^= 0x10


def test_damage_is_named_with_its_place() -> None:
    content = bytearray(snapshot_bytes())
    at = content.index(b"value")
    content[at] ^= 1
    with pytest.raises(Corruption, match="checksum") as caught:
        read_snapshot(bytes(content))
    assert caught.value.offset < at < caught.value.offset + 80


def test_snapshot_with_more_or_fewer_nodes_than_it_says_is_refused() -> None:
    content = snapshot_bytes()
    with pytest.raises(Corruption, match="after the end"):
        read_snapshot(content + b"x")
    parts = [snapshot.encode_header(HEADER), snapshot.encode_nodes(NODES), snapshot.encode_end(3)]
    with pytest.raises(Corruption, match="kind 3"):
        read_snapshot(b"".join(parts))


def test_unknown_snapshot_is_refused_and_named() -> None:
    content = snapshot_bytes()
    with pytest.raises(FormatError, match="the file has format 2"):
        read_snapshot(content[:8] + b"\x00\x00\x00\x02" + content[12:])
    with pytest.raises(FormatError, match="the file is not a metadata snapshot"):
        read_snapshot(b"PK\x03\x04" + content[4:])
