"""Compact exact tables: what the rules remember of millions of messages.

Everything is kept in blocks of 4,096 sequence numbers that exist only where something happened,
so that neither a late start nor a nonsensical number costs memory. Pure.
"""

from collections.abc import Iterator
from typing import Final

from anabranch.verify.records import Place

BLOCK_BITS: Final = 12
BLOCK: Final = 1 << BLOCK_BITS
MASK: Final = BLOCK - 1
NO_PLACE: Final = -1
"""In the table of places: none seen yet. No place has this number."""
_BATCH_BITS: Final = 7
_BATCH_MASK: Final = (1 << _BATCH_BITS) - 1


def set_bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class SparseBits:
    """A set of whole numbers from 0 up: one bit each, in blocks."""

    __slots__ = ("_blocks", "count")

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self.count = 0

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        block = self._blocks.get(number >> BLOCK_BITS)
        if block is None:
            block = self._blocks[number >> BLOCK_BITS] = bytearray(BLOCK >> 3)
        index, bit = (number & MASK) >> 3, 1 << (number & 7)
        if block[index] & bit:
            return False
        block[index] |= bit
        self.count += 1
        return True

    def __contains__(self, number: int) -> bool:
        block = self._blocks.get(number >> BLOCK_BITS)
        return block is not None and bool(block[(number & MASK) >> 3] & (1 << (number & 7)))

    def block_mask(self, block: int) -> int:
        """Return the 4,096 bits of one block as a number, bit 0 for its first member."""
        return int.from_bytes(self._blocks.get(block, b""), "little")


class PlaceBits:
    """A set of places: about one bit each, whether batched, unbatched or in many small ledgers."""

    __slots__ = ("_ledgers",)

    def __init__(self) -> None:
        self._ledgers: dict[tuple[int, int, int], SparseBits] = {}

    def add(self, place: Place) -> bool:
        """Add a place; return whether it is new."""
        partition, ledger, entry, batch = place
        if batch < 0:
            name, number = (partition, ledger, batch), entry
        else:
            # An entry with its batch together, so that a small ledger does not cost a block for
            # every index in its batches.
            name = (partition, ledger, batch >> _BATCH_BITS)
            number = entry << _BATCH_BITS | batch & _BATCH_MASK
        bits = self._ledgers.get(name)
        if bits is None:
            bits = self._ledgers[name] = SparseBits()
        return bits.add(number)

    def __contains__(self, place: Place) -> bool:
        partition, ledger, entry, batch = place
        if batch < 0:
            name, number = (partition, ledger, batch), entry
        else:
            name = (partition, ledger, batch >> _BATCH_BITS)
            number = entry << _BATCH_BITS | batch & _BATCH_MASK
        bits = self._ledgers.get(name)
        return bits is not None and number in bits


class PlaceCodes:
    """Places as 64-bit numbers: 22 bits of ledger (as first seen), 25 of entry, 16 of batch."""

    _ENTRIES: Final = 1 << 25
    _BATCHES: Final = 1 << 16
    _LEDGERS: Final = 1 << 22

    def __init__(self) -> None:
        self._ledgers: dict[tuple[int, int], int] = {}
        self._ledger_list: list[tuple[int, int]] = []
        self._large: dict[Place, int] = {}
        self._large_list: list[Place] = []

    def encode(self, place: Place) -> int:
        """Return the number of a place; equal places have equal numbers."""
        name = place.partition, place.ledger
        ledger = self._ledgers.get(name)
        if ledger is None:
            ledger = self._ledgers[name] = len(self._ledger_list)
            self._ledger_list.append(name)
        batch = place.batch + 1
        if (
            ledger < self._LEDGERS
            and 0 <= place.entry < self._ENTRIES
            and 0 <= batch < self._BATCHES
        ):
            return (ledger * self._ENTRIES + place.entry) * self._BATCHES + batch
        if place not in self._large:
            self._large[place] = len(self._large_list)
            self._large_list.append(place)
        return NO_PLACE - 1 - self._large[place]

    def decode(self, code: int) -> Place:
        """Return the place of a number."""
        if code < 0:
            return self._large_list[NO_PLACE - 1 - code]
        rest, batch = divmod(code, self._BATCHES)
        ledger, entry = divmod(rest, self._ENTRIES)
        return Place(*self._ledger_list[ledger], entry, batch - 1)
