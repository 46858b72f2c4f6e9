"""The pure parts of the served store: frames, messages, addresses, and the two clocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConfigError,
    Corruption,
    Fenced,
    FrameTooLarge,
    NotFound,
    ProtocolError,
    StorageError,
    Unreachable,
)
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.error_codes import code_of, error_of
from anabranch.metadata.served import messages
from anabranch.metadata.served.addresses import Address, parse_addresses
from anabranch.metadata.served.calls import Calls, Repeat
from anabranch.metadata.served.frames import FrameReader, frame
from anabranch.metadata.served.lease import Lease
from anabranch.metadata.served.session_clock import SessionClock
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Delete,
    Event,
    EventKind,
    Guard,
    IndexKey,
    Node,
    Operation,
    Put,
    Record,
    Revision,
    Stat,
    Version,
)

NUMBERS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = st.binary(max_size=20)
VERSIONS = st.builds(Version, NUMBERS, NUMBERS, NUMBERS)
REVISIONS = st.builds(Revision, NUMBERS, NUMBERS)
EXPECTED = st.just(ANY) | st.just(ABSENT) | VERSIONS
GUARDS = st.none() | st.builds(Guard, TEXTS, VERSIONS)
INDEXES = st.lists(st.builds(IndexKey, TEXTS, TEXTS), max_size=2).map(tuple)
STATS = st.builds(Stat, TEXTS, VERSIONS, REVISIONS, NUMBERS, NUMBERS, st.booleans(), st.booleans())


@given(st.lists(VALUES, max_size=5), st.integers(1, 7))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    payloads: list[bytes], step: int
) -> None:
    stream = b"".join(map(frame, payloads))
    reader = FrameReader()
    found: list[bytes] = []
    for start in range(0, len(stream), step):
        found += reader.feed(stream[start : start + step])
    assert found == payloads


def test_frame_with_any_flipped_bit_is_refused_or_waits() -> None:
    whole = frame(b"some payload")
    for place in range(4, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        with pytest.raises(ProtocolError, match="checksum"):
            FrameReader().feed(bytes(damaged))


def test_frame_that_is_too_long_is_refused_at_its_header() -> None:
    header = (limits.METADATA_FRAME_BYTES_MAX + 1).to_bytes(4, "big") + bytes(4)
    with pytest.raises(FrameTooLarge, match="is the peer a client"):
        FrameReader().feed(header)
    with pytest.raises(FrameTooLarge):
        FrameReader().feed(b"GET / HTTP/1.1\r\n")


@given(
    st.builds(Put, TEXTS, VALUES, EXPECTED, st.booleans(), st.booleans(), INDEXES, GUARDS)
    | st.builds(Delete, TEXTS, EXPECTED, GUARDS)
)
def test_operations_survive_the_wire(operation: Operation) -> None:
    sent = messages.operation_message(operation).SerializeToString()
    assert messages.operation_from(pb.Operation.FromString(sent)) == operation


@given(st.builds(Node, VALUES, STATS))
def test_nodes_survive_the_wire(node: Node) -> None:
    sent = messages.node_message(node).SerializeToString()
    assert messages.node_from(pb.Node.FromString(sent)) == node


@given(
    st.builds(
        Record,
        *(TEXTS, VALUES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.none() | NUMBERS, INDEXES),
        access=st.just(()),
    )
)
def test_records_survive_the_wire(record: Record) -> None:
    sent = messages.record_message(record).SerializeToString()
    assert messages.record_from(pb.Record.FromString(sent)) == record


@given(st.builds(Event, st.sampled_from(EventKind), TEXTS, REVISIONS))
def test_events_survive_the_wire(event: Event) -> None:
    sent = messages.event_message(event).SerializeToString()
    assert messages.event_from(pb.Event.FromString(sent)) == event


@pytest.mark.parametrize("error", [NotFound("x"), Fenced("y"), StorageError("z")])
def test_errors_keep_kind_and_words(error: AnabranchError) -> None:
    back = messages.error_from(messages.error_message(error))
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_bad_version_keeps_its_path() -> None:
    back = messages.error_from(messages.error_message(BadVersion("/a", "why")))
    assert isinstance(back, BadVersion)
    assert (back.path, str(back)) == ("/a", "version mismatch at /a: why")


def test_error_without_a_number_travels_as_the_kind_above_it() -> None:
    assert type(error_of(code_of(Corruption("f", 1, "d")), "words", "")) is AnabranchError
    assert type(error_of(999, "from the future", "")) is AnabranchError


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown kind"):
        messages.operation_from(pb.Operation())
    with pytest.raises(ProtocolError, match="unknown kind 9"):
        messages.event_from(pb.Event(kind=9))
    with pytest.raises(ProtocolError, match="no message"):
        messages.parse(b"\xff\xff\xff")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("anabranch://a:1", (Address("a", 1),)),
        ("anabranch://a", (Address("a", 6660),)),
        ("anabranch://a:1,b:2", (Address("a", 1), Address("b", 2))),
        ("anabranch://[::1]:7", (Address("::1", 7),)),
        ("anabranch://[::1]", (Address("::1", 6660),)),
    ],
)
def test_addresses(url: str, found: tuple[Address, ...]) -> None:
    assert parse_addresses(url) == found
    assert parse_addresses("anabranch://" + ",".join(map(str, found))) == found


@pytest.mark.parametrize(
    "url", ["anabranch:a", "anabranch://", "anabranch://a:x", "anabranch://a:70000", "anabranch://a,a",
            "anabranch://a/b", "anabranch://:5", "zk://a:1"],
)  # fmt: skip
def test_wrong_addresses_are_named(url: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_addresses(url)


def test_lease_counts_from_the_sending() -> None:
    lease = Lease()
    lease.begin(6.0, sent_s=100.0)
    assert (lease.lost_at_s, lease.valid_until_s) == (105.0, 106.0)
    lease.renewed(102.0)
    assert (lease.lost_at_s, lease.valid_until_s) == (107.0, 108.0)
    lease.renewed(101.0)
    assert lease.valid_until_s == 108.0, "an older renewal takes nothing back"
    assert (lease.renew_every_s, lease.answer_within_s) == (2.0, 1.0)


def test_session_runs_out_a_timeout_after_it_was_last_heard_of() -> None:
    clock = SessionClock(0.0, tick_s=1.0)
    clock.begin(1, 5.0, 0.0)
    clock.begin(2, 5.0, 0.0)
    for now in (1.0, 2.0, 3.0, 4.0):
        assert clock.tick(now) == []
    clock.heard(2, 4.5)
    assert clock.tick(5.0) == [1]
    clock.forget(1)
    assert 1 not in clock
    assert [clock.tick(now) for now in (6.0, 7.0, 8.0, 9.0, 10.0)] == [[], [], [], [], [2]]


def test_time_that_the_clock_stood_still_counts_against_nobody() -> None:
    clock = SessionClock(0.0, tick_s=1.0)
    clock.begin(1, 5.0, 0.0)
    clock.begin(2, 5.0, 0.0)
    assert clock.tick(1.0) == []
    clock.heard(2, 20.0)
    assert clock.tick(20.0) == [], "it was there for two seconds"
    assert [clock.tick(now) for now in (21.0, 22.0, 23.0)] == [[], [], [1]]
    clock.forget(1)
    assert [clock.tick(now) for now in (24.0, 25.0)] == [[], [2]], "it was heard after the pause"


@pytest.mark.parametrize("late_s", [0.15, 0.25, 3.0])
def test_clock_that_stutters_ends_dead_sessions_all_the_same(late_s: float) -> None:
    clock = SessionClock(0.0, tick_s=0.1)
    clock.begin(1, 30.0, 0.0)
    now_s = awake_s = 0.0
    while not clock.tick(now_s):
        now_s += late_s
        awake_s += 0.1
        assert awake_s < 30.2, f"a dead session of 30 s is there after {now_s} s"
    assert now_s >= 30.0


async def test_a_renewal_in_front_does_not_keep_older_calls_waiting() -> None:
    calls = Calls()
    old = calls.ask(pb.Request(get=pb.Path(path="/x")), Repeat.READ, 1.0)
    renewal = calls.ask(pb.Request(ping=pb.Ping()), Repeat.BOUND, 9.0, first=True)
    calls.give_up(5.0, "nobody answers")
    with pytest.raises(Unreachable, match="nobody answers"):
        await old.answer
    assert not renewal.answer.done()
