"""Acknowledgements compared with a plain set of positions, over a chain that grows and shrinks."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from anabranch.errors import InputError
from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger.acknowledged import Acknowledged, bits_of_words, words_of_bits
from anabranch.managed_ledger.chain import Chain
from anabranch.managed_ledger.formats import (
    CursorDocument,
    decode_cursor,
    decode_position_entry,
    encode_cursor,
    encode_position_entry,
    restore_acknowledged,
)

places = st.tuples(st.integers(0, 30), st.sampled_from([0, 0, 0, 0, 1, -1, 9]))
"""An existing entry by its place from the end, and a step away from it."""
words = st.lists(st.sampled_from([0, 1, 2, 3, -1, 1 << 62, -(1 << 63)]), max_size=3)


class AgainstASet(RuleBasedStateMachine):
    """The model: which entries exist, which of them are acknowledged, bits of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = Chain((), 0)
        self.state = Acknowledged(self.chain, Position(0, -1))
        self.existing: list[Position] = []
        self.acknowledged: set[Position] = set()
        self.bits: dict[Position, int] = {}

    def position(self, place: tuple[int, int]) -> Position:
        back, step = place
        known = self.existing or [Position(0, 0)]
        ledger_id, entry_id = known[-1 - back % len(known)]
        return Position(ledger_id, entry_id + step)

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.existing.append(self.chain.extend(self.chain.open_entries, 10))

    @precondition(lambda self: self.chain.open_entries)
    @rule(gap=st.integers(1, 3))
    def roll(self, gap: int) -> None:
        assert self.chain.open_id is not None
        self.chain.roll(1, self.chain.open_id + gap)

    @rule()
    def trim_passed(self) -> None:
        count = sum(span.last <= self.state.mark_delete for span in self.chain.closed)
        self.chain.drop_oldest(count)
        self.existing = [p for p in self.existing if p.ledger_id >= self.chain.lowest_id]
        self.state.forget_trimmed()

    @rule(wanted=st.lists(places, max_size=8))
    def acknowledge_some(self, wanted: list[tuple[int, int]]) -> None:
        self.acknowledge([self.position(place) for place in wanted])

    def acknowledge(self, wanted: list[Position]) -> None:
        before = self.acknowledged & set(self.existing)
        hit = {p for p in wanted if p in self.existing}
        assert self.state.acknowledge(wanted) == bool(hit - before)
        self.mark(hit)

    @rule(back=st.integers(1, 20), count=st.integers(1, 20))
    def acknowledge_run(self, back: int, count: int) -> None:
        self.acknowledge(self.existing[-back:][:count])

    @rule(place=places, ack_set=words)
    def acknowledge_batch(self, place: tuple[int, int], ack_set: list[int]) -> None:
        position = self.position(place)
        known = self.state.is_acknowledged(position)
        whole, _ = self.state.acknowledge_batch(position, ack_set)
        if known:
            assert whole
        elif position in self.existing:
            assert whole == (self.narrow(position, ack_set) == 0)
        else:
            assert not whole

    @rule(place=places, ack_set=st.none() | words)
    def acknowledge_cumulative(self, place: tuple[int, int], ack_set: list[int] | None) -> None:
        position = self.position(place)
        if position > max(self.chain.last_confirmed, self.state.mark_delete):
            with pytest.raises(InputError):
                self.state.acknowledge_cumulative(position, ack_set)
            return
        below = self.state.mark_delete
        self.state.acknowledge_cumulative(position, ack_set)
        if position <= below:
            return
        self.mark({p for p in self.existing if p < position})
        if position in self.existing and position not in self.acknowledged:
            if ack_set is None:
                self.mark({position})
            else:
                self.narrow(position, ack_set)

    @rule(place=places)
    def reset(self, place: tuple[int, int]) -> None:
        position = self.position(place)
        self.state.reset(position)
        self.acknowledged = {p for p in self.existing if p < position}
        self.bits = {}

    @rule()
    def store_and_restore(self) -> None:
        value = encode_cursor(self.state, {}, {})
        assert (value is None) == bool(self.bits), "parts of batches belong into a ledger"
        if value is None:
            return
        self.state = restore_acknowledged(decode_cursor(value, "c"), self.chain)

    @rule()
    def store_in_a_ledger_and_restore(self) -> None:
        entry = encode_position_entry(self.state, {}, "c")
        node = CursorDocument(cursor_ledger_id=9, mark_delete=None)
        self.state = restore_acknowledged(decode_position_entry(entry, node, "c"), self.chain)

    def mark(self, hit: set[Position]) -> None:
        self.acknowledged |= hit
        for position in hit:
            self.bits.pop(position, None)

    def narrow(self, position: Position, ack_set: list[int]) -> int:
        every = (1 << 64 * 3) - 1
        left = self.bits.get(position, every) & bits_of_words(ack_set)
        if left:
            self.bits[position] = left
        else:
            self.mark({position})
        return left

    @invariant()
    def same_as_the_model(self) -> None:
        self.chain.validate()
        self.state.validate()
        for position in self.existing:
            assert self.state.is_acknowledged(position) == (position in self.acknowledged)
            expected = self.bits.get(position)
            found = self.state.pending_bits(position)
            assert found == (None if expected is None else words_of_bits(expected))
        pending = [p for p in self.existing if p not in self.acknowledged]
        assert self.state.backlog() == len(pending)
        for number, position in enumerate(pending, start=1):
            assert self.state.pending_position(number) == position
        assert self.state.pending_position(len(pending) + 1) >= self.chain.last_confirmed
        following = self.state.next_unacknowledged(EARLIEST)
        if pending:
            assert following == pending[0]
            assert self.state.mark_delete < pending[0]
        else:
            assert following > self.chain.last_confirmed
        for place, position in enumerate(self.existing):
            assert self.chain.contains(position)
            assert self.chain.rank(position) == place + 1
            after = self.existing[place + 1 : place + 2]
            assert not after or self.chain.next_position(position) == after[0]
            assert not after or self.chain.previous_position(after[0]) == position


AgainstASet.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAgainstASet = pytest.mark.goal(
    "core.L7", part="model of acknowledgements", broken_by="last_ack_of_many_is_lost"
)(AgainstASet.TestCase)
