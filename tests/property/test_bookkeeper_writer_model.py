"""Whatever bookies do, a confirmed entry is on enough of the bookies that the metadata name."""

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper.ensemble import Quorums, replaced, with_segment
from anabranch.ledgers.bookkeeper.frames import Request
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting

QUORUMS = [Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(5, 3, 2), Quorums(4, 3, 3), Quorums(2, 2, 1)]
NAMES = [f"b{number}" for number in range(9)]


class World:
    """Bookies that keep what they are sent, sometime, and metadata that change sometime."""

    def __init__(self, quorums: Quorums) -> None:
        self.quorums = quorums
        self.segments: tuple[EnsembleSegment, ...] = (
            EnsembleSegment(0, tuple(NAMES[: quorums.ensemble])),
        )
        self.on_the_way: list[tuple[Add, int, str]] = []
        self.stored: set[tuple[int, str]] = set()
        self.answers: list[tuple[Add, int, str]] = []
        self.wanted: tuple[int, tuple[str, ...], tuple[int, ...]] | None = None
        self.completed: list[int] = []
        self.misplaced: list[str] = []
        """Confirmed entries that were found on too few of the bookies that the metadata name."""
        self.core = LedgerWriting(self, quorums, self.segments[-1].bookies)

    # --- as the writer's output ---------------------------------------------------------------

    def send(self, add: Add, place: int, bookie: str) -> None:
        self.on_the_way.append((add, place, bookie))

    def complete(self, add: Add) -> None:
        self.completed.append(add.entry_id)
        self.look_at(add.entry_id)

    def fail(self, add: Add, error: AnabranchError) -> None:
        raise AssertionError("nobody stops this writer")

    def change_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...]
    ) -> None:
        assert self.wanted is None, "one change at a time"
        self.wanted = (first_entry_id, bookies, places)

    # --- what may happen ----------------------------------------------------------------------

    def append(self) -> None:
        entry_id = self.core.next_entry_id
        places = self.quorums.write_set(entry_id)
        self.core.add(Add(entry_id, Request(2, b""), 1, entry_id + 1, places, None))

    def store(self, pick: int) -> None:
        if self.on_the_way:
            sent = self.on_the_way.pop(pick % len(self.on_the_way))
            self.stored.add((sent[0].entry_id, sent[2]))
            self.answers.append(sent)

    def acknowledge(self, pick: int) -> None:
        """One answer comes, or, every third time, with all that the same bookie has for us."""
        if not self.answers:
            return
        add, place, bookie = self.answers.pop(pick % len(self.answers))
        together = [add]
        if pick % 3 == 0:
            together += [sent for sent, *where in self.answers if where == [place, bookie]]
            self.answers = [sent for sent in self.answers if sent[1:] != (place, bookie)]
        self.core.confirmed(together, place, bookie)

    def refuse(self, pick: int) -> None:
        if self.on_the_way:
            _, place, bookie = self.on_the_way.pop(pick % len(self.on_the_way))
            self.core.place_failed(place, bookie)

    def lose_answer(self, pick: int) -> None:
        if self.answers:
            _, place, bookie = self.answers.pop(pick % len(self.answers))
            self.core.place_failed(place, bookie)

    def change(self, pick: int) -> None:
        if self.wanted is None:
            return
        first, bookies, places = self.wanted
        self.wanted = None
        spare = [name for name in NAMES if name not in bookies]
        some = places[: 1 + pick % len(places)]
        replacements = {place: spare[(pick + place) % len(spare)] for place in some}
        if len(set(replacements.values())) < len(replacements) or pick % 5 == 0:
            replacements = {}
        if replacements:
            self.segments = with_segment(self.segments, first, replaced(bookies, replacements))
            for entry_id in self.completed:
                self.look_at(entry_id)
        self.core.changed(replacements, places)

    def mend(self, pick: int) -> None:
        missing = self.core.missing
        if missing and pick % 2:
            self.core.look_again()
        elif missing:
            place = missing[pick % len(missing)]
            self.core.restored(place, self.core.bookies[place])

    def look_at(self, entry_id: int) -> None:
        segment = [found for found in self.segments if found.first_entry_id <= entry_id][-1]
        holders = [
            segment.bookies[place]
            for place in self.quorums.write_set(entry_id)
            if (entry_id, segment.bookies[place]) in self.stored
        ]
        if len(holders) < self.quorums.ack:
            self.misplaced.append(f"entry {entry_id} is on {holders} alone")

    def take(self, steps: list[tuple[str, int]]) -> None:
        for name, pick in steps:
            if name == "append":
                self.append()
            else:
                getattr(self, name)(pick)


LIKELY = ("append", "store", "store", "acknowledge", "change")
KINDS = (*LIKELY, *LIKELY, "refuse", "lose_answer", "mend")
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 1000))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(QUORUMS), st.lists(STEPS, max_size=120))
def test_a_confirmed_entry_is_where_the_metadata_say(
    quorums: Quorums, steps: list[tuple[str, int]]
) -> None:
    world = World(quorums)
    world.take(steps)
    assert world.misplaced == []
    assert world.completed == list(range(len(world.completed))), "in order, without gaps"


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(QUORUMS), st.lists(STEPS, max_size=60))
def test_when_all_is_well_again_everything_is_confirmed(
    quorums: Quorums, steps: list[tuple[str, int]]
) -> None:
    world = World(quorums)
    world.take(steps)
    for _ in range(2000):
        if not (world.core.pending or world.core.changing):
            break
        world.change(7)
        world.mend(0)
        world.store(0)
        world.acknowledge(0)
    assert world.completed == list(range(world.core.next_entry_id))
    assert world.misplaced == []
