"""Planted bugs of `anabranch.wire`."""

from anabranch import limits
from anabranch.testing.planted import original, planted
from anabranch.wire import Command, Decoder
from anabranch.wire.commands import Buffer


@planted("frames_in_pieces_count_twice", target="anabranch.wire.decoder:Decoder._finish_partial")
def frames_in_pieces_count_twice(self: Decoder, data: bytes, commands: list[Command]) -> int:
    """A frame that came in pieces is understood twice."""
    taken: int = original("frames_in_pieces_count_twice")(self, data, commands)
    commands += commands[-1:]
    return taken


@planted("anything_is_unpacked", target="anabranch.wire.compression:decompress")
def anything_is_unpacked(number: int, data: Buffer, size: int) -> Buffer:
    """What a payload says about its size is believed, however large."""
    if size > limits.UNCOMPRESSED_BYTES_MAX:
        return data
    return original("anything_is_unpacked")(number, data, size)  # type: ignore[no-any-return]
