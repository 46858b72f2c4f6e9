"""What is known of every send: exact tables in blocks, the idle ones of which wait on disk."""

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Final

from anabranch.errors import FormatError
from anabranch.verify.limits import SEND_ATTEMPTS_MAX, SEND_BLOCKS_MAX
from anabranch.verify.records import Outcome
from anabranch.verify.spill import Spill
from anabranch.verify.tables import BLOCK, BLOCK_BITS, MASK, NO_PLACE, set_bits

_BIT_BYTES: Final = BLOCK >> 3

assert array("I").itemsize == 4, "a checksum must fit one unsigned int"


class SendBlock:
    """What is known of 4,096 neighbouring sends of one producer."""

    __slots__ = (
        "begun", "crc", "ended", "failed", "is_used", "ok", "places", "row", "since", "tried",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tried = bytearray(_BIT_BYTES)
        self.ok = bytearray(_BIT_BYTES)
        self.failed = bytearray(_BIT_BYTES)
        self.crc = array("I", bytes(4 * BLOCK))
        self.begun = array("d", bytes(8 * BLOCK))
        self.ended = array("d", bytes(8 * BLOCK))
        self.places = array("q", [NO_PLACE]) * BLOCK
        self.since = float("inf")
        """When the first of these sends was begun."""
        self.is_used = True
        self.row: int | None = None

    def to_bytes(self) -> bytes:
        """Return the tables as bytes, for this process to read back."""
        tables = (self.crc, self.begun, self.ended, self.places)
        return b"".join((self.tried, self.ok, self.failed, *(t.tobytes() for t in tables)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "SendBlock":
        """Read the tables back."""
        block, at = cls(), 3 * _BIT_BYTES
        block.tried, block.ok, block.failed = (
            bytearray(data[index * _BIT_BYTES : (index + 1) * _BIT_BYTES]) for index in range(3)
        )
        for name in ("crc", "begun", "ended", "places"):
            table = getattr(block, name)
            size = table.itemsize * BLOCK
            setattr(block, name, array(table.typecode, data[at : at + size]))
            at += size
        return block


class BlockPool:
    """Keeps as many blocks in memory as are allowed; those not used for longest go to disk."""

    def __init__(self, spill: Spill, *, blocks_max: int = SEND_BLOCKS_MAX) -> None:
        self._spill = spill
        self._blocks_max = blocks_max
        self._resident: deque[tuple[SendLine, int]] = deque()

    def admit(self, line: "SendLine", number: int) -> None:
        """Count a block that is in memory now."""
        self._resident.append((line, number))
        while len(self._resident) > self._blocks_max:
            line, number = self._resident.popleft()
            block = line.blocks[number]
            assert isinstance(block, SendBlock), "resident blocks are in memory"
            if block.is_used:
                block.is_used = False
                self._resident.append((line, number))
            else:
                row = self._spill.put_blob(block.to_bytes(), block.row)
                line.blocks[number] = (row, block.since)

    def load(self, row: int, since: float) -> SendBlock:
        """Bring a block back."""
        block = SendBlock.from_bytes(self._spill.get_blob(row))
        block.row, block.since = row, since
        return block


class SendLine:
    """The sends of one producer in one epoch, by sequence number."""

    __slots__ = ("_pool", "_several", "blocks", "epoch", "producer")

    def __init__(self, producer: int, epoch: int, pool: BlockPool) -> None:
        self.producer = producer
        self.epoch = epoch
        self.blocks: dict[int, SendBlock | tuple[int, float]] = {}
        """In memory, or its row in the spill and its `since`."""
        self._pool = pool
        self._several: dict[int, dict[int, list[int]]] = {}
        """By block and index, where tried more than once: attempts, of these ok, these failed."""

    def block(self, number: int) -> SendBlock | None:
        """Return a block, from disk if it is there."""
        block = self.blocks.get(number)
        if block is None:
            return None
        if type(block) is tuple:
            block = self.blocks[number] = self._pool.load(*block)
            self._pool.admit(self, number)
        assert isinstance(block, SendBlock), "a block is here or on disk"
        block.is_used = True
        return block

    def find(self, seq: int) -> tuple[SendBlock, int] | None:
        """Return the block and index of a send, None if there was none."""
        block = self.block(seq >> BLOCK_BITS)
        index = seq & MASK
        if block is None or not block.tried[index >> 3] & 1 << (index & 7):
            return None
        return block, index

    def begin(self, seq: int, crc: int, t: float) -> None:
        """Count an attempt.

        Raises:
            FormatError: if it is one attempt too many, or of another payload.
        """
        number, index = seq >> BLOCK_BITS, seq & MASK
        block = self.block(number)
        if block is None:
            block = self.blocks[number] = SendBlock()
            self._pool.admit(self, number)
        byte, bit = index >> 3, 1 << (index & 7)
        if not block.tried[byte] & bit:
            block.tried[byte] |= bit
            block.begun[index] = t
            block.crc[index] = crc
            block.since = min(block.since, t)
            return
        if block.crc[index] != crc:
            raise FormatError(f"seq {seq} of producer {self.producer} was sent with two payloads")
        ok, failed = bool(block.ok[byte] & bit), bool(block.failed[byte] & bit)
        several = self._several.setdefault(number, {})
        counts = several.setdefault(index, [1, int(ok), int(failed)])
        if counts[0] == SEND_ATTEMPTS_MAX:
            raise FormatError(f"seq {seq} of producer {self.producer} was sent too many times")
        counts[0] += 1

    def settle(self, seq: int, outcome: Outcome, t: float) -> bool:
        """Take in the outcome of an attempt; False if none is open."""
        found = self.find(seq)
        if found is None or not self.is_unknown(seq, *found):
            return False
        block, index = found
        byte, bit = index >> 3, 1 << (index & 7)
        block.ended[index] = t
        if outcome is Outcome.OK:
            block.ok[byte] |= bit
        elif outcome is Outcome.FAIL:
            block.failed[byte] |= bit
        counts = self._several.get(seq >> BLOCK_BITS, {}).get(index)
        if counts is not None:
            counts[1] += outcome is Outcome.OK
            counts[2] += outcome is Outcome.FAIL
        return True

    def is_unknown(self, seq: int, block: SendBlock, index: int) -> bool:
        """Whether an attempt of this send has no certain outcome."""
        several = self._several.get(seq >> BLOCK_BITS)
        if several is not None and (counts := several.get(index)) is not None:
            return counts[0] > counts[1] + counts[2]
        return not (block.ok[index >> 3] | block.failed[index >> 3]) & 1 << (index & 7)

    def each_block(self) -> Iterator[tuple[int, SendBlock]]:
        """Yield the number and content of every block, in the order of seq."""
        for number in sorted(self.blocks):
            block = self.block(number)
            assert block is not None, "blocks are never dropped"
            yield number, block

    def unknown_mask(self, number: int, block: SendBlock) -> int:
        """Which sends of a block have an attempt without a certain outcome, as bits."""
        mask = mask_of(block.tried) & ~(mask_of(block.ok) | mask_of(block.failed))
        for index, counts in self._several.get(number, {}).items():
            bit = 1 << index
            mask = mask | bit if counts[0] > counts[1] + counts[2] else mask & ~bit
        return mask


def mask_of(bits: bytearray) -> int:
    """Return a block's bits as a number, bit 0 for its first send."""
    return int.from_bytes(bits, "little")


def begun_since(block: SendBlock, since: float, mask: int) -> int:
    """Return which of the sends in a mask were begun at that time or later."""
    if block.since >= since:
        return mask
    return sum(1 << index for index in set_bits(mask) if block.begun[index] >= since)
