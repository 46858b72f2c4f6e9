"""Keys and their hashes, and which consumer of a Key_Shared subscription owns which. Pure.

Two ways to divide the hashes: points on a ring, so that who comes or goes moves as few keys as
possible; or the ranges that the consumers ask for themselves.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from bisect import bisect_left, insort
from functools import lru_cache
from typing import NamedTuple

from anabranch.broker.consumer import Consumer, KeySharing
from anabranch.broker.limits import KEY_HASHES, KEY_POINTS_PER_CONSUMER
from anabranch.broker.refusals import Refused
from anabranch.wire import EntryMetadata, ServerError

_MASK = 0xFFFFFFFF


@lru_cache(maxsize=16_384)
def murmur3(data: bytes) -> int:
    """MurmurHash3 for 32 bits with seed 0, without its sign, as Pulsar hashes keys."""
    value = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value ^= _scrambled(int.from_bytes(data[at : at + 4], "little"))
        value = ((value << 13) | (value >> 19)) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    value ^= _scrambled(int.from_bytes(data[whole:], "little")) if len(data) > whole else 0
    value ^= len(data)
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK
    return (value ^ (value >> 16)) & 0x7FFFFFFF


def _scrambled(word: int) -> int:
    word = (word * 0xCC9E2D51) & _MASK
    return (((word << 15) | (word >> 17)) * 0x1B873593) & _MASK


def hash_of_key(key: bytes) -> int:
    """Where a key is among the hashes; 0 is nobody's, as in Pulsar."""
    return murmur3(key) % KEY_HASHES or 1


def hash_of_entry(metadata: EntryMetadata | None) -> int:
    """Where an entry is among the hashes: by its key, or by itself if it has none.

    A batch is as its first message; producers make batches of one key where that matters.
    """
    if metadata is None:
        return hash_of_key(b"NONE_KEY")  # unreadable: any consumer will say so
    key = metadata.ordering_key
    if key is None:
        text = metadata.partition_key
        if text is None:
            return hash_of_key(f"{metadata.producer_name}-{metadata.sequence_id}".encode())
        key = _decoded(text) if metadata.partition_key_b64_encoded else text.encode()
    return hash_of_key(key)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return text.encode()


class AutoSplit:
    """Hashes divided by points on a ring."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: list[Consumer] = []
        self._members: list[tuple[str, int, Consumer]] = []

    def add(self, consumer: Consumer, sharing: KeySharing) -> None:
        """Give a consumer its points."""
        del sharing
        taken = {number for name, number, _ in self._members if name == consumer.name}
        number = next(each for each in range(len(taken) + 1) if each not in taken)
        insort(self._members, (consumer.name, number, consumer), key=lambda each: each[:2])
        self._divide()

    def remove(self, consumer: Consumer) -> None:
        """Give its points to their neighbours."""
        self._members = [each for each in self._members if each[2] is not consumer]
        self._divide()

    def _divide(self) -> None:
        points: dict[int, Consumer] = {}
        for name, number, consumer in self._members:
            for index in range(KEY_POINTS_PER_CONSUMER):
                point = murmur3(f"{name}\0{number}\0{index}".encode()) % KEY_HASHES
                points.setdefault(point, consumer)
        self._points = sorted(points)
        self._owners = [points[point] for point in self._points]

    def owner(self, key_hash: int) -> Consumer | None:
        """Whoever has the next point."""
        if not self._points:
            return None
        at = bisect_left(self._points, key_hash)
        return self._owners[at if at < len(self._owners) else 0]


class _Range(NamedTuple):
    start: int
    end: int
    consumer: Consumer


class Sticky:
    """Hashes divided as the consumers ask; what nobody asks for waits."""

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def add(self, consumer: Consumer, sharing: KeySharing) -> None:
        """Give a consumer its ranges.

        Raises:
            Refused: if there is none, or one is another's; nothing changed.
        """
        if not sharing.ranges:
            raise _unassignable("Ranges for KeyShared policy must not be empty.")
        added: list[_Range] = []
        for start, end in sharing.ranges:
            if not 0 <= start <= end < KEY_HASHES:
                raise _unassignable(f"[{start}, {end}] is no range within [0, {KEY_HASHES - 1}]")
            for other in (*self._ranges, *added):
                if start <= other.end and other.start <= end:
                    raise _unassignable(
                        f"Range [{start}, {end}] conflicts with that of {other.consumer.name}"
                    )
            added.append(_Range(start, end, consumer))
        self._ranges = sorted([*self._ranges, *added], key=lambda each: each.start)

    def remove(self, consumer: Consumer) -> None:
        """Nobody owns its ranges until another asks for them."""
        self._ranges = [each for each in self._ranges if each.consumer is not consumer]

    def owner(self, key_hash: int) -> Consumer | None:
        """Whoever asked for it, if anybody."""
        at = bisect_left(self._ranges, key_hash, key=lambda each: each.end)
        if at < len(self._ranges) and self._ranges[at].start <= key_hash:
            return self._ranges[at].consumer
        return None


def _unassignable(text: str) -> Refused:
    return Refused(ServerError.ConsumerAssignError, text)


Division = AutoSplit | Sticky
