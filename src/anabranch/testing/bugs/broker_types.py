"""Planted bugs of the subscription types: who is active, whose a key is, what waits."""

from collections.abc import Sequence

from anabranch.broker.chunks import ChunkOwners
from anabranch.broker.consumer import Consumer, Delivery, KeySharing
from anabranch.broker.delayed import DelayedEntries, Delaying
from anabranch.broker.dispatch import ExclusiveDispatcher, SharedDispatcher
from anabranch.broker.failover import FailoverDispatcher
from anabranch.broker.handover import Handover
from anabranch.broker.key_hashes import AutoSplit, Sticky, _Range
from anabranch.broker.key_shared import KeySharedDispatcher
from anabranch.broker.limits import DELAYED_TICK_MS
from anabranch.broker.subscription import Subscription
from anabranch.ids import Position
from anabranch.testing.planted import original, planted
from anabranch.wire import EntryMetadata


@planted(
    "the_first_to_come_stays_active",
    target="anabranch.broker.failover:FailoverDispatcher.hand_over",
)
def the_first_to_come_stays_active(self: FailoverDispatcher) -> bool:
    """Whoever is active stays so until it leaves."""
    self._best = self._active
    return False


@planted(
    "standby_consumers_hear_nothing",
    target="anabranch.broker.failover:FailoverDispatcher.tell",
)
def standby_consumers_hear_nothing(self: FailoverDispatcher) -> None:
    """Only the active one is told so."""
    if self._active is not None and self._active not in self._told:
        self._told = {self._active: True}
        self._active.tell_active(True)


@planted("keys_go_to_the_first_consumer", target="anabranch.broker.key_hashes:AutoSplit.owner")
def keys_go_to_the_first_consumer(self: AutoSplit, key_hash: int) -> Consumer | None:
    """One consumer owns every key."""
    del key_hash
    return self._owners[0] if self._owners else None


@planted("ranges_may_overlap", target="anabranch.broker.key_hashes:Sticky.add")
def ranges_may_overlap(self: Sticky, consumer: Consumer, sharing: KeySharing) -> None:
    """A consumer gets whatever ranges it asks for."""
    self._ranges += [_Range(start, end, consumer) for start, end in sharing.ranges]


@planted(
    "hashes_move_undrained",
    target="anabranch.broker.key_shared:KeySharedDispatcher._is_drained",
)
def hashes_move_undrained(self: KeySharedDispatcher, key_hash: int, owner: Consumer) -> bool:
    """A new owner is sent a key while the former one still has messages of it."""
    del self, key_hash, owner
    return True


@planted(
    "later_entries_pass_waiting_ones",
    target="anabranch.broker.key_shared:KeySharedDispatcher._is_next",
)
def later_entries_pass_waiting_ones(
    self: KeySharedDispatcher, position: object, key_hash: int
) -> bool:
    """What waits is passed by what comes later."""
    del self, position, key_hash
    return True


@planted(
    "a_slow_consumer_holds_up_all",
    target="anabranch.broker.key_shared:KeySharedDispatcher.dispatch",
)
def a_slow_consumer_holds_up_all(self: KeySharedDispatcher, deliveries: Sequence[Delivery]) -> int:
    """The first entry that cannot be sent stops all that follow."""
    for count, delivery in enumerate(deliveries):
        if original("a_slow_consumer_holds_up_all")(self, [delivery]) == 0:
            return count
        if delivery.position in self._waiting:
            return count + 1
    return len(deliveries)


@planted("delays_end_early", target="anabranch.broker.delayed:DelayedEntries.add")
def delays_end_early(self: DelayedEntries, position: Position, deliver_at_ms: int) -> None:
    """A message is due in the tick that its time lies in, not after it."""
    original("delays_end_early")(self, position, deliver_at_ms - DELAYED_TICK_MS)


@planted(
    "delays_are_remembered_without_end",
    target="anabranch.broker.delayed:DelayedEntries._forget_latest",
)
def delays_are_remembered_without_end(self: DelayedEntries) -> None:
    """Memory grows with every delayed message."""
    del self


@planted("delays_do_not_count", target="anabranch.broker.delayed:Delaying.keeps")
def delays_do_not_count(self: Delaying, delivery: Delivery) -> bool:
    """Delivery times do not count."""
    del self, delivery
    return False


@planted("chunks_go_to_anybody", target="anabranch.broker.chunks:ChunkOwners.owner")
def chunks_go_to_anybody(
    self: ChunkOwners, metadata: EntryMetadata, otherwise: Consumer
) -> Consumer:
    """Every chunk is sent to whoever is next."""
    del self, metadata
    return otherwise


@planted("standby_consumers_share", target="anabranch.broker.failover:FailoverDispatcher.dispatch")
def standby_consumers_share(self: FailoverDispatcher, deliveries: Sequence[Delivery]) -> int:
    """Entries go to all consumers in turn, active or not."""
    for count, delivery in enumerate(deliveries):
        consumer = self.consumers[delivery.position.entry_id % len(self.consumers)]
        if self._send_in_order(consumer, [delivery]) == 0:
            return count
    return len(deliveries)


@planted("redeliveries_are_ignored", target="anabranch.broker.subscription:Subscription.redeliver")
def redeliveries_are_ignored(self: Subscription, *asked: object) -> None:
    """What a client asks for again does not come."""
    del self, asked


@planted("consumers_hold_without_end", target="anabranch.broker.consumer:Consumer.hold")
def consumers_hold_without_end(self: Consumer, position: Position, messages: int) -> None:
    """A consumer gets more, however much it has not acknowledged."""
    self.pending[position] = messages
    self.unacked_messages += messages


@planted(
    "subscriptions_hold_without_end",
    target="anabranch.broker.dispatch:SharedDispatcher._check_bound",
)
def subscriptions_hold_without_end(self: SharedDispatcher) -> bool:
    """All consumers together may hold any number of messages."""
    del self
    return False


@planted("a_handover_does_not_rewind", target="anabranch.broker.handover:Handover._hand_over")
def a_handover_does_not_rewind(self: Handover, dispatcher: FailoverDispatcher) -> None:
    """Who takes over goes on behind what the other one was sent."""
    self._timer = None
    dispatcher.hand_over()
    self.look()
    self._wake()


@planted("anybody_may_rewind", target="anabranch.broker.failover:FailoverDispatcher.redeliver")
def anybody_may_rewind(
    self: FailoverDispatcher, consumer: Consumer, positions: Sequence[Position] | None
) -> bool:
    """A consumer that stands by has everything sent again to the active one."""
    del self, consumer, positions
    return True


_EXCLUSIVE = "anabranch.broker.dispatch:ExclusiveDispatcher"


@planted("exclusive_admits_anybody", target=f"{_EXCLUSIVE}.add")
def exclusive_admits_anybody(self: ExclusiveDispatcher, consumer: Consumer) -> None:
    """A second consumer is let in beside the first."""
    self.consumers.append(consumer)


@planted("exclusive_sends_without_permits", target=f"{_EXCLUSIVE}._send_in_order")
def exclusive_sends_without_permits(
    self: ExclusiveDispatcher, consumer: Consumer | None, deliveries: Sequence[Delivery]
) -> int:
    """A consumer gets everything at once, whatever it asked for."""
    del self
    if consumer is None or not consumer.can_take:
        return 0
    consumer.deliver(list(deliveries))
    return len(deliveries)


@planted("exclusive_never_rewinds", target=f"{_EXCLUSIVE}.redeliver")
def exclusive_never_rewinds(
    self: ExclusiveDispatcher, consumer: Consumer, positions: Sequence[Position] | None
) -> bool:
    """What a consumer wants again does not come."""
    del self, consumer, positions
    return False
