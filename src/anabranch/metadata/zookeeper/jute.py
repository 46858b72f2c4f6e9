"""ZooKeeper's encoding of values: numbers in network order, lengths before bytes. Pure.

A reader never looks behind the bytes it was given, and never allocates by a length that it has not
compared with them.
"""

import struct
from collections.abc import Iterable
from typing import Final

from anabranch.errors import ProtocolError

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
NOTHING: Final = _INT.pack(-1)


def integer(number: int) -> bytes:
    """Four bytes."""
    return _INT.pack(number)


def long(number: int) -> bytes:
    """Eight bytes."""
    return _LONG.pack(number)


def boolean(truth: bool) -> bytes:
    """One byte."""
    return b"\x01" if truth else b"\x00"


def buffer(data: bytes) -> bytes:
    """Bytes behind their length."""
    return _INT.pack(len(data)) + data


def text(words: str) -> bytes:
    """Text behind its length."""
    data = words.encode()
    return _INT.pack(len(data)) + data


def texts(words: Iterable[str]) -> bytes:
    """Several texts behind their number."""
    encoded = [text(word) for word in words]
    return _INT.pack(len(encoded)) + b"".join(encoded)


class Reader:
    """Takes values from the front of some bytes."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self.data) - self.at

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Several numbers at once.

        Raises:
            ProtocolError: if there are not enough bytes, as in every method here.
        """
        try:
            found = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise ProtocolError(f"a reply ends at byte {len(self.data)}, within numbers") from None
        self.at += layout.size
        return found

    def integer(self) -> int:
        """Four bytes."""
        return self.numbers(_INT)[0]

    def long(self) -> int:
        """Eight bytes."""
        return self.numbers(_LONG)[0]

    def boolean(self) -> bool:
        """One byte."""
        if not self.left:
            raise ProtocolError("a reply ends within a flag")
        self.at += 1
        return self.data[self.at - 1] != 0

    def buffer(self) -> bytes:
        """Bytes behind their length; a missing value is read as an empty one."""
        (length,) = self.numbers(_INT)
        if length == -1:
            return b""
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise ProtocolError(f"a reply claims {length} bytes where {self.left} are left")
        found = self.data[self.at : end]
        self.at = end
        return found

    def text(self) -> str:
        """Text behind its length."""
        found = self.buffer()
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"a reply has a text that is none: {found[:40]!r}") from None

    def count(self, *, smallest_bytes: int = 4) -> int:
        """How many values follow, each of which takes at least so many bytes."""
        number = self.integer()
        if number == -1:
            return 0
        if number < 0 or number * smallest_bytes > self.left:
            raise ProtocolError(f"a reply claims {number} values in {self.left} bytes")
        return number

    def texts(self) -> list[str]:
        """Several texts behind their number."""
        found: list[str] = []
        number, data, at = self.count(), self.data, self.at
        try:
            for _ in range(number):
                (length,) = _INT.unpack_from(data, at)
                start, at = at + 4, at + 4 + length
                if length < 0 or at > len(data):
                    raise ProtocolError(f"a reply claims a text of {length} bytes")
                found.append(data[start:at].decode())
        except (struct.error, UnicodeDecodeError):
            raise ProtocolError("a reply has a list of texts that is none") from None
        self.at = at
        return found

    def end(self) -> None:
        """Refuse bytes behind what was expected."""
        if self.left:
            raise ProtocolError(f"a reply has {self.left} bytes too many")
