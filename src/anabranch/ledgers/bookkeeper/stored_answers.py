"""Answers to adds that went well, found by their form and not parsed. Pure.

answer := length u32 | 0a length | 08 03 10 02 18 | number | 10 00 | aa 06 length | 08 00 | ids

They are most of what a bookie sends, and one read of a socket brings many, mostly of one ledger:
such answers differ in nothing but the request's number and the entry's. What looks otherwise in any
way is left to `frames.parse_response`.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from anabranch.ledgers.bookkeeper.frames import LENGTH_BYTES

_HEADER_TAG: Final = 0x0A
_ADD_HEADER: Final = b"\x08\x03\x10\x02\x18"
_STORED: Final = b"\x10\x00\xaa\x06"
_ADD_STATUS_OK: Final = b"\x08\x00"
_HEADER_AT: Final = LENGTH_BYTES + 2
_DIGITS_AT: Final = _HEADER_AT + len(_ADD_HEADER)
_STATUS_BYTES: Final = len(_STORED) + 1 + len(_ADD_STATUS_OK)
_unpack_length: Final = struct.Struct(">I").unpack_from


def stored_digits(data: bytes, start: int, end: int) -> bytes:
    """The number of the request, if this is the usual answer to an add that went well; else empty.

    Written as every bookie writes it: header, status, then the part about the add, whose own
    status comes first. The number is as it travels, with whatever else the header has behind it:
    only who finds a request by it knows that it is one.
    """
    if not data.startswith(_ADD_HEADER, start + 2) or data[start] != _HEADER_TAG:
        return b""
    header_end = start + 2 + data[start + 1]
    status_end = header_end + _STATUS_BYTES
    if (
        status_end > end
        or not data.startswith(_STORED, header_end)
        or not data.startswith(_ADD_STATUS_OK, status_end - 2)
        or data[status_end - 3] != end - status_end + 2  # nothing follows the part about the add
    ):
        return b""
    return data[start + 2 + len(_ADD_HEADER) : header_end]


def stored_run(data: bytes, at: int) -> tuple[Sequence[bytes], int]:
    """The numbers of such answers that follow each other from some place on, and where they end.

    All of them are frames of one length. None if the first frame is something else, or not there
    as a whole.
    """
    if not data.startswith(_ADD_HEADER, at + _HEADER_AT):
        return (), at
    start = at + LENGTH_BYTES
    behind: int = start + _unpack_length(data, at)[0]
    digits = stored_digits(data, start, behind) if behind <= len(data) else b""
    if not digits:
        return (), at
    lead = data[at : at + _DIGITS_AT]
    if not data.startswith(lead, behind):
        return (digits,), behind
    status_at = at + _DIGITS_AT + len(digits)
    status = data[status_at : status_at + _STATUS_BYTES]
    size = behind - at
    alike = memoryview(data)[at : at + (len(data) - at) // size * size]
    numbers: list[bytes] = []
    for its_lead, its_digits, its_status in _form(len(digits), size).iter_unpack(alike):
        if its_lead != lead or its_status != status:
            break
        numbers.append(its_digits)
    return numbers, at + len(numbers) * size


@lru_cache(maxsize=64)
def _form(digit_count: int, size: int) -> struct.Struct:
    """How to take a frame apart: before the number, the number, and the statuses behind it."""
    rest = size - _DIGITS_AT - digit_count - _STATUS_BYTES
    return struct.Struct(f"{_DIGITS_AT}s{digit_count}s{_STATUS_BYTES}s{rest}x")
