"""The formats of commands and snapshots: round trips, frozen bytes, unknown ones refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.consensus.log import LogPosition
from anabranch.errors import BadVersion, Corruption, FormatError, NotFound
from anabranch.metadata import commands, snapshot
from anabranch.metadata.commands import Command, EndSessions, OpenSession, Restore, Write
from anabranch.metadata.entries import Counters, Entry
from anabranch.metadata.snapshot import SnapshotHeader, SnapshotReader
from anabranch.metadata.state_machine import Session
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Delete,
    Expected,
    Guard,
    IndexKey,
    Put,
    Record,
    Revision,
    Stat,
    Version,
)

NUMBERS = st.integers(0, 2**63 - 1)
EXPECTED: st.SearchStrategy[Expected] = st.one_of(
    st.just(ANY), st.just(ABSENT), st.builds(Version, NUMBERS, NUMBERS, NUMBERS)
)
PATHS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


WALL_MS = st.integers(-(2**63), 2**63 - 1)
INDEXES = st.lists(st.builds(IndexKey, PATHS, PATHS), max_size=2).map(tuple)
GUARDS = st.none() | st.builds(Guard, PATHS, st.builds(Version, NUMBERS, NUMBERS, NUMBERS))
VALUES = st.binary(max_size=50)
SESSIONS = st.lists(NUMBERS, max_size=3).map(tuple)
OPERATIONS = st.one_of(
    st.builds(Put, PATHS, VALUES, EXPECTED, st.booleans(), st.booleans(), INDEXES, GUARDS),
    st.builds(Delete, PATHS, EXPECTED, GUARDS),
)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(Write, WALL_MS, st.lists(OPERATIONS, max_size=5), NUMBERS, NUMBERS, NUMBERS),
    st.builds(OpenSession, WALL_MS, NUMBERS, VALUES, SESSIONS),
    st.builds(EndSessions, WALL_MS, SESSIONS),
    st.builds(
        Restore,
        WALL_MS,
        st.lists(
            st.builds(
                Record,
                *(PATHS, VALUES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.none(), INDEXES),
                access=st.just(()),
            ),
            max_size=3,
        ),
    ),
)


@given(COMMANDS)
def test_command_round_trip(command: Command) -> None:
    data = commands.encode(command)
    assert commands.decode(data) == command
    for cut in range(len(data)):
        with pytest.raises(FormatError):
            commands.decode(data[:cut])


def test_command_bytes_are_frozen() -> None:
    write = Write(
        7,
        [
            Put("/a", b"v", Version(1, 2, 3), True, True, (IndexKey("i", "k"),)),
            Delete("/b", ABSENT, Guard("/g", Version(4, 5, 6))),
        ],
        session=8,
        request=9,
        answered_below=10,
    )
    assert commands.encode(write).hex() == (
        "02" "01" "0000000000000007"
        "0000000000000008" "0000000000000009" "000000000000000a" "00000002"
        "01" "02" "0b" "00022f61" "000000000000000100000000000000020000000000000003"
        "0001" "000169" "00016b" "00000001" "76"
        "02" "01" "04" "00022f62" "000000000000000400000000000000050000000000000006" "00022f67"
    )  # fmt: skip
    opened = OpenSession(7, 30_000, b"s", (1,))
    assert commands.encode(opened).hex() == (
        "02" "02" "0000000000000007" "0000000000007530" "00000001" "73"
        "00000001" "0000000000000001"
    )  # fmt: skip
    ended = EndSessions(7, (1,))
    assert commands.encode(ended).hex() == "02030000000000000007000000010000000000000001"
    restored = Restore(7, [Record("/a", b"v", 1, 2, 3, 4)])
    assert commands.encode(restored).hex() == (
        "02" "04" "0000000000000007" "00000001"
        "0000000000000001" "0000000000000002" "0000000000000003" "0000000000000004"
        "00022f61" "00000001" "76" "0000"
    )  # fmt: skip


def test_command_of_format_1_is_read() -> None:
    data = bytes.fromhex(
        "01" "0000000000000007" "00000002"
        "01" "02" "0002" "00000001" "000000000000000100000000000000020000000000000003" "2f61" "76"
        "02" "01" "0002" "00000000" "2f62"
    )  # fmt: skip
    operations = [Put("/a", b"v", Version(1, 2, 3)), Delete("/b", ABSENT)]
    assert commands.decode(data) == Write(7, operations)
    for cut in range(len(data)):
        with pytest.raises(FormatError):
            commands.decode(data[:cut])


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("", "format nothing"),
        ("03", "format 03"),
        ("0100000000000000000000000109000002000000002f61", "unknown kind 9"),
        ("0100000000000000000000000101070002000000002f61", "unknown condition 7"),
        ("010000000000000000000000010200000200000000ffff", "cannot be read"),
        ("0100000000000000000000000000", "has 14 bytes, expected 13"),
        ("02090000000000000000", "unknown kind of command 9"),
        ("0203000000000000000000000000ff", "has 15 bytes, expected 14"),
        ("0201" + "00" * 32 + "00000001" + "09000000022f61", "unknown kind 9"),
        ("0201" + "00" * 32 + "00000001" + "01070000022f61", "unknown condition 7"),
        ("0201" + "00" * 32 + "00000001" + "0100400002", "unknown flags 0x40"),
        ("0201" + "00" * 32 + "00000001" + "0100000002ffff", "holds no text"),
    ],
)
def test_unknown_command_is_refused_and_named(data: str, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        commands.decode(bytes.fromhex(data))


HEADER = SnapshotHeader(LogPosition(3, 99), Counters(Revision(2, 50), 12), 77)
NODES = [
    ("/", Entry(b"", 0, 0, 0, 0, 0, 0)),
    ("/ä", Entry(b"\x00value", 4, 2, 1, 7, -5, 1 << 40, 9, 3, (IndexKey("i", "k"),))),
]
STAT = Stat("/ä", Version(1, 2, 3), Revision(4, 5), 6, 7, True, True)


def sessions() -> dict[int, Session]:
    refusals = [BadVersion("/b", "why"), NotFound("no node")]
    return {3: Session(30_000, b"secret", 5, {5: [STAT, None], 8: [*refusals]}), 4: Session(0)}


def snapshot_bytes() -> bytes:
    return b"".join(
        [
            snapshot.encode_header(HEADER),
            snapshot.encode_sessions(sessions()),
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


def test_snapshot_keeps_sessions_and_their_answers() -> None:
    found = SnapshotReader("the file", snapshot_bytes()).sessions
    assert found[4] == Session(0)
    assert found[3].answers.pop(5) == [STAT, None]
    mismatch, missing = found[3].answers.pop(8)
    assert isinstance(mismatch, BadVersion)
    assert (mismatch.path, str(mismatch)) == ("/b", "version mismatch at /b: why")
    assert isinstance(missing, NotFound)
    assert found[3] == Session(30_000, b"secret", 5)


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
    assert caught.value.offset < at < caught.value.offset + 100


def test_snapshot_with_more_or_fewer_nodes_than_it_says_is_refused() -> None:
    content = snapshot_bytes()
    with pytest.raises(Corruption, match="after the end"):
        read_snapshot(content + b"x")
    parts = [
        snapshot.encode_header(HEADER),
        snapshot.encode_sessions({}),
        snapshot.encode_nodes(NODES),
        snapshot.encode_end(3),
    ]
    with pytest.raises(Corruption, match="kind 3"):
        read_snapshot(b"".join(parts))


def test_unknown_snapshot_is_refused_and_named() -> None:
    content = snapshot_bytes()
    with pytest.raises(FormatError, match="the file has format 3"):
        read_snapshot(content[:8] + b"\x00\x00\x00\x03" + content[12:])
    with pytest.raises(FormatError, match="the file is not a metadata snapshot"):
        read_snapshot(b"PK\x03\x04" + content[4:])
