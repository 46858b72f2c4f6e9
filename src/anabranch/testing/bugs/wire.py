"""Planted bugs of `anabranch.wire`."""

from anabranch.testing.planted import original, planted
from anabranch.wire import Command, Decoder


@planted("frames_in_pieces_count_twice", target="anabranch.wire.decoder:Decoder._finish_partial")
def frames_in_pieces_count_twice(self: Decoder, data: bytes, commands: list[Command]) -> int:
    """A frame that came in pieces is understood twice."""
    taken: int = original("frames_in_pieces_count_twice")(self, data, commands)
    commands += commands[-1:]
    return taken
