"""Planted bugs of the subscription types: who is active, whose a key is, what waits."""

from collections.abc import Sequence

from anabranch.broker.consumer import Consumer, Delivery, KeySharing
from anabranch.broker.failover import FailoverDispatcher
from anabranch.broker.key_hashes import AutoSplit, Sticky, _Range
from anabranch.broker.key_shared import KeySharedDispatcher
from anabranch.testing.planted import original, planted


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
    target="anabranch.broker.failover:FailoverDispatcher._switch",
)
def standby_consumers_hear_nothing(self: FailoverDispatcher) -> None:
    """Only the one that becomes active is told so."""
    self._active = self._best
    if self._active is not None:
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
