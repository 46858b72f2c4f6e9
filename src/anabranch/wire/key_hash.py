"""How Pulsar hashes keys: brokers and clients alike. Pure."""

from functools import lru_cache

_MASK = 0xFFFFFFFF


_CACHED_BYTES_MAX = 1024
"""Longer keys are hashed each time: remembered, they would take more than they save."""


def murmur3(data: bytes) -> int:
    """MurmurHash3 for 32 bits with seed 0, without its sign, as Pulsar hashes keys."""
    return _cached(data) if len(data) <= _CACHED_BYTES_MAX else _hashed(data)


def _hashed(data: bytes) -> int:
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


_cached = lru_cache(maxsize=16_384)(_hashed)


def java_string_hash(text: str) -> int:
    """What Java's `String.hashCode` says, without its sign."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (value * 31 + int.from_bytes(data[at : at + 2], "big")) & _MASK
    return value & 0x7FFFFFFF
