"""Random walks through the replication protocol: messages in any order, or lost, one at a time.

A writer and two recoveries of one ledger are the real decisions (`writer`, `recovery`) without
connections: each step carries out one message of all that are under way, or loses it. A network
keeps the messages of one connection in order; here nothing does, as in a model checker. Sometimes
nobody takes the place of a bookie that failed, and it comes back. What a walk cannot find is hardly
in the protocol itself.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from anabranch.errors import AnabranchError, Fenced
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.digests import Packet
from anabranch.ledgers.bookkeeper.ensemble import (
    Quorums,
    choose_replacements,
    replaced,
    with_segment,
)
from anabranch.ledgers.bookkeeper.frames import Operation, Request, Status
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, State
from anabranch.ledgers.bookkeeper.recovery import LedgerRecovery
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting
from anabranch.testing.bookies.shelves import PACKET_HEADER, Shelves, Verdict

LEDGER: Final = 7
KEY: Final = b"key"
BOOKIES: Final = 6
QUORUMS: Final = (Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(4, 3, 2), Quorums(4, 3, 3))
ENTRIES_MAX: Final = 5
STEPS_MAX: Final = 2_000
FRAME_LENGTH_BYTES: Final = 4
RECOVERIES: Final = 2
LAST_RECOVERIES_MAX: Final = 10
MENDING_SHARE: Final = 0.1
"""Of the steps while the writer lacks a bookie."""
Step = Callable[[], None]


class Walk:
    """One ledger, its bookies, and everything that is under way."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.quorums = self.rng.choice(QUORUMS)
        self.shelves = {f"bookie-{number}": Shelves() for number in range(BOOKIES)}
        first = tuple(self.rng.sample(list(self.shelves), self.quorums.ensemble))
        self.segments: tuple[EnsembleSegment, ...] = (EnsembleSegment(0, first),)
        self.state = State.OPEN
        self.last: int | None = None
        self.confirmed = -1
        """The last entry that the writer's caller was told of."""
        self._loss = self.rng.choice((0.0, 0.05, 0.2))
        self._shortage = random.Random(f"shortage {seed}")
        self._scarce = self._shortage.choice((0.0, 0.0, 0.0, 0.3, 1.0))
        """How often nobody is there to take the place of a bookie."""
        self._under_way: list[tuple[Step, Step]] = []
        """What is carried out, and what happens if it is lost instead."""
        self._writer = Writer(self)
        self._plans: list[Step] = [self._writer.append] * self.rng.randrange(1, ENTRIES_MAX + 1)
        for _ in range(self.rng.randrange(1, RECOVERIES + 1)):
            place = self.rng.randrange(len(self._plans) + 1)
            self._plans.insert(place, lambda: Recoverer(self).begin())

    def run(self) -> None:
        """Walk to the end, where a last recovery meets no losses."""
        for _ in range(STEPS_MAX):
            if not self._step():
                break
        self._loss = self._scarce = 0.0
        for _ in range(LAST_RECOVERIES_MAX):
            if self.state is State.CLOSED:
                break
            Recoverer(self).begin()
            for _ in range(STEPS_MAX):
                if not self._step():
                    break
        self.check()

    def _step(self) -> bool:
        total = len(self._under_way) + bool(self._plans)
        if not total:
            return False
        if self._writer.core.missing and self._shortage.random() < MENDING_SHARE:
            self._writer.mend(self._shortage)
            return True
        chosen = self.rng.randrange(total)
        if chosen == len(self._under_way):
            self._plans.pop(0)()
            return True
        done, lost = self._under_way.pop(chosen)
        (lost if self.rng.random() < self._loss else done)()
        return True

    def later(self, done: Step, lost: Step | None = None) -> None:
        """Something happens at some time; what cannot be lost is done in any case."""
        self._under_way.append((done, lost or done))

    def ask(
        self,
        bookie: str,
        carry_out: Callable[[Shelves], tuple[Status, bytes]],
        answer: Callable[[Status, bytes], None],
    ) -> None:
        """Send a request; it is lost, or its answer is, or it is done."""
        failed = partial(answer, Status.UNREACHABLE, b"")

        def arrives() -> None:
            result = carry_out(self.shelves[bookie])
            self.later(partial(answer, *result), failed)

        self.later(arrives, partial(self.later, failed))

    def replacements(self, bookies: tuple[str, ...], places: tuple[int, ...]) -> dict[int, str]:
        """Draw others for some places, or for some of them, or nobody."""
        found = choose_replacements(bookies, places, list(self.shelves), self.rng.randrange)
        return {place: found[place] for place in found if self._shortage.random() >= self._scarce}

    def confirm(self, entry_id: int) -> None:
        """The writer's caller is told of an entry."""
        assert entry_id == self.confirmed + 1, "out of order"
        assert self.last is None or entry_id <= self.last, f"{entry_id} came after {self.last}"
        self.confirmed = entry_id

    def close(self, last: int, segments: tuple[EnsembleSegment, ...]) -> None:
        """A recovery writes down where the ledger ends, if nobody has."""
        if self.state is State.CLOSED:
            return
        assert last >= self.confirmed, f"closed at {last}, {self.confirmed} was confirmed"
        starts = [segment.first_entry_id for segment in segments]
        assert starts == sorted(set(starts)), f"segments begin at {starts}"
        self.state, self.last, self.segments = State.CLOSED, last, segments

    def check(self) -> None:
        """Each entry is where the metadata say, as often as it was to be."""
        assert self.last is not None, "everybody answers, and still nobody can tell the end"
        for entry_id in range(self.last + 1):
            segment = [s for s in self.segments if s.first_entry_id <= entry_id][-1]
            holders = [segment.bookies[place] for place in self.quorums.write_set(entry_id)]
            having = [h for h in holders if self.shelves[h].read(LEDGER, entry_id).body]
            assert len(having) >= self.quorums.ack, f"{entry_id} is on {having} only"


def _packet(entry_id: int, confirmed: int) -> bytes:
    return PACKET_HEADER.pack(LEDGER, entry_id, confirmed, entry_id + 1) + b"%d" % entry_id


def _take(shelves: Shelves, verdict: Verdict) -> Status:
    for record in verdict.records:
        shelves.learn(record)
    return Status(verdict.status)


class _Adding:
    """Sends the entries of a `LedgerWriting`."""

    def __init__(self, walk: Walk, *, recovery: bool) -> None:
        self._walk = walk
        self._recovery = recovery
        self.core: LedgerWriting

    def entry(self, packet: bytes) -> Add:
        """An entry to be written."""
        entry_id = PACKET_HEADER.unpack_from(packet)[1]
        places = self._walk.quorums.write_set(entry_id)
        return Add(entry_id, Request(Operation.ADD, packet), 1, entry_id + 1, places, None)

    def send(self, add: Add, place: int, bookie: str, /) -> None:
        """See `WriterOutput.send`."""

        def carry_out(shelves: Shelves) -> tuple[Status, bytes]:
            verdict = shelves.add(LEDGER, KEY, add.request.head, recovery=self._recovery)
            return _take(shelves, verdict), b""

        self._walk.ask(
            bookie, carry_out, lambda status, _: self._answered(add, place, bookie, status)
        )

    def _answered(self, add: Add, place: int, bookie: str, status: Status) -> None:
        if status is Status.OK:
            self.core.confirmed((add,), place, bookie)
        elif status is Status.FENCED:
            self.core.stop(Fenced("by somebody else"))
        else:
            self.core.place_failed(place, bookie)

    def fail(self, add: Add, error: AnabranchError, /) -> None:
        """See `WriterOutput.fail`."""


class Writer(_Adding):
    """The ledger's writer."""

    def __init__(self, walk: Walk) -> None:
        super().__init__(walk, recovery=False)
        self.core = LedgerWriting(self, walk.quorums, walk.segments[-1].bookies)

    def append(self) -> None:
        """Write the next entry, if that is still allowed."""
        if self.core.stopped is None:
            self.core.add(self.entry(_packet(self.core.next_entry_id, self.core.last_confirmed)))

    def mend(self, rng: random.Random) -> None:
        """Look for others once more, or go on with a bookie that is back."""
        place = rng.choice(self.core.missing)
        if rng.randrange(2):
            self.core.look_again()
        else:
            self.core.restored(place, self.core.bookies[place])

    def complete(self, add: Add, /) -> None:
        """See `WriterOutput.complete`."""
        self._walk.confirm(add.entry_id)

    def change_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...], /
    ) -> None:
        """See `WriterOutput.change_ensemble`."""
        walk = self._walk

        def write_down() -> None:
            if walk.state is not State.OPEN:
                walk.later(lambda: self.core.stop(Fenced("opened")))
                return
            found = walk.replacements(bookies, places)
            if found:
                wanted = replaced(bookies, found)
                walk.segments = with_segment(walk.segments, first_entry_id, wanted)
            walk.later(lambda: self.core.changed(found, places))

        walk.later(write_down)


class Recoverer(_Adding):
    """One recovery; if it cannot decide, it ends."""

    def __init__(self, walk: Walk) -> None:
        super().__init__(walk, recovery=True)
        self._segments: tuple[EnsembleSegment, ...] = ()
        self._recovery_core: LedgerRecovery

    def begin(self) -> None:
        """Say so in the metadata, then fence."""
        self._walk.later(self._mark)

    def _mark(self) -> None:
        walk = self._walk
        if walk.state is State.CLOSED:
            return
        walk.state = State.IN_RECOVERY
        self._segments = walk.segments
        self._recovery_core = LedgerRecovery(self, LEDGER, walk.quorums, walk.segments[-1])
        walk.later(self._recovery_core.begin)

    def read_last(self, place: int, bookie: str, /) -> None:
        """See `RecoveryOutput.read_last`."""
        self._read(
            -1,
            bookie,
            lambda status, packet: self._recovery_core.last_answered(place, status, packet),
        )

    def read_entry(self, entry_id: int, place: int, bookie: str, /) -> None:
        """See `RecoveryOutput.read_entry`."""
        self._read(
            entry_id,
            bookie,
            lambda status, packet: self._recovery_core.entry_answered(entry_id, status, packet),
        )

    def _read(
        self, entry_id: int, bookie: str, answered: Callable[[Status, Packet | None], None]
    ) -> None:
        request = frames.read(LEDGER, entry_id, fence_key=KEY)
        start = frames.frame_start(request, b"\1")
        asked = pb.Request.FromString(start[FRAME_LENGTH_BYTES:]).read

        def carry_out(shelves: Shelves) -> tuple[Status, bytes]:
            if asked.HasField("flag"):
                _take(shelves, shelves.fence(LEDGER, asked.master_key))
            found = shelves.read(LEDGER, entry_id)
            return Status(found.status), found.body

        def answer(status: Status, body: bytes) -> None:
            if status is not Status.OK:
                answered(status, None)
                return
            _, found, confirmed, length = PACKET_HEADER.unpack_from(body)
            answered(status, Packet(found, confirmed, length, memoryview(body)))

        self._walk.ask(bookie, carry_out, answer)

    def start_writing(self, last_confirmed: int, /) -> None:
        """See `RecoveryOutput.start_writing`."""
        bookies = self._segments[-1].bookies
        quorums = self._walk.quorums
        self.core = LedgerWriting(self, quorums, bookies, last_confirmed=last_confirmed)

    def write_again(self, packet: Packet, /) -> None:
        """See `RecoveryOutput.write_again`."""
        self.core.add(self.entry(bytes(packet.payload)))

    def close(self, last_entry_id: int, /) -> None:
        """See `RecoveryOutput.close`."""
        self._walk.later(lambda: self._walk.close(last_entry_id, self._segments))

    def give_up(self, error: AnabranchError, /) -> None:
        """See `RecoveryOutput.give_up`."""

    def complete(self, add: Add, /) -> None:
        """See `WriterOutput.complete`."""
        self._recovery_core.written(add.entry_id)

    def change_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...], /
    ) -> None:
        """See `WriterOutput.change_ensemble`: written down at the end."""

        def change() -> None:
            found = self._walk.replacements(bookies, places)
            if found:
                wanted = replaced(bookies, found)
                self._segments = with_segment(self._segments, first_entry_id, wanted)
            self.core.changed(found, places)

        self._walk.later(change)
