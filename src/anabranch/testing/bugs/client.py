"""Planted bugs of `anabranch.client`."""

from typing import Any

from anabranch.client.batch_acks import BatchAcks
from anabranch.client.consumer import Consumer
from anabranch.client.in_flight import InFlight
from anabranch.client.message import EARLIEST, MessageId
from anabranch.client.producer import Producer
from anabranch.client.room import Room
from anabranch.errors import Unreachable
from anabranch.ids import Position
from anabranch.testing.planted import original, planted


@planted(
    "sdk_sends_again_behind_the_rest",
    target="anabranch.client.in_flight:InFlight.connection_lost",
)
def sdk_sends_again_behind_the_rest(self: InFlight[Any]) -> None:
    """After a lost connection what was sent before comes behind what waits to be sent."""
    self._unsent.extend(reversed(self._sent))
    self._sent.clear()


@planted("sdk_calls_unknown_unsent", target="anabranch.client.producer:Producer._expire")
def sdk_calls_unknown_unsent(self: Producer) -> None:
    """A send without an answer is reported as if it had never left."""
    self._expiry = None
    for op in self._in_flight.expired(self._loop.time()):
        self._fail(op, Unreachable("not sent in time"))
    self._watch_time()


@planted("sdk_waits_for_no_room", target="anabranch.client.room:Room._fits")
def sdk_waits_for_no_room(self: Room, size: int) -> bool:
    """Messages without an answer are counted and not bounded."""
    return True


@planted(
    "sdk_acknowledges_a_batch_by_its_first",
    target="anabranch.client.batch_acks:BatchAcks.acknowledge",
)
def sdk_acknowledges_a_batch_by_its_first(
    self: BatchAcks, position: Position, batch_index: int, batch_size: int
) -> int:
    """The first acknowledged message of a batch takes the others along."""
    return 0


@planted("sdk_reader_starts_over", target="anabranch.client.consumer:Consumer.place_to_begin")
def sdk_reader_starts_over(self: Consumer) -> MessageId | None:
    """A reader whose connection was lost has forgotten how far it was."""
    begin: MessageId | None = original("sdk_reader_starts_over")(self)
    if begin is None or self.attachments == 0:
        return begin
    self._acking.forget()
    self.start_id, self.start_inclusive = EARLIEST, True
    return EARLIEST


@planted("sdk_seek_stays", target="anabranch.client.consumer:Consumer.seek")
async def sdk_seek_stays(self: Consumer, to: MessageId | int, *, inclusive: bool = True) -> None:
    """A seek that asks nobody."""
