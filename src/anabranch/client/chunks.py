"""Messages larger than an entry: cut into chunks, and put together again. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.client.limits import (
    CHUNK_REDELIVERIES_MAX,
    CHUNKED_BYTES_MAX,
    CHUNKED_MESSAGES_MAX,
    CHUNKS_PER_MESSAGE_MAX,
)
from anabranch.errors import InputError
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.ids import Position
from anabranch.wire import Buffer, build_entry

_SPARE_SHARE = 64
"""Part of an entry that stays free: what brokers and bookies add counts for some of them."""


class SentChunks:
    """What becomes known of a message's chunks while they are stored."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.first: Position | None = None

    def stored(self, position: Position) -> bool:
        """The next chunk is stored there; returns whether it was the last."""
        if self.first is None:
            self.first = position
        self._left -= 1
        return self._left == 0


def cut(metadata: MessageMetadata, payload: bytes, uuid: str, entry_bytes_max: int) -> list[bytes]:
    """Make the entries of a message that is larger than one.

    Raises:
        InputError: if there would be too many of them.
    """
    metadata.uuid = uuid
    metadata.total_chunk_msg_size = len(payload)
    metadata.chunk_id = metadata.num_chunks_from_msg = CHUNKS_PER_MESSAGE_MAX
    room = entry_bytes_max - entry_bytes_max // _SPARE_SHARE - metadata.ByteSize()
    if room < 1 or len(payload) > room * CHUNKS_PER_MESSAGE_MAX:
        raise InputError(
            f"a message of {len(payload)} bytes is too large for {CHUNKS_PER_MESSAGE_MAX} chunks"
        )
    count = -(-len(payload) // room)
    metadata.num_chunks_from_msg = count
    entries = []
    for number in range(count):
        metadata.chunk_id = number
        entries.append(build_entry(metadata, payload[number * room : (number + 1) * room]))
    return entries


class _Begun:
    """A message of which some chunks are here."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.places: list[Position] = []


class SpareChunks(NamedTuple):
    """Where chunks are that were dropped."""

    copies: list[Position]
    """Of what is here; or their message can never be here."""
    lost: list[Position]
    """The beginning of their message, or one in between, is not here."""
    without_room: list[Position]

    def judged(
        self, here: Position, redeliveries: int, *, in_order: bool
    ) -> tuple[list[Position], list[Position]]:
        """Which of them are done with, and which are to come again.

        Where there is an order, nothing that comes later brings a beginning that is not here.
        """
        if in_order:
            return self.copies + self.lost, self.without_room
        missed = self.lost + self.without_room
        if redeliveries >= CHUNK_REDELIVERIES_MAX and here in missed:
            return [*self.copies, here], [place for place in missed if place != here]
        return self.copies, missed


class Parted(NamedTuple):
    """What is to be done about chunks that were dropped."""

    done: list[Position]
    again: list[Position]
    losses: list[str]
    """Sentences about messages that will not be received."""


class Assembly:
    """The chunks that a consumer has, until all of a message's are here."""

    def __init__(self, *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._begun: dict[str, _Begun] = {}
        self._bytes = 0
        self._places: dict[Position, list[Position]] = {}
        """Of messages that were handed out, by the place of the last chunk."""
        self._copies: list[Position] = []
        self._lost: list[Position] = []
        self._without_room: list[Position] = []
        self.has_spare = False
        """Whether there are chunks for `take_spare`."""
        self.lacks_room = False
        """Whether nothing can be taken until chunks that had no room come again: in an order."""
        self._asked_at: Position | None = None
        """Where there was no room when all was asked for again."""
        self._in_vain = False
        """Whether there was none then, either."""
        self._losses: list[str] = []

    def add(
        self, metadata: MessageMetadata, payload: Buffer, place: Position
    ) -> tuple[bytes, Position] | None:
        """Take a chunk; returns payload and first place of the message if it was the last one."""
        uuid, number = metadata.uuid, metadata.chunk_id
        if metadata.total_chunk_msg_size > CHUNKED_BYTES_MAX:
            if number == 0:
                self._note_too_large(place, metadata.total_chunk_msg_size)
            self._spare(self._copies, [place])
            return None
        begun = self._begun.get(uuid)
        if begun is not None and number < len(begun.parts) and begun.places[number] == place:
            return None  # it came once more, but is here
        if number == 0:
            self._spare(self._copies, self._drop(uuid))
            begun = self._begun[uuid] = _Begun()
        if begun is None:
            self._spare(self._lost, [place])  # the middle of one that was given up
            return None
        if number < len(begun.parts):
            self._spare(self._copies, [place])
            return None
        if number > len(begun.parts):
            self._spare(self._lost, [*self._drop(uuid), place])  # one in between is missing
            return None
        begun.parts.append(bytes(payload))
        begun.places.append(place)
        self._bytes += len(payload)
        if number + 1 < metadata.num_chunks_from_msg:
            self._bound()
            return None
        whole = b"".join(begun.parts)
        self._drop(uuid)
        self._places[place] = begun.places
        return whole, begun.places[0]

    def _drop(self, uuid: str) -> list[Position]:
        if (begun := self._begun.pop(uuid, None)) is None:
            return []
        self._bytes -= sum(map(len, begun.parts))
        return begun.places

    def _spare(self, kind: list[Position], places: list[Position]) -> None:
        kind.extend(places)
        self.has_spare = self.has_spare or bool(places)

    def take_spare(self) -> SpareChunks:
        """Take out where chunks were dropped."""
        spare = SpareChunks(self._copies, self._lost, self._without_room)
        self._copies, self._lost, self._without_room, self.has_spare = [], [], [], False
        return spare

    def _bound(self) -> None:
        while len(self._begun) > CHUNKED_MESSAGES_MAX or self._bytes > CHUNKED_BYTES_MAX:
            if len(self._begun) == 1 and self._bytes > CHUNKED_BYTES_MAX:
                size, places = self._bytes, self._drop(next(iter(self._begun)))
                self._note_too_large(places[0], size)
                self._spare(self._copies, places)
            else:
                self._spare(self._without_room, self._drop(next(iter(self._begun))))

    def _note_too_large(self, place: Position, size: int) -> None:
        self._losses.append(
            f"the message that begins at {place} has at least {size} bytes: more than "
            f"{CHUNKED_BYTES_MAX} in chunks are not put together, and it is acknowledged"
        )

    def parted(self, here: Position, redeliveries: int) -> Parted:
        """What is to be done about what was dropped for the entry that came from `here`.

        Where there is an order, what found no room is asked for again with all that follows. If
        there is none then, either, it never comes, and the oldest are given up.
        """
        spare, losses, again = self.take_spare(), self._losses, True
        self._losses = []
        if self._in_order and spare.without_room:
            again = self._is_to_come_again(here)
            self.lacks_room = again
        if not again:
            losses.append(
                f"there is no room for more than {CHUNKED_MESSAGES_MAX} messages or "
                f"{CHUNKED_BYTES_MAX} bytes whose chunks are not all here: the message that begins "
                f"at {spare.without_room[0]} is acknowledged unfinished"
            )
            return Parted(spare.copies + spare.lost + spare.without_room, [], losses)
        done, missed = spare.judged(here, redeliveries, in_order=self._in_order)
        return Parted(done, missed, losses)

    def _is_to_come_again(self, here: Position) -> bool:
        if self._asked_at is not None and here <= self._asked_at:
            self._in_vain = True
        if not self._in_vain:
            self._asked_at = here
        return not self._in_vain

    def attached(self) -> None:
        """The consumer begins anew, and so does what it is sent."""
        self._asked_at, self._in_vain = None, False

    def places(self, last: Position) -> Sequence[Position]:
        """Where the chunks are of the message that ends there; empty if it has none."""
        return self._places.get(last, ())

    def done_with(self, last: Position, *, cumulative: bool) -> Sequence[Position]:
        """The same, and forget it; with all before it if it was acknowledged so."""
        if cumulative:
            for each in [each for each in self._places if each < last]:
                del self._places[each]
        return self._places.pop(last, ())

    def clear(self) -> None:
        """Everything unacknowledged comes again."""
        self._begun.clear()
        self._places.clear()
        self._bytes = 0
        self._losses = []
        self.lacks_room = False
        self.take_spare()
