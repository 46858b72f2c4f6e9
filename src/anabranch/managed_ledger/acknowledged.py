"""What one subscription has acknowledged: a low-water mark, entries above it, parts of batches.

Pure. Everything at or before `mark_delete` is acknowledged. An acknowledgement of an entry that
does not exist or is acknowledged already changes nothing, so repeated requests are harmless.
"""

from collections.abc import Iterable, Iterator, Sequence

from anabranch import limits
from anabranch.errors import InputError
from anabranch.ids import Position
from anabranch.managed_ledger.chain import Chain
from anabranch.managed_ledger.entry_ranges import EntryRanges

_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1


def bits_of_words(words: Sequence[int]) -> int:
    """Join 64-bit words, least significant first, signed or not, to one number."""
    bits = 0
    for index, word in enumerate(words):
        bits |= (word & _WORD_MASK) << (_WORD_BITS * index)
    return bits


def words_of_bits(bits: int) -> tuple[int, ...]:
    """Split a number into signed 64-bit words, as they travel in protocol buffers."""
    words = []
    while bits:
        word = bits & _WORD_MASK
        words.append(word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word)
        bits >>= _WORD_BITS
    return tuple(words)


def _check_ack_set(position: Position, ack_set: Sequence[int]) -> None:
    if len(ack_set) > limits.ACK_SET_WORDS_MAX:
        raise InputError(
            f"ack set of {position} has {len(ack_set)} words; "
            f"at most {limits.ACK_SET_WORDS_MAX} are allowed"
        )


class Acknowledged:
    """The acknowledgements of one subscription on one chain."""

    __slots__ = ("_batches", "_chain", "_count", "_ranges", "mark_delete")

    def __init__(self, chain: Chain, mark_delete: Position) -> None:
        self._chain = chain
        self.mark_delete = mark_delete
        self._ranges: dict[int, EntryRanges] = {}
        self._batches: dict[int, dict[int, int]] = {}
        """Per ledger and entry: the bits of the messages still pending; never 0."""
        self._count = 0
        """Entries in the ranges."""

    # --- changes ------------------------------------------------------------------------------

    def acknowledge(self, positions: Iterable[Position]) -> bool:
        """Acknowledge whole entries; return whether anything changed."""
        changed = False
        for position in positions:
            ledger_id, entry_id = position
            if position <= self.mark_delete or not self._chain.contains(position):
                continue
            ranges = self._ranges.get(ledger_id)
            if ranges is None:
                if (
                    entry_id == self.mark_delete.entry_id + 1
                    and ledger_id == self.mark_delete.ledger_id
                ):
                    # The usual case, acknowledgements in order, touches no range at all.
                    self._forget_batch(ledger_id, entry_id)
                    self.mark_delete = position
                    changed = True
                    continue
                ranges = self._ranges[ledger_id] = EntryRanges()
            if added := ranges.add(entry_id, entry_id):
                self._forget_batch(ledger_id, entry_id)
                self._count += added
                changed = True
        if changed:
            self._advance()
        return changed

    def acknowledge_batch(self, position: Position, ack_set: Sequence[int]) -> tuple[bool, bool]:
        """Keep only those messages of a batch pending whose bit is set here and was before.

        Returns:
            Whether the whole entry is acknowledged now, and whether anything changed.

        Raises:
            InputError: if the set is larger than any batch can be.
        """
        if self.is_acknowledged(position):
            return True, False
        if not self._chain.contains(position):
            return False, False
        _check_ack_set(position, ack_set)
        batches = self._batches.setdefault(position.ledger_id, {})
        before = batches.get(position.entry_id)
        pending = bits_of_words(ack_set) if before is None else before & bits_of_words(ack_set)
        if pending:
            batches[position.entry_id] = pending
            return False, pending != before
        return True, self.acknowledge((position,))

    def acknowledge_cumulative(
        self, position: Position, ack_set: Sequence[int] | None = None
    ) -> bool:
        """Acknowledge everything up to a position, of its own batch only what `ack_set` says.

        Returns:
            Whether anything changed; a position that was passed already changes nothing.

        Raises:
            InputError: if the position is above the last entry.
        """
        if position > max(self._chain.last_confirmed, self.mark_delete):
            raise InputError(
                f"cannot acknowledge up to {position}: "
                f"the last entry is {self._chain.last_confirmed}"
            )
        target = self._chain.previous_position(Position(position.ledger_id, position.entry_id + 1))
        if target <= self.mark_delete:
            return False
        changed = False
        if ack_set is not None and target == position:
            whole, changed = self.acknowledge_batch(position, ack_set)
            if not whole:
                target = self._chain.previous_position(position)
        if target > self.mark_delete:
            self._move(target)
            self._advance()
            changed = True
        return changed

    def reset(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Forget every acknowledgement and continue with `position`, wherever it lies.

        Of a batch there only those messages are pending whose bit is 1; of all if there is no set.

        Raises:
            InputError: if the set is larger than any batch can be; nothing was changed.
        """
        _check_ack_set(position, ack_set)
        end = self._chain.next_position(self._chain.last_confirmed)
        self.mark_delete = self._chain.previous_position(min(position, end))
        self._ranges.clear()
        self._batches.clear()
        self._count = 0
        if ack_set:
            self.acknowledge_batch(position, ack_set)

    def moved_to(self, position: Position, ack_set: Sequence[int] = ()) -> "Acknowledged":
        """What there would be after `reset`; this one stays as it is."""
        moved = Acknowledged(self._chain, self.mark_delete)
        moved.reset(position, ack_set)
        return moved

    def forget_trimmed(self) -> None:
        """Drop what is known of ledgers that are no longer in the chain."""
        for ledger_id in [i for i in self._ranges if not self._chain.entries_of(i)]:
            self._count -= self._ranges.pop(ledger_id).count()
        for ledger_id in [i for i in self._batches if not self._chain.entries_of(i)]:
            del self._batches[ledger_id]
        self._advance()

    def restore_range(self, ledger_id: int, first: int, last: int) -> None:
        """Put back a range that was stored; what the chain no longer holds is left out."""
        first = max(first, 0)
        if self.mark_delete.ledger_id == ledger_id:
            first = max(first, self.mark_delete.entry_id + 1)
        last = min(last, self._chain.entries_of(ledger_id) - 1)
        if first > last or ledger_id < self.mark_delete.ledger_id:
            return
        self._count += self._ranges.setdefault(ledger_id, EntryRanges()).add(first, last)
        self._advance()

    def _advance(self) -> None:
        """Move the mark over entries that are acknowledged one by one."""
        while self._ranges:
            ledger_id, entry_id = self._chain.next_position(self.mark_delete)
            ranges = self._ranges.get(ledger_id)
            if ranges is None or entry_id not in ranges:
                return
            self._move(Position(ledger_id, ranges.end_of(entry_id)))

    def _move(self, to: Position) -> None:
        before = self.mark_delete
        assert to > before, f"the mark would go from {before} back to {to}"
        self.mark_delete = to
        for ledger_id in [i for i in self._ranges if i <= to.ledger_id]:
            ranges = self._ranges[ledger_id]
            if ledger_id == to.ledger_id:
                self._count -= ranges.drop_through(to.entry_id)
            else:
                self._count -= ranges.count()
            if ledger_id < to.ledger_id or not ranges:
                del self._ranges[ledger_id]
        for ledger_id in [i for i in self._batches if i <= to.ledger_id]:
            batches = self._batches[ledger_id]
            passed: Sequence[int] = range(before.entry_id + 1, to.entry_id + 1)
            if not ledger_id == before.ledger_id == to.ledger_id or len(passed) > len(batches):
                passed = [e for e in batches if (ledger_id, e) <= to]
            for entry_id in passed:
                batches.pop(entry_id, None)
            if not batches:
                del self._batches[ledger_id]

    def _forget_batch(self, ledger_id: int, entry_id: int) -> None:
        batches = self._batches.get(ledger_id)
        if batches is not None:
            batches.pop(entry_id, None)
            if not batches:
                del self._batches[ledger_id]

    # --- questions ----------------------------------------------------------------------------

    def is_acknowledged(self, position: Position) -> bool:
        """Whether a whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        ranges = self._ranges.get(position.ledger_id)
        return ranges is not None and position.entry_id in ranges

    def is_untouched_from(self, position: Position) -> bool:
        """Whether nothing from there on is acknowledged, not even a part of a batch."""
        return position > self.mark_delete and not self._ranges and not self._batches

    def pending_bits(self, position: Position) -> tuple[int, ...] | None:
        """Which messages of a batch are pending; None if none was acknowledged by itself."""
        bits = self._batches.get(position.ledger_id, {}).get(position.entry_id)
        return None if bits is None else words_of_bits(bits)

    def next_unacknowledged(self, start: Position) -> Position:
        """The first position from `start` on that is not acknowledged; may lie past the end."""
        chain = self._chain
        position = max(chain.ceiling(start), chain.next_position(self.mark_delete))
        while (ranges := self._ranges.get(position.ledger_id)) and position.entry_id in ranges:
            end = ranges.end_of(position.entry_id)
            position = chain.next_position(Position(position.ledger_id, end))
        return position

    def pending_position(self, number: int) -> Position:
        """The entry that is pending as the `number`-th one; the last of all if fewer are."""
        position = self.mark_delete
        for ledger_id, first, last in self.ranges():
            pending = self._chain.entries_between(position, Position(ledger_id, first - 1))
            if pending >= number:
                break
            number -= pending
            position = Position(ledger_id, last)
        if number > self._chain.entries_between(position, self._chain.last_confirmed):
            return max(position, self._chain.last_confirmed)
        return self._chain.position_after(position, number)

    def backlog(self) -> int:
        """How many entries are not acknowledged."""
        chain = self._chain
        return chain.entries_between(self.mark_delete, chain.last_confirmed) - self._count

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Ledger, first and last entry of every range above the mark, ascending."""
        for ledger_id, ranges in self.ranges_by_ledger():
            for first, last in ranges:
                yield ledger_id, first, last

    def ranges_by_ledger(self) -> Iterator[tuple[int, EntryRanges]]:
        """The ranges above the mark of every ledger that has any, ascending."""
        for ledger_id in sorted(self._ranges):
            yield ledger_id, self._ranges[ledger_id]

    @property
    def has_batches(self) -> bool:
        """Whether a batch is acknowledged in part."""
        return bool(self._batches)

    def batches(self) -> Iterator[tuple[Position, tuple[int, ...]]]:
        """Every partly acknowledged batch with its pending bits, ascending."""
        for ledger_id in sorted(self._batches):
            for entry_id, bits in sorted(self._batches[ledger_id].items()):
                yield Position(ledger_id, entry_id), words_of_bits(bits)

    def validate(self) -> None:
        """Assert what must always hold."""
        for ledger_id, ranges in self._ranges.items():
            ranges.validate()
            assert ranges, "an empty set of ranges is removed"
            for first, last in ranges:
                assert self.mark_delete < Position(ledger_id, first), "ranges lie above the mark"
                assert self._chain.contains(Position(ledger_id, last)), "ranges lie in the chain"
        assert self._count == sum(ranges.count() for ranges in self._ranges.values())
        following = self._chain.next_position(self.mark_delete)
        assert not self._ranges or not self.is_acknowledged(following), "the mark is not low"
        for ledger_id, batches in self._batches.items():
            assert batches, "an empty map of batches is removed"
            for entry_id, bits in batches.items():
                assert bits > 0, "a batch without pending messages is a whole entry"
                assert not self.is_acknowledged(Position(ledger_id, entry_id))
        assert self.backlog() >= 0
