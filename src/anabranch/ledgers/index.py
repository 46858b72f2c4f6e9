"""Where every entry of every ledger is, and which segments are still needed. Pure.

`LedgerIndex` changes only by replaying durable records, so a running store and one that starts
again go through the same code.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from anabranch.errors import Corruption
from anabranch.journal import REWRITTEN_BYTES_MIN, RecordPlace, segment_name
from anabranch.ledgers.id_ranges import IdRanges
from anabranch.ledgers.records import (
    ENTRY,
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    Close,
    Create,
    Delete,
    Fact,
    Fence,
    decode_fact,
    encode_fact,
)
from anabranch.limits import JOURNAL_RECORD_BYTES_MAX, LEDGER_READ_GAP_BYTES_MAX

# A place takes eight bytes: the offset above the length of the record, which is never 0.
_LENGTH_BITS = 24
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1
assert JOURNAL_RECORD_BYTES_MAX - 1 <= _LENGTH_MASK
_RECORD_OVERHEAD_BYTES = 8
"""Of a record in a segment's file."""
_RANGE_BYTES = 16


def pack_place(offset: int, length: int) -> int:
    """A place within a segment as one number; they sort by offset."""
    return offset << _LENGTH_BITS | length - 1


def unpack_place(segment: int, packed: int) -> RecordPlace:
    """The place that a number stands for."""
    return RecordPlace(segment, packed >> _LENGTH_BITS, (packed & _LENGTH_MASK) + 1)


class Ledger:
    """One ledger: its facts and the places of its durable entries."""

    __slots__ = (
        "appended_bytes",
        "closed_last",
        "created",
        "custom_metadata",
        "epoch",
        "fact_segments",
        "first_entry",
        "gap_before",
        "granted_epoch",
        "ledger_id",
        "length_bytes",
        "moves",
        "next_entry",
        "places",
        "run_firsts",
        "run_segments",
    )

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.created = False
        self.custom_metadata: Mapping[str, bytes] = {}
        self.epoch = 0
        self.closed_last: int | None = None
        """The last entry id as the CLOSE says; None while the ledger is open."""
        self.length_bytes = 0
        self.places = array("Q")
        self.first_entry = 0
        """Of `places`; not 0 only if older segments are gone, as may be after a deletion."""
        self.gap_before = -1
        # Entries of one segment are a run; runs begin at these entries, in these segments.
        self.run_firsts: list[int] = []
        self.run_segments: list[int] = []
        self.fact_segments: list[int] = []
        """Where its facts are."""
        self.moves = 0
        """How often entries got other places; whoever read meanwhile looks again."""
        # What is not durable yet, kept by the store while the ledger is written.
        self.granted_epoch = 0
        self.next_entry = 0
        self.appended_bytes = 0

    @property
    def last_entry_id(self) -> int:
        """The last durable entry, -1 if there is none."""
        return self.first_entry + len(self.places) - 1

    def add(self, entry_id: int, place: RecordPlace) -> bool:
        """Note a durable entry; whether it is the ledger's first in its segment."""
        places = self.places
        if entry_id != self.first_entry + len(places):
            self._note_gap(entry_id)
        places.append(place.offset << _LENGTH_BITS | place.length - 1)  # for each entry: no call
        self.length_bytes += place.length - ENTRY_HEADER_BYTES
        if self.run_segments and self.run_segments[-1] == place.segment:
            return False
        self.run_firsts.append(entry_id)
        self.run_segments.append(place.segment)
        return True

    def add_run(self, segment: int, first: int, places: "array[int]", length_bytes: int) -> None:
        """Note all entries of a segment at once."""
        if first != self.first_entry + len(self.places):
            self._note_gap(first)
        self.places.extend(places)
        self.length_bytes += length_bytes
        self.run_firsts.append(first)
        self.run_segments.append(segment)

    def _note_gap(self, entry_id: int) -> None:
        self.gap_before = entry_id
        self.first_entry = entry_id
        del self.places[:], self.run_firsts[:], self.run_segments[:]
        self.length_bytes = 0

    def run(self, segment: int) -> "tuple[int, array[int]]":
        """The first entry in a segment, and the packed places of all entries there."""
        at = self.run_segments.index(segment)
        first = self.run_firsts[at]
        after = self.run_firsts[at + 1] if at + 1 < len(self.run_firsts) else None
        end = None if after is None else after - self.first_entry
        return first, self.places[first - self.first_entry : end]

    def move_run(self, segment: int, places: "array[int]") -> None:
        """All entries in a segment have other places there."""
        start = self.run_firsts[self.run_segments.index(segment)] - self.first_entry
        self.places[start : start + len(places)] = places
        self.moves += 1

    def select(self, first: int, last: int, max_bytes: int) -> list[list[RecordPlace]]:
        """Where the entries first..last are: as many as fit, at least one.

        Each list is close together in one segment and is worth one disk read.
        """
        reads: list[list[RecordPlace]] = []
        run = bisect_right(self.run_firsts, first) - 1
        segment = self.run_segments[run]
        run_end = self._run_end(run)
        expected = -1
        for entry_id in range(first, last + 1):
            if entry_id == run_end:
                run += 1
                segment = self.run_segments[run]
                run_end = self._run_end(run)
                expected = -1
            place = unpack_place(segment, self.places[entry_id - self.first_entry])
            max_bytes -= place.length - ENTRY_HEADER_BYTES
            if max_bytes < 0 and entry_id != first:
                break
            if not 0 <= place.offset - expected <= LEDGER_READ_GAP_BYTES_MAX or expected < 0:
                reads.append([])
            reads[-1].append(place)
            expected = place.offset + place.length
        return reads

    def _run_end(self, run: int) -> int:
        following = run + 1
        return self.run_firsts[following] if following < len(self.run_firsts) else -1


def packed_length_bytes(places: Sequence[int]) -> int:
    """The sum of the payloads at packed places."""
    lengths = sum(packed & _LENGTH_MASK for packed in places) + len(places)
    return lengths - ENTRY_HEADER_BYTES * len(places)


class SegmentUse:
    """What a segment is still needed for."""

    __slots__ = ("deleted", "facts", "ledgers", "states", "total_bytes", "used_bytes")

    def __init__(self) -> None:
        self.ledgers: dict[int, int] = {}
        """Living ledgers with entries in it, and how many bytes; 0 until it is sealed."""
        self.states: dict[int, int] = {}
        """Living ledgers with facts in it, and how many bytes."""
        self.deleted = IdRanges()
        """Ids whose deletion is recorded in it."""
        self.facts: list[bytes] = []
        """The facts in it, until they are in its index file."""
        self.used_bytes = 0
        """Of living ledgers."""
        self.total_bytes = 0
        """Of its file; 0 until it is sealed."""

    def weigh(self, ledger_id: int, entries: int, length_bytes: int) -> None:
        """Count the entries of a living ledger, once it is known that no more will come."""
        size = length_bytes + entries * (ENTRY_HEADER_BYTES + _RECORD_OVERHEAD_BYTES)
        self.used_bytes += size - self.ledgers[ledger_id]
        self.ledgers[ledger_id] = size

    def release(self, ledger_id: int) -> None:
        """A ledger was deleted."""
        self.used_bytes -= self.ledgers.pop(ledger_id, 0) + self.states.pop(ledger_id, 0)

    @property
    def needed_bytes(self) -> int:
        """How much room it would take if it were written anew."""
        needed = REWRITTEN_BYTES_MIN + self.used_bytes
        if self.deleted:
            needed += _RECORD_OVERHEAD_BYTES + _RANGE_BYTES * (1 + len(self.deleted))
        return needed

    @property
    def is_mostly_dead(self) -> bool:
        """Whether it would take at most half the room if it were written anew."""
        return 2 * self.needed_bytes <= self.total_bytes


class LedgerIndex:
    """All ledgers of a store."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.ledgers: dict[int, Ledger] = {}
        self.deleted = IdRanges()
        self.segments: dict[int, SegmentUse] = {}

    def segment(self, number: int) -> SegmentUse:
        """The use of a segment, made when it is first heard of."""
        use = self.segments.get(number)
        if use is None:
            use = self.segments[number] = SegmentUse()
        return use

    def get(self, ledger_id: int) -> Ledger | None:
        """A ledger that exists."""
        ledger = self.ledgers.get(ledger_id)
        return ledger if ledger is not None and ledger.created else None

    def was_used(self, ledger_id: int) -> bool:
        """Whether the id belongs, or ever belonged, to a ledger."""
        return ledger_id in self.ledgers or ledger_id in self.deleted

    def replay(self, place: RecordPlace, record: memoryview) -> None:
        """Take in one record of the journal.

        Raises:
            Corruption: if it contradicts what came before.
            FormatError: if it is of an unknown type.
        """
        if record[0] != ENTRY:
            self.learn(place.segment, bytes(record))
            return
        _, ledger_id, epoch, entry_id = ENTRY_HEADER.unpack_from(record)
        if ledger_id in self.deleted:
            return
        ledger = self._known(ledger_id)
        if epoch < ledger.epoch or ledger.closed_last is not None:
            detail = f"entry {ledger_id}:{entry_id} was written after its ledger was taken over"
            file = f"{self._folder}/{segment_name(place.segment)}"
            raise Corruption(file, place.offset, detail)
        self.add_entry(ledger, entry_id, place)

    def add_entry(self, ledger: Ledger, entry_id: int, place: RecordPlace) -> None:
        """Note an entry that is durable."""
        if ledger.add(entry_id, place):
            self.segment(place.segment).ledgers[ledger.ledger_id] = 0

    def add_run(
        self, segment: int, ledger_id: int, first: int, places: "array[int]", length_bytes: int
    ) -> None:
        """Note all entries of a ledger in a segment, as its index file tells."""
        if ledger_id not in self.deleted:
            self._known(ledger_id).add_run(segment, first, places, length_bytes)
            use = self.segment(segment)
            use.ledgers[ledger_id] = 0
            use.weigh(ledger_id, len(places), length_bytes)

    def learn(self, segment: int, record: bytes) -> None:
        """Take in a durable fact, found in the given segment."""
        fact = decode_fact(memoryview(record))
        use = self.segment(segment)
        use.facts.append(record)
        if isinstance(fact, Delete):
            for first, last in fact.ranges:
                use.deleted.add(first, last)
                self._forget(first, last)
            return
        if fact.ledger_id not in self.deleted:
            size = len(record) + _RECORD_OVERHEAD_BYTES
            use.states[fact.ledger_id] = use.states.get(fact.ledger_id, 0) + size
            use.used_bytes += size
            ledger = self._merge(fact)
            if segment not in ledger.fact_segments:
                ledger.fact_segments.append(segment)

    def _merge(self, fact: Create | Fence | Close) -> Ledger:
        ledger = self._known(fact.ledger_id)
        match fact:
            case Create(_, epoch, metadata):
                ledger.created = True
                ledger.custom_metadata = metadata
                ledger.epoch = max(ledger.epoch, epoch)
            case Fence(_, epoch):
                ledger.epoch = max(ledger.epoch, epoch)
            case Close(_, last, _):
                ledger.closed_last = last
        return ledger

    def _known(self, ledger_id: int) -> Ledger:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            ledger = self.ledgers[ledger_id] = Ledger(ledger_id)
        return ledger

    def _forget(self, first: int, last: int) -> None:
        self.deleted.add(first, last)
        wanted = range(first, last + 1)
        if len(wanted) > len(self.ledgers):
            doomed = [ledger_id for ledger_id in self.ledgers if ledger_id in wanted]
        else:
            doomed = [ledger_id for ledger_id in wanted if ledger_id in self.ledgers]
        for ledger_id in doomed:
            ledger = self.ledgers.pop(ledger_id)
            segments: Iterable[int] = [*ledger.run_segments, *ledger.fact_segments]
            if ledger.gap_before >= 0:
                segments = self.segments  # the runs before the gap are not known any more
            for segment in segments:
                self.segments[segment].release(ledger_id)

    def check_complete(self) -> None:
        """After replaying everything: no living ledger may miss anything.

        Raises:
            Corruption: naming a ledger that does.
        """
        for ledger in self.ledgers.values():
            name = f"ledger {ledger.ledger_id}"
            if ledger.gap_before >= 0:
                detail = f"entries of {name} before entry {ledger.gap_before} are missing"
            elif not ledger.created:
                detail = f"the beginning of {name} is missing"
            elif ledger.closed_last not in (None, ledger.last_entry_id):
                detail = (
                    f"{name} was closed with last entry {ledger.closed_last}, "
                    f"found are entries up to {ledger.last_entry_id}"
                )
            else:
                continue
            raise Corruption(self._folder, 0, f"{detail}: is a segment lost?")

    def drop_segment(self, segment: int) -> None:
        """A segment is gone; its facts were written again elsewhere."""
        for ledger_id in self.segments.pop(segment).states:
            self.ledgers[ledger_id].fact_segments.remove(segment)

    def facts_to_copy(self, segment: int, facts: Iterable[bytes]) -> list[bytes]:
        """What of a segment's own facts must stay in it when it is written anew."""
        kept = []
        for record in facts:
            fact = decode_fact(memoryview(record))
            if not isinstance(fact, Delete) and fact.ledger_id in self.ledgers:
                kept.append(record)
        if self.segments[segment].deleted:
            kept.append(encode_fact(Delete(list(self.segments[segment].deleted))))
        return kept

    def facts_to_keep(self, segment: int) -> list[bytes]:
        """What must be written again before a segment without living entries may go."""
        use = self.segments[segment]
        assert not use.ledgers, f"segment {segment} is in use"
        kept: list[Fact] = []
        for ledger_id in use.states:
            ledger = self.ledgers.get(ledger_id)
            if ledger is not None:
                kept.append(Create(ledger_id, ledger.epoch, ledger.custom_metadata))
                if ledger.closed_last is not None:
                    kept.append(Close(ledger_id, ledger.closed_last, ledger.length_bytes))
        if use.deleted:
            kept.append(Delete(list(use.deleted)))
        return [encode_fact(fact) for fact in kept]
