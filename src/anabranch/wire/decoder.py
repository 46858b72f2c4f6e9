"""From the bytes of a connection to its commands: framing, and who parses what.

The payload of SEND and MESSAGE is never copied if its frame arrived in one piece, and once if it
did not. What a peer declares is checked before anything is kept for it.
"""

from struct import Struct
from typing import Final

from anabranch import limits
from anabranch.errors import FrameTooLarge, ProtocolError
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.wire.commands import Command
from anabranch.wire.fast_parse import (
    Bytes,
    Unusual,
    parse_ack,
    parse_flow,
    parse_message,
    parse_send,
    parse_send_receipt,
    read_long,
)
from anabranch.wire.slow_parse import parse_command

_SIZE_BYTES = 4
_SIZES_BYTES = 8
_COMMAND_BYTES_MIN = 4
"""The type and its sub-message take a tag and a number each, even if that is empty."""
_sizes = Struct(">II").unpack_from

_TYPE_TAG = 0x08
_FAST_PARSERS: Final = {
    kind << 8 | kind << 3 | 2: parse
    for kind, parse in (
        (BaseCommand.SEND, parse_send),
        (BaseCommand.SEND_RECEIPT, parse_send_receipt),
        (BaseCommand.MESSAGE, parse_message),
        (BaseCommand.ACK, parse_ack),
        (BaseCommand.FLOW, parse_flow),
    )
}
"""By the two bytes after the type's tag: the type, and the tag of the sub-message."""


class Decoder:
    """Turns the byte stream of one connection into commands, whatever the size of the pieces."""

    def __init__(self, *, frame_bytes_max: int = limits.FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        """May be raised between two pieces, once the peer is known."""
        self._partial = bytearray()
        self._failed = False

    @property
    def buffered_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return len(self._partial)

    def feed(self, data: bytes) -> list[Command]:
        """Return the commands that `data` completes, in order.

        Raises:
            ProtocolError: if a frame breaks the protocol; `decoded` of the error has the commands
                before it. The stream cannot be understood any further: close the connection.
            FrameTooLarge: likewise, if a frame declares more than the limit.
        """
        if self._failed:
            raise ProtocolError("the stream was broken before; nothing after it can be understood")
        commands: list[Command] = []
        try:
            start = self._finish_partial(data, commands) if self._partial else 0
            self._decode_whole_frames(data, start, commands)
        except ProtocolError as error:
            self._failed = True
            self._partial = bytearray()
            error.decoded = commands
            raise
        return commands

    def _decode_whole_frames(self, data: bytes, at: int, commands: list[Command]) -> None:
        """Decode from `at` on, and keep what is left over."""
        view = memoryview(data)
        length = len(data)
        frame_bytes_max = self.frame_bytes_max
        while length - at >= _SIZES_BYTES:
            total_size, command_size = _sizes(data, at)
            frame_end = at + _SIZE_BYTES + total_size
            if frame_end - at > frame_bytes_max:
                raise self._too_large(frame_end - at)
            if frame_end > length:
                break
            commands.append(_decode_frame(data, view, at, frame_end, command_size))
            at = frame_end
        if at < length:
            self._partial += view[at:]
            self._frame_bytes()

    def _finish_partial(self, data: bytes, commands: list[Command]) -> int:
        """Complete the kept frame from the front of `data`; return how much of it was taken."""
        partial = self._partial
        taken = 0
        if len(partial) < _SIZE_BYTES:
            taken = _SIZE_BYTES - len(partial)
            partial += data[:taken]
        frame_bytes = self._frame_bytes()
        if frame_bytes is None:
            return len(data)
        rest = frame_bytes - len(partial)
        partial += memoryview(data)[taken : taken + rest]
        taken += rest
        if len(partial) == frame_bytes:
            # The views into this buffer keep it alive; it is never written again.
            self._partial = bytearray()
            _, command_size = _sizes(partial)
            view = memoryview(partial).toreadonly()
            commands.append(_decode_frame(partial, view, 0, frame_bytes, command_size))
        return min(taken, len(data))

    def _frame_bytes(self) -> int | None:
        """How long the kept frame says it is; None while that is not known."""
        if len(self._partial) < _SIZE_BYTES:
            return None
        frame_bytes = _SIZE_BYTES + int.from_bytes(self._partial[:_SIZE_BYTES], "big")
        if frame_bytes > self.frame_bytes_max:
            raise self._too_large(frame_bytes)
        if frame_bytes < _SIZES_BYTES:
            raise ProtocolError(f"a frame of {frame_bytes} bytes has no room for its command")
        return frame_bytes

    def _too_large(self, frame_bytes: int) -> FrameTooLarge:
        return FrameTooLarge(
            f"a frame of {frame_bytes} bytes is above the limit of {self.frame_bytes_max}"
        )


def _decode_frame(
    data: Bytes, view: memoryview, start: int, end: int, command_size: int
) -> Command:
    """Decode the frame at `start`, of which `end` and the command's size are declared."""
    at = start + _SIZES_BYTES
    command_end = at + command_size
    if command_size < _COMMAND_BYTES_MIN or command_end > end:
        raise ProtocolError(f"a command of {command_size} bytes in a frame of {end - start} bytes")
    entry = view[command_end:end] if command_end < end else None
    parse = _FAST_PARSERS.get(data[at + 1] << 8 | data[at + 2])
    if parse is not None and data[at] == _TYPE_TAG:
        try:
            length = data[at + 3]
            body = at + 4
            if length > 0x7F:
                length, body = read_long(data, body, length)
            if length == command_end - body:
                return parse(data, body, command_end, entry)
        except (Unusual, IndexError):
            pass
    return parse_command(view[at:command_end], entry)
