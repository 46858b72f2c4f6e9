"""What a recovery decides, answer by answer."""

import pytest

from anabranch.errors import AnabranchError, StorageError, Unreachable
from anabranch.ledgers.bookkeeper.digests import Packet
from anabranch.ledgers.bookkeeper.ensemble import Quorums
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment
from anabranch.ledgers.bookkeeper.recovery import LedgerRecovery, Phase

ABSENT = Status.NO_ENTRY


class Recorder:
    """Keeps what the recovery wants done."""

    def __init__(self) -> None:
        self.last_reads: list[str] = []
        self.reads: list[tuple[int, str]] = []
        self.started: int | None = None
        self.written: list[int] = []
        self.closed: int | None = None
        self.error: AnabranchError | None = None

    def read_last(self, place: int, bookie: str) -> None:
        self.last_reads.append(bookie)

    def read_entry(self, entry_id: int, place: int, bookie: str) -> None:
        self.reads.append((entry_id, bookie))

    def start_writing(self, last_confirmed: int) -> None:
        self.started = last_confirmed

    def write_again(self, packet: Packet) -> None:
        self.written.append(packet.entry_id)

    def close(self, last_entry_id: int) -> None:
        self.closed = last_entry_id

    def give_up(self, error: AnabranchError) -> None:
        self.error = error


def packet(entry_id: int, last_confirmed: int) -> Packet:
    return Packet(entry_id, last_confirmed, 10 * entry_id + 10, memoryview(bytes(10)))


class Bench:
    def __init__(self, quorums: Quorums, first_entry_id: int = 0) -> None:
        self.output = Recorder()
        bookies = tuple("abcdef"[: quorums.ensemble])
        segment = EnsembleSegment(first_entry_id, bookies)
        self.core = LedgerRecovery(self.output, 7, quorums, segment)
        self.core.begin()

    def last(self, place: int, found: Packet | Status) -> None:
        if isinstance(found, Packet):
            self.core.last_answered(place, Status.OK, found)
        else:
            self.core.last_answered(place, found, None)

    def entry(self, entry_id: int, found: Packet | Status) -> None:
        if isinstance(found, Packet):
            self.core.entry_answered(entry_id, Status.OK, found)
        else:
            self.core.entry_answered(entry_id, found, None)


@pytest.fixture
def three() -> Bench:
    return Bench(Quorums(3, 3, 2))


def test_all_bookies_are_fenced_and_enough_must_answer(three: Bench) -> None:
    assert three.output.last_reads == ["a", "b", "c"]
    three.last(0, packet(4, 2))
    assert three.output.reads == [], "b and c could still confirm entries"
    three.last(1, packet(5, 3))
    assert three.output.started == 3
    assert sorted(three.output.reads) == [(entry, bookie) for entry in (4, 5) for bookie in "abc"]


def test_a_bookie_that_failed_is_no_answer(three: Bench) -> None:
    three.last(0, packet(4, 2))
    three.last(1, Status.UNKNOWN_LEDGER_STATE)
    assert three.core.phase is Phase.FENCING
    three.last(2, ABSENT)
    assert three.core.phase is Phase.READING


def test_a_bookie_with_a_damaged_last_entry_is_fenced(three: Bench) -> None:
    three.last(0, Status.DAMAGED)
    three.last(1, Status.TIMED_OUT)
    three.last(2, packet(4, 2))
    assert three.output.started == 2


def test_too_few_answers_decide_nothing(three: Bench) -> None:
    three.last(0, packet(4, 2))
    three.last(1, Status.TIMED_OUT)
    three.last(2, Status.UNREACHABLE)
    assert isinstance(three.output.error, Unreachable)
    assert three.output.reads == []


def test_a_wrong_password_ends_it_at_once(three: Bench) -> None:
    three.last(0, Status.UNAUTHORIZED)
    assert isinstance(three.output.error, StorageError)


def test_reading_begins_no_earlier_than_the_segment() -> None:
    bench = Bench(Quorums(3, 3, 2), first_entry_id=20)
    bench.last(0, ABSENT)
    bench.last(1, Status.NO_LEDGER)
    assert bench.output.started == 19
    assert {entry for entry, _ in bench.output.reads} == {20}
    bench.entry(20, ABSENT)
    bench.entry(20, ABSENT)
    assert bench.output.closed == 19


def test_what_is_found_is_written_again_in_order(three: Bench) -> None:
    three.last(0, packet(1, -1))
    three.last(1, packet(1, -1))
    three.entry(1, packet(1, -1))
    assert three.output.written == []
    three.entry(0, ABSENT)
    three.entry(0, packet(0, -1))
    assert three.output.written == [0, 1]
    assert {entry for entry, _ in three.output.reads} == {0, 1, 2}


def test_the_end_needs_more_absences_than_a_confirmed_entry_can_have(three: Bench) -> None:
    three.last(0, ABSENT)
    three.last(1, ABSENT)
    three.entry(0, ABSENT)
    three.entry(0, Status.TIMED_OUT)
    assert three.core.phase is Phase.READING
    three.entry(0, ABSENT)
    assert three.output.closed == -1


def test_an_entry_that_may_be_there_is_not_given_up(three: Bench) -> None:
    three.last(0, ABSENT)
    three.last(1, ABSENT)
    three.entry(0, ABSENT)
    three.entry(0, Status.TIMED_OUT)
    three.entry(0, Status.DAMAGED)
    assert three.output.closed is None
    assert isinstance(three.output.error, Unreachable)


def test_the_ledger_is_closed_only_when_all_is_written(three: Bench) -> None:
    three.last(0, packet(0, -1))
    three.last(1, packet(0, -1))
    three.entry(0, packet(0, -1))
    three.entry(1, ABSENT)
    three.entry(1, ABSENT)
    assert three.output.closed is None
    three.core.written(0)
    assert three.output.closed == 0


def test_an_entry_behind_a_gap_was_never_confirmed(three: Bench) -> None:
    three.last(0, packet(2, -1))
    three.last(1, packet(2, -1))
    three.entry(2, packet(2, -1))
    three.entry(1, ABSENT)
    three.entry(1, ABSENT)
    three.entry(0, packet(0, -1))
    three.core.written(0)
    assert (three.output.written, three.output.closed) == ([0], 0)


def test_reading_keeps_near_to_what_is_written(three: Bench) -> None:
    three.last(0, packet(1000, -1))
    three.last(1, packet(1000, -1))
    asked = {entry for entry, _ in three.output.reads}
    assert asked == set(range(32))
    for entry in range(32):
        three.entry(entry, packet(entry, -1))
    assert len({entry for entry, _ in three.output.reads}) == 32
    three.core.written(9)
    assert {entry for entry, _ in three.output.reads} == set(range(42))
