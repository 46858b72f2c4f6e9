"""Who gets which entry: the rules of the subscription types. Pure.

A `Dispatcher` owns the consumers of one subscription and the read position. The shell in
`subscription.py` reads entries and calls `dispatch` with them; what comes back says how far the
entries were taken. Nothing here reads, writes metadata, or waits.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from anabranch import limits
from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.refusals import Refused
from anabranch.broker.replays import Replays
from anabranch.ids import Position
from anabranch.wire import ServerError

EXCLUSIVE: Final = 0
SHARED: Final = 1
TYPE_NAMES: Final = {0: "Exclusive", 1: "Shared", 2: "Failover", 3: "Key_Shared"}


class Dispatcher(Protocol):
    """What every subscription type can do."""

    type_number: int
    consumers: list[Consumer]

    def add(self, consumer: Consumer) -> None:
        """Admit a consumer, or raise Refused."""
        ...

    def remove(self, consumer: Consumer) -> bool:
        """Let a consumer go; true if reading must start again at the mark-delete position."""
        ...

    def entries_wanted(self) -> int:
        """How many entries could be sent now; 0 if nobody can take one."""
        ...

    def replays(self, count: int) -> list[Position]:
        """Up to `count` positions to be read and sent before anything new."""
        ...

    def drop_replay(self, position: Position) -> None:
        """A position need not be sent again after all."""
        ...

    def redelivery_count(self, position: Position) -> int:
        """How often an entry was asked for again."""
        ...

    def dispatch(self, deliveries: Sequence[Delivery]) -> int:
        """Send entries from the front while somebody can take them; return how many were sent."""
        ...

    def acknowledged(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """Forget entries that a consumer is done with."""
        ...

    def partly_acknowledged(self, consumer: Consumer, position: Position, left: int) -> None:
        """Of a batch that a consumer holds so many messages are left."""
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> bool:
        """Send entries (None: all) again; true if reading must start again at mark-delete."""
        ...


class ExclusiveDispatcher:
    """One consumer gets everything in order; a redelivery rewinds."""

    type_number = EXCLUSIVE

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []

    def add(self, consumer: Consumer) -> None:
        """See `Dispatcher.add`."""
        if self.consumers:
            raise Refused(ServerError.ConsumerBusy, "Exclusive consumer is already connected")
        self.consumers.append(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """See `Dispatcher.remove`."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        return True

    def entries_wanted(self) -> int:
        """See `Dispatcher.entries_wanted`."""
        if not self.consumers or not self.consumers[0].can_take:
            return 0
        return self.consumers[0].entries_wanted()

    def replays(self, count: int) -> list[Position]:
        """See `Dispatcher.replays`."""
        return []

    def drop_replay(self, position: Position) -> None:
        """See `Dispatcher.drop_replay`; there are none."""

    def redelivery_count(self, position: Position) -> int:
        """See `Dispatcher.redelivery_count`."""
        return 0

    def dispatch(self, deliveries: Sequence[Delivery]) -> int:
        """See `Dispatcher.dispatch`."""
        if not self.consumers or not self.consumers[0].can_take:
            return 0
        consumer = self.consumers[0]
        permits = consumer.permits
        sent = 0
        for delivery in deliveries:
            if permits <= 0:
                break
            permits -= delivery.message_count
            sent += 1
        consumer.deliver(list(deliveries[:sent]))
        return sent

    def acknowledged(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """See `Dispatcher.acknowledged`; a single consumer's entries are not counted."""

    def partly_acknowledged(self, consumer: Consumer, position: Position, left: int) -> None:
        """See `Dispatcher.partly_acknowledged`; nor are its messages."""

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> bool:
        """See `Dispatcher.redeliver`. Single messages cannot be repeated without breaking order."""
        return True


class SharedDispatcher:
    """Round robin over the consumers that have permits, lower priority numbers first."""

    type_number = SHARED

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self._turn = 0
        self._replays = Replays()
        self._redeliveries: dict[Position, int] = {}
        self._blocked = False
        """Too much is unacknowledged: nothing new is sent until half of it is settled."""

    def add(self, consumer: Consumer) -> None:
        """See `Dispatcher.add`."""
        insort(self.consumers, consumer, key=lambda other: other.priority)

    def remove(self, consumer: Consumer) -> bool:
        """See `Dispatcher.remove`."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        self._replays.add(consumer.pending)
        consumer.pending = {}
        if self.consumers:
            return False
        self._replays.clear()
        self._redeliveries = {}
        return True

    def entries_wanted(self) -> int:
        """See `Dispatcher.entries_wanted`."""
        if self._check_bound() and not self._replays:
            return 0
        wanted = sum(consumer.entries_wanted() for consumer in self.consumers if consumer.can_take)
        return min(wanted, limits.READ_BATCH_ENTRIES_MAX)

    def replays(self, count: int) -> list[Position]:
        """See `Dispatcher.replays`."""
        return self._replays.lowest(count)

    def redelivery_count(self, position: Position) -> int:
        """See `Dispatcher.redelivery_count`."""
        return self._redeliveries.get(position, 0)

    def dispatch(self, deliveries: Sequence[Delivery]) -> int:
        """See `Dispatcher.dispatch`."""
        sent = 0
        while sent < len(deliveries):
            consumer = self._next_consumer()
            if consumer is None:
                break
            # What is sent again was counted before: it may go although nothing new may.
            if self._check_bound() and deliveries[sent].position not in self._replays:
                break
            share: list[Delivery] = []
            permits = consumer.permits
            for delivery in deliveries[sent : sent + limits.ROUND_ROBIN_ENTRIES_MAX]:
                if permits <= 0:
                    break
                permits -= delivery.message_count
                share.append(delivery)
                consumer.hold(delivery.position, delivery.message_count)
            if self._replays:
                for delivery in share:
                    self._replays.discard(delivery.position)
            consumer.deliver(share)
            sent += len(share)
        self._check_bound()  # before anything is settled: having been there is what counts
        return sent

    def _next_consumer(self) -> Consumer | None:
        able = [consumer for consumer in self.consumers if consumer.can_take]
        if not able:
            return None
        first = able[0].priority
        able = [consumer for consumer in able if consumer.priority == first]
        self._turn += 1
        return able[self._turn % len(able)]

    def _check_bound(self) -> bool:
        """Whether too much is unacknowledged for anything new to be sent."""
        unacked = sum(consumer.unacked_messages for consumer in self.consumers)
        if unacked >= limits.UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX:
            self._blocked = True
        elif unacked <= limits.UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX // 2:
            self._blocked = False
        return self._blocked

    def drop_replay(self, position: Position) -> None:
        """See `Dispatcher.drop_replay`."""
        self._replays.discard(position)

    def acknowledged(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """See `Dispatcher.acknowledged`."""
        for position in positions:
            self._redeliveries.pop(position, None)
            holder = consumer if position in consumer.pending else self._holder(position)
            if holder is not None:
                holder.settle(holder.pending.pop(position))
            elif self._replays:
                self._replays.discard(position)

    def partly_acknowledged(self, consumer: Consumer, position: Position, left: int) -> None:
        """See `Dispatcher.partly_acknowledged`."""
        holder = consumer if position in consumer.pending else self._holder(position)
        if holder is not None and left < holder.pending[position]:
            holder.settle(holder.pending[position] - left)
            holder.pending[position] = left

    def _holder(self, position: Position) -> Consumer | None:
        for consumer in self.consumers:
            if position in consumer.pending:
                return consumer
        return None

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> bool:
        """See `Dispatcher.redeliver`."""
        wanted = list(consumer.pending) if positions is None else positions
        taken_back = []
        for position in wanted:
            messages = consumer.pending.pop(position, None)
            if messages is None:
                continue
            consumer.settle(messages)
            self._redeliveries[position] = self._redeliveries.get(position, 0) + 1
            taken_back.append(position)
        self._replays.add(taken_back)
        return False


DISPATCHERS: Final[dict[int, Callable[[], Dispatcher]]] = {
    EXCLUSIVE: ExclusiveDispatcher,
    SHARED: SharedDispatcher,
}
