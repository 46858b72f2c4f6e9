"""Reading and writing the fields that the store's binary formats share. Pure."""

import struct
from typing import Any, Final

from anabranch.errors import FormatError
from anabranch.metadata.store import IndexKey

_TEXT: Final = struct.Struct(">H")
_BYTES: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")


class FieldReader:
    """Takes field after field from some bytes.

    Every method raises `FormatError` if the bytes end too early or are no text.
    """

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self.offset = offset

    @property
    def at_end(self) -> bool:
        """Whether everything was taken."""
        return self.offset == len(self._data)

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The numbers of a fixed layout."""
        try:
            found = layout.unpack_from(self._data, self.offset)
        except struct.error:
            raise FormatError(f"ends at byte {len(self._data)}, within a field") from None
        self.offset += layout.size
        return found

    def take(self, length: int) -> bytes:
        """Bytes of a known length."""
        end = self.offset + length
        if end > len(self._data):
            raise FormatError(f"ends at byte {len(self._data)}, within a field")
        found = self._data[self.offset : end]
        self.offset = end
        return found

    def text(self) -> str:
        """A short text with its length before it."""
        (length,) = self.numbers(_TEXT)
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"holds no text before byte {self.offset}: {error}") from None

    def bytes(self) -> bytes:
        """Bytes with their length before them."""
        (length,) = self.numbers(_BYTES)
        return self.take(length)

    def indexes(self) -> tuple[IndexKey, ...]:
        """Secondary index keys with their count before them."""
        (count,) = self.numbers(_COUNT)
        return tuple(IndexKey(self.text(), self.text()) for _ in range(count))


def text_field(text: str) -> bytes:
    """A text as `FieldReader.text` reads it."""
    encoded = text.encode()
    return _TEXT.pack(len(encoded)) + encoded


def bytes_field(value: bytes) -> bytes:
    """Bytes as `FieldReader.bytes` reads them."""
    return _BYTES.pack(len(value)) + value


def indexes_field(indexes: tuple[IndexKey, ...]) -> bytes:
    """Secondary index keys as `FieldReader.indexes` reads them."""
    parts = [_COUNT.pack(len(indexes))]
    for entry in indexes:
        parts += (text_field(entry.index), text_field(entry.key))
    return b"".join(parts)
