"""Compact exact tables: what the rules remember of millions of messages.

Pure. Everything is kept in blocks of 4,096 sequence numbers that exist only where something
happened, so that neither a late start nor a nonsensical number costs memory.
"""

from array import array
from collections.abc import Iterator
from typing import Final

from anabranch.errors import FormatError
from anabranch.limits import SEND_ATTEMPTS_MAX
from anabranch.verify.records import Place

_BLOCK_BITS: Final = 12
_BLOCK: Final = 1 << _BLOCK_BITS
_MASK: Final = _BLOCK - 1
NO_PLACE: Final = -1
"""In the table of places: none seen yet. No place has this number."""


class SparseBits:
    """A set of whole numbers from 0 up: one bit each, in blocks."""

    __slots__ = ("_blocks", "count")

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self.count = 0

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        block = self._blocks.get(number >> _BLOCK_BITS)
        if block is None:
            block = self._blocks[number >> _BLOCK_BITS] = bytearray(_BLOCK >> 3)
        index, bit = (number & _MASK) >> 3, 1 << (number & 7)
        if block[index] & bit:
            return False
        block[index] |= bit
        self.count += 1
        return True

    def __contains__(self, number: int) -> bool:
        block = self._blocks.get(number >> _BLOCK_BITS)
        return block is not None and bool(block[(number & _MASK) >> 3] & (1 << (number & 7)))


assert array("I").itemsize >= 4, "a checksum must fit one unsigned int"


class SendBlock:
    """What is known of 4,096 neighbouring sends of one producer."""

    __slots__ = ("begun", "crc", "ended", "failed", "ok", "places", "tried")

    def __init__(self) -> None:
        self.tried = bytearray(_BLOCK)
        self.ok = bytearray(_BLOCK)
        self.failed = bytearray(_BLOCK)
        self.crc = array("I", [0]) * _BLOCK
        self.begun = array("d", [0.0]) * _BLOCK
        self.ended = array("d", [0.0]) * _BLOCK
        self.places = array("q", [NO_PLACE]) * _BLOCK

    def is_unknown(self, index: int) -> bool:
        """Whether an attempt of this send has no certain outcome."""
        return self.tried[index] > self.ok[index] + self.failed[index]


class SendLine:
    """The sends of one producer in one epoch, by sequence number."""

    __slots__ = ("blocks", "epoch", "producer")

    def __init__(self, producer: int, epoch: int) -> None:
        self.producer = producer
        self.epoch = epoch
        self.blocks: dict[int, SendBlock] = {}

    def find(self, seq: int) -> tuple[SendBlock, int] | None:
        """Return the block and index of a send, None where nothing was sent nearby."""
        block = self.blocks.get(seq >> _BLOCK_BITS)
        return None if block is None else (block, seq & _MASK)

    def begin(self, seq: int, crc: int, t: float) -> None:
        """Count an attempt.

        Raises:
            FormatError: if it is one attempt too many, or of another payload.
        """
        block = self.blocks.get(seq >> _BLOCK_BITS)
        if block is None:
            block = self.blocks[seq >> _BLOCK_BITS] = SendBlock()
        index = seq & _MASK
        if not block.tried[index]:
            block.begun[index] = t
            block.crc[index] = crc
        elif block.crc[index] != crc:
            raise FormatError(f"seq {seq} of producer {self.producer} was sent with two payloads")
        elif block.tried[index] == SEND_ATTEMPTS_MAX:
            raise FormatError(f"seq {seq} of producer {self.producer} was sent too many times")
        block.tried[index] += 1

    def each(self) -> Iterator[tuple[SendBlock, int, int]]:
        """Yield block, index and seq of every attempted send, in the order of seq."""
        for number in sorted(self.blocks):
            block = self.blocks[number]
            for index, tried in enumerate(block.tried):
                if tried:
                    yield block, index, number << _BLOCK_BITS | index


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
