"""Schemas as people and tools write them: names of types, and both halves of one in an object.

On the wire a type is a number, and a schema of keys and values is two definitions one after the
other, each behind its length. The REST interface names types as Pulsar's Java client does, and has
such a schema as an object of `key` and `value`, with an empty text for a half that needs no
definition.
"""

import json
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from anabranch.errors import InputError

TYPE_NAMES: Final[Mapping[int, str]] = MappingProxyType({
    0: "NONE", 1: "STRING", 2: "JSON", 3: "PROTOBUF", 4: "AVRO", 5: "BOOLEAN", 6: "INT8",
    7: "INT16", 8: "INT32", 9: "INT64", 10: "FLOAT", 11: "DOUBLE", 12: "DATE", 13: "TIME",
    14: "TIMESTAMP", 15: "KEY_VALUE", 16: "INSTANT", 17: "LOCAL_DATE", 18: "LOCAL_TIME",
    19: "LOCAL_DATE_TIME", 20: "PROTOBUF_NATIVE", 21: "AUTO_CONSUME", 22: "EXTERNAL",
})  # fmt: skip
TYPE_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {name: number for number, name in TYPE_NAMES.items()}
)
_HALVES: Final = ("key", "value")


def halves_of(data: bytes) -> tuple[bytes, bytes]:
    """The definitions of key and value in a schema of both.

    Raises:
        InputError: if it is cut off.
    """
    found, rest = [], data
    for which in _HALVES:
        length = max(struct.unpack_from(">i", rest)[0], 0) if len(rest) >= 4 else -1
        if length < 0 or len(rest) < 4 + length:
            raise InputError(f"the schema of a {which} is cut off")
        found.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    return found[0], found[1]


def packed(text: str) -> bytes:
    """A schema of keys and values that was written as an object, as it is on the wire.

    Raises:
        InputError: if it is no object of both.
    """
    try:
        both = json.loads(text)
        halves = [_definition(both[which]) for which in _HALVES]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError("a KEY_VALUE schema has to be an object of key and value") from None
    return b"".join(struct.pack(">i", len(half)) + half for half in halves)


def _definition(half: Any) -> bytes:
    return b"" if half == "" else _written(half).encode()


def unpacked(data: bytes) -> str:
    """The same in the other direction.

    Raises:
        InputError: if it is cut off, or a half is no JSON.
    """
    both: dict[str, Any] = {}
    for which, half in zip(_HALVES, halves_of(data), strict=True):
        try:
            both[which] = json.loads(half) if half else ""
        except (ValueError, RecursionError):
            raise InputError(f"the schema of a {which} is no JSON") from None
    return _written(both)


def _written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
