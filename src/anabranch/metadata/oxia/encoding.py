"""Requests of many puts, as bytes: the one message that whole trees are written with. Pure.

Making an object for each field of each put costs more than all else that a restore does.
"""

from functools import lru_cache
from typing import Final

from anabranch.generated import oxia_client_pb2 as pb

_NUMBERS_KEPT: Final = 4096
_ABSENT: Final = pb.PutRequest(expected_version_id=-1).SerializeToString()
_LENGTHS: Final = tuple(
    bytes((length,)) if length < 0x80 else bytes((length & 0x7F | 0x80, length >> 7))
    for length in range(0x4000)
)
"""How lengths are written, as far as two bytes go."""


def _length(number: int) -> bytes:
    if number < len(_LENGTHS):
        return _LENGTHS[number]
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)


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
        indexes: list[pb.SecondaryIndex],
    ) -> None:
        """One more, with its own number in Oxia, unless the server is to find one."""
        name = key.encode()
        size, value_size = _length(len(name)), _length(len(value))
        rest = _numbers(version, changes)
        if indexes:
            rest += pb.PutRequest(secondary_indexes=indexes).SerializeToString()
        length = 2 + len(size) + len(name) + len(value_size) + len(value) + len(rest)
        self.keys.append(key)
        self._pieces += (
            *(b"\x12", _length(length)),
            *(b"\x0a", size, name, b"\x12", value_size, value, rest),
        )

    def SerializeToString(self) -> bytes:  # noqa: N802 - as messages have it
        """The bytes of the request."""
        return b"".join(self._pieces)
