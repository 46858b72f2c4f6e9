"""Requests of many puts, as bytes: the one message that whole trees are written with. Pure.

Making an object for each field of each put costs more than all else that a restore does.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from anabranch.generated import oxia_client_pb2 as pb

_NUMBERS_KEPT: Final = 4096
_ABSENT: Final = pb.PutRequest(expected_version_id=-1).SerializeToString()
_KNOWN_LENGTHS: Final = 0x4000


def _lengths(tag: bytes) -> tuple[bytes, ...]:
    """A field's tag and length, for lengths that take at most two bytes."""
    return tuple(tag + _varint(length) for length in range(_KNOWN_LENGTHS))


def _varint(number: int) -> bytes:
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)


_FIRST: Final = _lengths(b"\x0a")
"""Of the key of a put."""
_SECOND: Final = _lengths(b"\x12")
"""Of the value of a put, and of a put in its request."""


def _begin(known: tuple[bytes, ...], length: int) -> bytes:
    """The bytes before a field of that length."""
    return known[length] if length < _KNOWN_LENGTHS else known[0][:1] + _varint(length)


@lru_cache(_NUMBERS_KEPT)
def _numbers(version: int | None, changes: int) -> bytes:
    overrides = pb.PutRequest(override_version_id=version, override_modifications_count=changes)
    return _ABSENT + overrides.SerializeToString()


class Puts:
    """Puts of keys that must not be there yet, on one shard; written as a `WriteRequest` is."""

    __slots__ = ("_pieces", "keys", "shard")

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.keys: list[str] = []
        self._pieces = [pb.WriteRequest(shard=shard).SerializeToString()]

    def add(
        self,
        key: str,
        value: bytes,
        version: int | None,
        changes: int,
        indexes: Sequence[pb.SecondaryIndex],
    ) -> None:
        """One more, with its own number in Oxia, unless the server is to find one."""
        name, rest = key.encode(), _numbers(version, changes)
        if indexes:
            rest += pb.PutRequest(secondary_indexes=indexes).SerializeToString()
        before_name, before_value = _begin(_FIRST, len(name)), _begin(_SECOND, len(value))
        length = len(before_name) + len(name) + len(before_value) + len(value) + len(rest)
        self.keys.append(key)
        # As pieces, so that a value is copied once, with all others.
        self._pieces += (_begin(_SECOND, length), before_name, name, before_value, value, rest)

    def SerializeToString(self) -> bytes:  # noqa: N802 - as messages have it
        """The bytes of the request."""
        return b"".join(self._pieces)
