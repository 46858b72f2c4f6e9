"""Who gets which entry: the rules of the subscription types. Pure.

A `Dispatcher` owns the consumers of one subscription and the read position. The shell in
`subscription.py` reads entries and calls `dispatch` with them; what comes back says how far the
entries were taken. Nothing here reads, writes metadata, or waits.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from anabranch import limits
from anabranch.broker.chunks import ChunkOwners
from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.refusals import Refused
from anabranch.broker.replays import Replays
from anabranch.ids import Position
from anabranch.wire import EntryMetadata, ServerError

EXCLUSIVE: Final = 0
SHARED: Final = 1


class Dispatcher(Protocol):
    """What every subscription type can do."""

    type_number: int
    consumers: list[Consumer]
    is_blocked: bool
    """Whether too much is unacknowledged for anything new to be sent."""
    delays: bool
    """Whether messages may be kept back until their time: not where one gets all in order."""

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
        """Up to `count` positions, ascending, to be read and sent before anything new."""
        ...

    def due(self, positions: Iterable[Position]) -> None:
        """Entries that were passed over because of their time are to be sent now."""
        ...

    def knows(self, position: Position) -> bool:
        """Whether an entry is held by a consumer, or waits to be sent."""
        ...

    def drop_replay(self, position: Position) -> None:
        """A position need not be sent again after all."""
        ...

    def redelivery_count(self, position: Position) -> int:
        """How often an entry was asked for again."""
        ...

    def dispatch(self, deliveries: Sequence[Delivery]) -> int:
        """Send entries from the front while somebody can take them.

        Returns:
            How many from the front were dealt with: sent, or kept to be sent later.
        """
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
    is_blocked = False
    delays = False

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

    def due(self, positions: Iterable[Position]) -> None:
        """See `Dispatcher.due`; nothing is kept back."""

    def knows(self, position: Position) -> bool:
        """See `Dispatcher.knows`; nothing is kept about single entries."""
        return False

    def redelivery_count(self, position: Position) -> int:
        """See `Dispatcher.redelivery_count`."""
        return 0

    def dispatch(self, deliveries: Sequence[Delivery]) -> int:
        """See `Dispatcher.dispatch`."""
        return self._send_in_order(self.consumers[0] if self.consumers else None, deliveries)

    def _send_in_order(self, consumer: Consumer | None, deliveries: Sequence[Delivery]) -> int:
        if consumer is None or not consumer.can_take:
            return 0
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
    delays = True

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self._turn = 0
        self._replays = Replays()
        self._redeliveries: dict[Position, int] = {}
        self._chunks = ChunkOwners()
        self.is_blocked = False
        """Too much is unacknowledged: nothing new is sent until half of it is settled."""

    def add(self, consumer: Consumer) -> None:
        """See `Dispatcher.add`."""
        insort(self.consumers, consumer, key=lambda other: other.priority)

    def remove(self, consumer: Consumer) -> bool:
        """See `Dispatcher.remove`."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        held, consumer.pending = consumer.pending, {}
        self._take_back(held)
        self._replays.add(self._chunks.forget(consumer))
        if self.consumers:
            return False
        self._forget_all()
        return True

    def _forget_all(self) -> None:
        self._replays.clear()
        self._chunks.clear()
        self._redeliveries = {}

    def entries_wanted(self) -> int:
        """See `Dispatcher.entries_wanted`."""
        if self._chunks:
            self._replays.add(self._chunks.ready())
        if self._check_bound() and not self._replays:
            return 0
        wanted = sum(consumer.entries_wanted() for consumer in self.consumers if consumer.can_take)
        return min(wanted, limits.READ_BATCH_ENTRIES_MAX)

    def replays(self, count: int) -> list[Position]:
        """See `Dispatcher.replays`."""
        return self._replays.lowest(count)

    def due(self, positions: Iterable[Position]) -> None:
        """See `Dispatcher.due`."""
        self._replays.add(positions)

    def knows(self, position: Position) -> bool:
        """See `Dispatcher.knows`."""
        waits = position in self._replays or position in self._chunks
        return waits or self._holder(position) is not None

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
            is_again = bool(self._replays)
            permits = consumer.permits if is_again else min(consumer.permits, self._room())
            for delivery in deliveries[sent : sent + limits.ROUND_ROBIN_ENTRIES_MAX]:
                if permits <= 0 or consumer.is_blocked:
                    break
                sent += 1
                if is_again:
                    self._replays.discard(delivery.position)
                metadata = None if delivery.is_plain else delivery.metadata
                if metadata is not None and metadata.chunk_id is not None:
                    owner = self._chunks.owner(metadata, consumer)
                    if owner is not consumer:
                        self._send_chunk(owner, delivery, metadata)
                        continue
                    self._chunks.sent(metadata, consumer)
                permits -= delivery.message_count
                share.append(delivery)
                consumer.hold(delivery.position, delivery.message_count)
            if share:
                consumer.deliver(share)
        self._check_bound()  # before anything is settled: having been there is what counts
        return sent

    def _send_chunk(self, owner: Consumer, delivery: Delivery, metadata: EntryMetadata) -> None:
        if not owner.can_take:
            self._chunks.set_aside(delivery.position, owner)
            return
        self._chunks.sent(metadata, owner)
        owner.hold(delivery.position, delivery.message_count)
        owner.deliver([delivery])

    def _next_consumer(self) -> Consumer | None:
        able = [consumer for consumer in self.consumers if consumer.can_take]
        if not able:
            return None
        first = able[0].priority
        able = [consumer for consumer in able if consumer.priority == first]
        self._turn += 1
        return able[self._turn % len(able)]

    def _room(self) -> int:
        """How many messages more may be unacknowledged; one at least, a batch is never split."""
        most, unacked = self._unacked()
        return max(1, most - unacked) if most > 0 else limits.UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX

    def _unacked(self) -> tuple[int, int]:
        """How much may be unacknowledged, and is."""
        most = self.consumers[0].rules.unacked_per_subscription_max if self.consumers else 0
        return most, sum(consumer.unacked_messages for consumer in self.consumers)

    def _check_bound(self) -> bool:
        """Whether too much is unacknowledged for anything new to be sent."""
        most, unacked = self._unacked()
        if 0 < most <= unacked:
            self.is_blocked = True
        elif most <= 0 or unacked <= most // 2:
            self.is_blocked = False
        return self.is_blocked

    def drop_replay(self, position: Position) -> None:
        """See `Dispatcher.drop_replay`."""
        self._replays.discard(position)

    def acknowledged(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """See `Dispatcher.acknowledged`."""
        for position in positions:
            self._acknowledged(consumer, position)

    def _acknowledged(self, consumer: Consumer, position: Position) -> bool:
        """Forget an entry that is done; whether anybody held it."""
        if self._redeliveries:
            self._redeliveries.pop(position, None)
        holder = consumer if position in consumer.pending else self._holder(position)
        if holder is None:
            self.drop_replay(position)
            return False
        holder.settle(holder.pending.pop(position))
        return True

    def _take_back(self, positions: Iterable[Position]) -> None:
        """Entries that a consumer held have to be sent again."""
        self._replays.add(positions)

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
        self._take_back(taken_back)
        return False
