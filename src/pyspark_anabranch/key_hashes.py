"""The hash of many keys at once: where Key_Shared subscriptions and partitions put them. Pure."""

from typing import Final

import numpy as np

from pyspark_anabranch.arrays import Int32s, Int64s, Octets

KEY_HASHES: Final = 65_536
_C1, _C2, _ADD = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_WORD: Final = 4


def key_hashes(view: Octets, starts: Int64s, sizes: Int64s) -> Int32s:
    """Hash keys that lie at these places as Pulsar does: 1 to 65535, of 0 to 65535 made not 0.

    Keys of one length are hashed together.
    """
    hashes = np.zeros(len(starts), np.int32)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        keys = view[starts[rows][:, None] + np.arange(size)]
        found = (_murmur3(keys, size) & np.uint32(0x7FFFFFFF)) % np.uint32(KEY_HASHES)
        hashes[rows] = np.maximum(found, 1).astype(np.int32)
    return hashes


def _murmur3(keys: Octets, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    count = len(keys)
    words = -(-size // _WORD)
    padded = np.zeros((count, words * _WORD), np.uint8)
    padded[:, :size] = keys
    table = padded.view("<u4").reshape(count, words).astype(np.uint32)
    value = np.zeros(count, np.uint32)
    for index in range(words):
        word = _rotated(table[:, index] * _C1, 15) * _C2
        value ^= word
        if (index + 1) * _WORD <= size:
            value = _rotated(value, 13) * np.uint32(5) + _ADD
    value ^= np.uint32(size)
    value = (value ^ (value >> np.uint32(16))) * _M1
    value = (value ^ (value >> np.uint32(13))) * _M2
    return value ^ (value >> np.uint32(16))


def _rotated(
    value: np.ndarray[tuple[int], np.dtype[np.uint32]], bits: int
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))
