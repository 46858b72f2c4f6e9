"""Planted bugs of the broker's producers: access modes, epochs, names, duplicates."""

from collections.abc import Sequence
from typing import Any

from anabranch.broker.admission import Admission
from anabranch.broker.consumer import Delivery
from anabranch.broker.deduplication import Deduplication, PublishDone, SequenceIds
from anabranch.broker.producer import Producer
from anabranch.ids import Position
from anabranch.ledgers.store import Entry
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted
from anabranch.wire import Send, ServerError


@planted(
    "owners_are_not_alone",
    target="anabranch.broker.admission:Admission._refuse_beside_an_owner",
)
def owners_are_not_alone(self: Admission, code: ServerError) -> None:
    """Others are admitted beside an exclusive producer."""
    del self, code


@planted("nobody_is_called_next", target="anabranch.broker.admission:Admission._call_next")
def nobody_is_called_next(self: Admission) -> None:
    """Who waits for a topic waits for ever."""
    del self


@planted("a_fenced_producer_goes_on", target="anabranch.broker.admission:Admission._fence_all")
def a_fenced_producer_goes_on(self: Admission, successor: Producer) -> None:
    """The former owner is served as before."""
    del successor
    self.producers.clear()
    self._owner = None


@planted("topic_epoch_is_kept_in_memory", target="anabranch.broker.admission:Admission._own")
async def topic_epoch_is_kept_in_memory(self: Admission, producer: Producer) -> None:
    """The epoch of an owner is not stored."""
    self._owner = producer
    if producer.topic_epoch is None:
        producer.topic_epoch = self._drawn + 1
    self._drawn = self._epoch = max(self._drawn, producer.topic_epoch)
    self.producers[producer.name] = producer


@planted("duplicates_are_stored", target="anabranch.broker.deduplication:SequenceIds.is_new")
def duplicates_are_stored(self: SequenceIds, producer: str, first: int, last: int) -> bool:
    """Only the very last sequence id is recognised."""
    is_new = first != self._given.get(producer)
    self._given[producer] = last
    return is_new


@planted("duplicates_overtake", target="anabranch.broker.deduplication:Deduplication.publish")
def duplicates_overtake(self: Deduplication, producer: str, send: Send, done: PublishDone) -> None:
    """A duplicate is answered at once, whatever was sent before it."""
    given, self._given = self._given, self._settled
    original("duplicates_overtake")(self, producer, send, done)
    self._given += given - self._settled


@planted("sequence_ids_are_not_replayed", target="anabranch.broker.deduplication:_remember")
def sequence_ids_are_not_replayed(ids: SequenceIds, entry: Buffer) -> None:
    """What was published after the last snapshot is not looked at when a topic is opened."""
    del ids, entry


@planted("names_are_used_twice", target="anabranch.broker.admission:Admission._free_name")
async def names_are_used_twice(self: Admission, producer: Producer) -> None:
    """A second producer of a name takes the place of the first."""
    del self, producer


@planted("encrypted_entries_are_left_out", target="anabranch.broker.deliveries:first_deliveries")
def encrypted_entries_are_left_out(
    entries: Sequence[Entry], *others: Any
) -> tuple[list[Delivery], Position | None]:
    """What the broker cannot read is not delivered."""
    deliveries, passed = original("encrypted_entries_are_left_out")(entries, *others)
    readable = [each for each in deliveries if not (each.metadata and each.metadata.encrypted)]
    return readable, passed
