"""What the writer of a ledger on bookies decides, value by value."""

import pytest

from anabranch.errors import AnabranchError, Fenced
from anabranch.ledgers.bookkeeper.ensemble import Quorums
from anabranch.ledgers.bookkeeper.frames import Request
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting

NOTHING = Request(2, b"")


class Recorder:
    """Keeps what the writer wants done."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str]] = []
        self.completed: list[int] = []
        self.failed: list[int] = []
        self.changes: list[tuple[int, tuple[int, ...]]] = []

    def send(self, add: Add, place: int, bookie: str) -> None:
        self.sent.append((add.entry_id, bookie))

    def complete(self, add: Add) -> None:
        self.completed.append(add.entry_id)

    def fail(self, add: Add, error: AnabranchError) -> None:
        self.failed.append(add.entry_id)

    def change_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...]
    ) -> None:
        self.changes.append((first_entry_id, places))


class Bench:
    def __init__(self, ensemble: int, write: int, ack: int) -> None:
        self.output = Recorder()
        self.core = LedgerWriting(
            self.output, Quorums(ensemble, write, ack), tuple("abcdef"[:ensemble])
        )
        self.adds: list[Add] = []

    def add(self, count: int = 1, size_bytes: int = 10) -> None:
        for _ in range(count):
            entry_id = self.core.next_entry_id
            length = self.core.pushed_length + size_bytes
            places = self.core.quorums.write_set(entry_id)
            add = Add(entry_id, NOTHING, size_bytes, length, places, None)
            self.adds.append(add)
            self.core.add(add)

    def ack(self, entry_id: int, *bookies: str) -> None:
        for bookie in bookies:
            place = "abcdef".index(bookie)
            self.core.confirmed([self.adds[entry_id]], place, bookie)

    def lose(self, bookie: str) -> None:
        self.core.place_failed(self.core.bookies.index(bookie), bookie)


@pytest.fixture
def three() -> Bench:
    return Bench(3, 3, 2)


@pytest.mark.goal("core.L3", part="quorums", broken_by="one_bookie_counts_twice")
def test_an_entry_goes_to_its_write_set_and_is_confirmed_by_the_quorum(three: Bench) -> None:
    three.add()
    assert three.output.sent == [(0, "a"), (0, "b"), (0, "c")]
    three.ack(0, "c")
    assert three.output.completed == []
    three.ack(0, "c")
    assert three.output.completed == [], "one bookie counts once"
    three.ack(0, "a")
    assert three.output.completed == [0]
    assert (three.core.last_confirmed, three.core.length) == (0, 10)


def test_entries_are_spread_over_a_larger_ensemble() -> None:
    bench = Bench(4, 2, 2)
    bench.add(5)
    assert bench.output.sent == [
        *((0, bookie) for bookie in "ab"),
        *((1, bookie) for bookie in "bc"),
        *((2, bookie) for bookie in "cd"),
        *((3, bookie) for bookie in "da"),
        *((4, bookie) for bookie in "ab"),
    ]


@pytest.mark.goal("core.L3", part="order", broken_by="entries_are_confirmed_as_they_come")
def test_entries_are_confirmed_in_order(three: Bench) -> None:
    three.add(3)
    three.ack(2, "a", "b")
    three.ack(1, "a", "b")
    assert three.output.completed == []
    three.ack(0, "a", "c")
    assert three.output.completed == [0, 1, 2]
    assert three.core.length == 30


def test_a_change_begins_behind_the_last_confirmed_entry(three: Bench) -> None:
    three.add(3)
    three.ack(0, "a", "b")
    three.lose("b")
    assert three.output.changes == [(1, (1,))]
    three.lose("b")
    three.add()
    assert len(three.output.changes) == 1, "one change at a time"
    assert [sent for sent in three.output.sent if sent[0] == 3] == [(3, "a"), (3, "c")]


def test_nothing_is_confirmed_while_the_ensemble_changes(three: Bench) -> None:
    three.add(2)
    three.lose("c")
    three.ack(0, "a", "b")
    three.ack(1, "a", "b")
    assert three.output.completed == []
    three.core.changed({2: "d"}, (2,))
    assert three.output.completed == [0, 1]
    assert three.core.bookies == ("a", "b", "d")


def test_what_a_replaced_bookie_had_is_sent_again_and_counts_no_more(three: Bench) -> None:
    three.add(2)
    three.ack(1, "a", "b")
    three.lose("b")
    three.output.sent.clear()
    three.core.changed({1: "d"}, (1,))
    assert three.output.sent == [(0, "d"), (1, "d")]
    three.ack(0, "a", "c")
    assert three.output.completed == [0], "entry 1 is on one bookie of its new ensemble"
    three.core.confirmed([three.adds[1]], 1, "d")
    assert three.output.completed == [0, 1]


def test_late_answers_of_a_replaced_bookie_count_for_nothing(three: Bench) -> None:
    three.add()
    three.lose("b")
    three.core.changed({1: "d"}, (1,))
    three.core.confirmed([three.adds[0]], 1, "b")
    three.ack(0, "a")
    assert three.output.completed == []
    three.core.place_failed(1, "b")
    assert len(three.output.changes) == 1


def test_failures_during_a_change_lead_to_the_next(three: Bench) -> None:
    three.add()
    three.lose("b")
    three.lose("c")
    three.core.changed({1: "d"}, (1,))
    assert three.output.changes == [(0, (1,)), (0, (2,))]
    assert three.output.completed == []
    three.core.changed({2: "e"}, (2,))
    assert three.core.bookies == ("a", "d", "e")


def test_without_a_spare_bookie_the_others_are_enough(three: Bench) -> None:
    three.add()
    three.lose("b")
    three.core.changed({}, (1,))
    assert three.core.missing == (1,)
    assert not three.core.stuck
    three.ack(0, "a", "c")
    three.add()
    three.ack(1, "a", "c")
    assert three.output.completed == [0, 1]
    assert len(three.output.changes) == 1, "asking again and again finds nobody either"


def test_too_few_bookies_is_being_stuck(three: Bench) -> None:
    three.add()
    three.ack(0, "b")
    three.lose("b")
    three.core.changed({}, (1,))
    three.lose("c")
    three.core.changed({}, (1, 2))
    assert not three.core.stuck, "b has it, and a may"
    three.add()
    three.ack(0, "a")
    assert three.output.completed == [0]
    assert three.core.stuck


def test_a_bookie_that_is_back_gets_what_is_not_confirmed(three: Bench) -> None:
    three.add(2)
    three.ack(0, "b")
    three.lose("b")
    three.core.changed({}, (1,))
    three.output.sent.clear()
    three.core.restored(1, "b")
    assert three.output.sent == [(1, "b")], "entry 0 it has"
    assert three.core.missing == ()
    three.add()
    assert (2, "b") in three.output.sent


def test_a_spare_bookie_that_comes_later_is_asked_for(three: Bench) -> None:
    three.add()
    three.lose("b")
    three.core.changed({}, (1,))
    three.core.look_again()
    assert three.output.changes[-1] == (0, (1,))
    three.core.changed({1: "d"}, (1,))
    assert three.core.missing == ()


def test_a_stop_fails_what_is_under_way_in_order_and_for_good(three: Bench) -> None:
    three.add(3)
    three.ack(0, "a", "b")
    three.ack(2, "a", "b")
    three.core.stop(Fenced("test"))
    assert (three.output.completed, three.output.failed) == ([0], [1, 2])
    three.ack(1, "a", "b")
    three.lose("c")
    assert (three.output.completed, three.output.changes) == ([0], [])


def test_a_stop_during_a_change_confirms_nothing_after_it(three: Bench) -> None:
    three.add()
    three.lose("b")
    three.ack(0, "a", "c")
    three.core.stop(Fenced("test"))
    three.core.changed({1: "d"}, (1,))
    assert (three.output.completed, three.output.failed) == ([], [0])
