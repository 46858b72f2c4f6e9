"""Whichever bookies answer, and in whatever order, a recovery keeps every confirmed entry."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper.digests import Packet
from anabranch.ledgers.bookkeeper.ensemble import Quorums
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment
from anabranch.ledgers.bookkeeper.recovery import LedgerRecovery

QUORUMS = [Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(5, 3, 2), Quorums(4, 3, 3), Quorums(1, 1, 1)]
NO_ANSWER = (Status.TIMED_OUT, Status.UNREACHABLE, Status.UNKNOWN_LEDGER_STATE, Status.IO_ERROR)


class World:
    """What a writer left on its bookies, and how they answer."""

    def __init__(self, quorums: Quorums, seed: int, first: int, silent_chance: float) -> None:
        self.rng = rng = random.Random(seed)
        self.quorums = quorums
        self.silent_chance = silent_chance
        sent = rng.randrange(40)
        self.confirmed = first - 1 + rng.randrange(sent + 1)
        self.holders: dict[int, set[int]] = {}
        for entry_id in range(first, first + sent):
            places = list(quorums.write_set(entry_id))
            least = quorums.ack if entry_id <= self.confirmed else 0
            self.holders[entry_id] = set(rng.sample(places, rng.randint(least, quorums.write)))
        self.known: dict[int, int] = {
            entry_id: rng.randint(first - 1, min(entry_id - 1, self.confirmed))
            for entry_id in self.holders
        }
        self.questions: list[tuple[int | None, int]] = []
        self.fenced: set[int] = set()
        self.started: int | None = None
        self.written: list[int] = []
        self.to_confirm: list[int] = []
        self.closed: int | None = None
        self.error: AnabranchError | None = None
        bookies = tuple(f"b{place}" for place in range(quorums.ensemble))
        self.core = LedgerRecovery(self, 1, quorums, EnsembleSegment(first, bookies))

    # --- as the recovery's output -------------------------------------------------------------

    def read_last(self, place: int, bookie: str) -> None:
        self.questions.append((None, place))

    def read_entry(self, entry_id: int, place: int, bookie: str) -> None:
        self.questions.append((entry_id, place))

    def start_writing(self, last_confirmed: int) -> None:
        self.started = last_confirmed

    def write_again(self, packet: Packet) -> None:
        self.written.append(packet.entry_id)
        self.to_confirm.append(packet.entry_id)

    def close(self, last_entry_id: int) -> None:
        assert self.closed is None
        self.closed = last_entry_id

    def give_up(self, error: AnabranchError) -> None:
        self.error = error

    # --- answers ------------------------------------------------------------------------------

    def packet(self, entry_id: int) -> Packet:
        return Packet(entry_id, self.known[entry_id], entry_id, memoryview(b""))

    def answer(self) -> None:
        entry_id, place = self.questions.pop(self.rng.randrange(len(self.questions)))
        silent = self.rng.random() < self.silent_chance
        status = self.rng.choice(NO_ANSWER) if silent else Status.NO_ENTRY
        if not silent:
            self.fenced.add(place)
        if entry_id is None:
            there = [number for number, places in self.holders.items() if place in places]
            found = None if silent or not there else self.packet(max(there))
            self.core.last_answered(place, Status.OK if found else status, found)
        else:
            has = place in self.holders.get(entry_id, ())
            found = None if silent or not has else self.packet(entry_id)
            self.core.entry_answered(entry_id, Status.OK if found else status, found)

    def run(self) -> None:
        self.core.begin()
        while self.questions or self.to_confirm:
            if self.to_confirm and (not self.questions or self.rng.random() < 0.3):
                self.core.written(self.to_confirm.pop(0))
            else:
                self.answer()


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(QUORUMS),
    st.integers(0, 10**9),
    st.sampled_from([0, 0, 17]),
    st.sampled_from([0.0, 0.1, 0.3, 0.6]),
)
def test_no_confirmed_entry_is_lost(
    quorums: Quorums, seed: int, first: int, silent_chance: float
) -> None:
    world = World(quorums, seed, first, silent_chance)
    world.run()
    assert (world.closed is None) != (world.error is None), "it ends, one way or the other"
    if silent_chance == 0:
        assert world.error is None, "all bookies answered"
    if world.closed is None:
        return
    assert world.started is not None
    assert world.closed >= world.confirmed, "acknowledged and lost"
    assert world.written == list(range(world.started + 1, world.closed + 1))
    assert all(world.holders[entry_id] for entry_id in world.written), "made of nothing"
    # Nobody can confirm the next entry any more: too few bookies are without the fence.
    following = quorums.write_set(world.closed + 1)
    assert sum(place not in world.fenced for place in following) < quorums.ack
