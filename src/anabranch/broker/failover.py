"""Failover: one consumer at a time gets everything in order, the others stand by. Pure.

Who is active follows from priorities and names alone, so that it does not depend on who came
first. When somebody better comes while the active one is still there, nobody is sent anything
until `hand_over`: what is acknowledged meanwhile is not delivered twice.
"""

from bisect import insort
from collections.abc import Sequence
from typing import Final

from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.dispatch import ExclusiveDispatcher
from anabranch.broker.key_hashes import murmur3
from anabranch.ids import Position

FAILOVER: Final = 2


class FailoverDispatcher(ExclusiveDispatcher):
    """An exclusive subscription whose consumer may change."""

    type_number = FAILOVER

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._active: Consumer | None = None
        self._best: Consumer | None = None
        """Who should be active; it is so after the next `hand_over`."""
        self._told: dict[Consumer, bool] = {}

    @property
    def active(self) -> Consumer | None:
        """Who is sent messages; None if somebody else is about to be."""
        return self._active if self._active is self._best else None

    @property
    def is_handing_over(self) -> bool:
        """Whether somebody else is about to be sent messages."""
        return self._active is not self._best

    def add(self, consumer: Consumer) -> None:
        """See `Dispatcher.add`."""
        insort(self.consumers, consumer, key=lambda other: (other.priority, other.name))
        self._best = self._chosen()
        if self._active is None:
            self._active = self._best

    def remove(self, consumer: Consumer) -> bool:
        """See `Dispatcher.remove`."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        self._best = self._chosen()
        if consumer is not self._active:
            return False
        self._active = self._best
        return True

    def hand_over(self) -> bool:
        """Let the best one take over; true if reading must start again at mark-delete."""
        if self._best is self._active:
            return False
        self._active = self._best
        return True

    def tell(self) -> None:
        """Tell everybody who does not know it yet whether it is the active one."""
        if self.is_handing_over:
            return
        before, self._told = self._told, {}
        for consumer in self.consumers:
            is_active = self._told[consumer] = consumer is self._active
            if before.get(consumer) is not is_active:
                consumer.tell_active(is_active)

    def entries_wanted(self) -> int:
        """See `Dispatcher.entries_wanted`."""
        active = self.active
        return active.entries_wanted() if active is not None and active.can_take else 0

    def dispatch(self, deliveries: Sequence[Delivery]) -> int:
        """See `Dispatcher.dispatch`."""
        return self._send_in_order(self.active, deliveries)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> bool:
        """See `Dispatcher.redeliver`; of those who stand by nobody holds anything."""
        return consumer is self.active

    def _chosen(self) -> Consumer | None:
        if not self.consumers:
            return None
        highest = self.consumers[0].priority
        equals = [consumer for consumer in self.consumers if consumer.priority == highest]
        partition = equals[0].partition
        if partition >= 0:
            return equals[partition % len(equals)]
        # Spread over topics: each draws its own order of the same names.
        return max(equals, key=lambda each: murmur3(f"{self._topic}\0{each.name}".encode()))
