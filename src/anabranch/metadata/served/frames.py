"""Frames on a connection: length, checksum, bytes. Pure.

A frame is refused by its length before anything is kept for it.
"""

import struct
from typing import Final

from crc32c import crc32c

from anabranch import limits
from anabranch.errors import FrameTooLarge, ProtocolError

_HEADER: Final = struct.Struct(">II")


def frame(payload: bytes) -> bytes:
    """The frame around some bytes."""
    assert len(payload) <= limits.METADATA_FRAME_BYTES_MAX, "a frame that no peer would take"
    return _HEADER.pack(len(payload), crc32c(payload)) + payload


class FrameReader:
    """Cuts a stream into the bytes of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream; return what is whole.

        Raises:
            FrameTooLarge: if a frame says that it is longer than any may be.
            ProtocolError: if a checksum is wrong. Nothing after it can be understood.
        """
        self._buffer += data
        found: list[bytes] = []
        offset = 0
        while len(self._buffer) - offset >= _HEADER.size:
            length, checksum = _HEADER.unpack_from(self._buffer, offset)
            if length > limits.METADATA_FRAME_BYTES_MAX:
                raise FrameTooLarge(
                    f"a frame of {length} bytes, at most {limits.METADATA_FRAME_BYTES_MAX} are "
                    "allowed: is the peer a client of this protocol?"
                )
            end = offset + _HEADER.size + length
            if len(self._buffer) < end:
                break
            payload = bytes(self._buffer[offset + _HEADER.size : end])
            if crc32c(payload) != checksum:
                raise ProtocolError("a frame with a wrong checksum")
            found.append(payload)
            offset = end
        del self._buffer[:offset]
        return found
