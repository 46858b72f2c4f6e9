"""Keys and their hashes, and which consumer of a Key_Shared subscription owns which. Pure.

Two ways to divide the hashes: points on a ring, so that who comes or goes moves as few keys as
possible; or the ranges that the consumers ask for themselves.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from bisect import bisect_left, insort
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from anabranch.broker.consumer import Consumer, KeySharing
from anabranch.broker.limits import HASHED_BYTES_MAX, KEY_HASHES, KEY_POINTS_PER_CONSUMER
from anabranch.broker.refusals import Refused
from anabranch.wire import EntryMetadata, ServerError
from anabranch.wire.key_hash import murmur3 as hash_of_bytes


def murmur3(data: bytes) -> int:
    """See `wire.key_hash.murmur3`; of what is too long to be anybody's key a digest is hashed."""
    return hash_of_bytes(data if len(data) <= HASHED_BYTES_MAX else sha256(data).digest())


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
        for start, end in sharing.ranges:
            if not 0 <= start <= end < KEY_HASHES:
                raise _unassignable(f"[{start}, {end}] is no range within [0, {KEY_HASHES - 1}]")
        added = [_Range(start, end, consumer) for start, end in sharing.ranges]
        ranges = sorted([*self._ranges, *added], key=lambda each: each.start)
        for before, after in pairwise(ranges):
            if after.start <= before.end:
                raise _unassignable(
                    f"Range [{after.start}, {after.end}] of {after.consumer.name} conflicts with "
                    f"[{before.start}, {before.end}] of {before.consumer.name}"
                )
        self._ranges = ranges

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
