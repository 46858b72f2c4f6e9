"""Key_Shared: consumers share a subscription, and all messages of a key go to one of them. Pure.

The order of a key's messages outlives consumers that come and go, by two rules. An entry is sent
only if no other consumer holds one with its hash unacknowledged: such a hash *drains* first. And
an entry never passes one with its hash that waits. `allowOutOfOrderDelivery` gives up both.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from anabranch import limits
from anabranch.broker.consumer import Consumer, Delivery, KeySharing
from anabranch.broker.dispatch import SharedDispatcher
from anabranch.broker.key_hashes import AutoSplit, Division, Sticky, hash_of_entry
from anabranch.broker.keyed_replays import KeyedReplays
from anabranch.broker.limits import ENTRIES_AHEAD_MAX, ENTRIES_AHEAD_PER_CONSUMER_MAX
from anabranch.broker.refusals import Refused
from anabranch.broker.replays import Replays
from anabranch.ids import Position
from anabranch.wire import ServerError

KEY_SHARED: Final = 3


class KeySharedDispatcher(SharedDispatcher):
    """Sends every entry to the consumer that owns the hash of its key."""

    type_number = KEY_SHARED

    def __init__(self, sharing: KeySharing) -> None:
        super().__init__()
        self.sharing = sharing
        """How the first consumer wants it, and so all of them."""
        self._division: Division = Sticky() if sharing.sticky else AutoSplit()
        self._waiting = KeyedReplays()
        self._due = Replays()
        """Entries that must be read before it is known whose they are."""
        self._hashes: dict[Position, int] = {}
        """Of entries that consumers hold."""
        self._holders: dict[int, Consumer] = {}
        """Who holds entries with a hash; kept only where order is."""
        self._held: dict[int, int] = {}
        self._ready: dict[Consumer, dict[int, None]] = {}
        """Hashes that somebody waits with, and that nobody else than their owner holds."""

    # --- consumers ---------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        """See `Dispatcher.add`."""
        sharing = consumer.sharing or KeySharing()
        if sharing._replace(ranges=()) != self.sharing._replace(ranges=()):
            raise Refused(
                ServerError.ConsumerBusy,
                f"the subscription is shared by key {_in_words(self.sharing)}, "
                f"and consumer {consumer.name} wants it {_in_words(sharing)}",
            )
        self._division.add(consumer, sharing)
        super().add(consumer)
        self._line_up()

    def remove(self, consumer: Consumer) -> bool:
        """See `Dispatcher.remove`."""
        self._division.remove(consumer)
        over = super().remove(consumer)
        self._line_up()
        return over

    def _forget_all(self) -> None:
        super()._forget_all()
        self._waiting.clear()
        self._due.clear()
        self._hashes = {}
        self._holders = {}
        self._held = {}

    def _line_up(self) -> None:
        """Hashes have other owners now."""
        self._ready = {consumer: {} for consumer in self.consumers}
        for key_hash in self._waiting.hashes():
            self._mark_ready(key_hash)

    def _mark_ready(self, key_hash: int) -> None:
        owner = self._division.owner(key_hash)
        if owner is not None and self._is_drained(key_hash, owner):
            self._ready[owner][key_hash] = None

    def _is_drained(self, key_hash: int, owner: Consumer) -> bool:
        return self.sharing.out_of_order or self._holders.get(key_hash, owner) is owner

    # --- what can be sent --------------------------------------------------------------------

    def entries_wanted(self) -> int:
        """See `Dispatcher.entries_wanted`."""
        able = [consumer for consumer in self.consumers if consumer.can_take]
        if not able or self._check_bound():
            return 0
        can_go = self._due or any(self._ready[consumer] for consumer in able)
        if len(self._waiting) >= self._ahead_max() and not can_go:
            return 0
        wanted = sum(consumer.entries_wanted() for consumer in able)
        return min(wanted, limits.READ_BATCH_ENTRIES_MAX)

    def _ahead_max(self) -> int:
        return min(ENTRIES_AHEAD_MAX, len(self.consumers) * ENTRIES_AHEAD_PER_CONSUMER_MAX)

    def replays(self, count: int) -> list[Position]:
        """See `Dispatcher.replays`."""
        if self._due:
            return self._due.lowest(count)
        found: list[Position] = []
        for consumer in self.consumers:
            if not consumer.can_take:
                continue
            room = min(consumer.entries_wanted(), count)
            for key_hash in self._ready[consumer]:
                first = self._waiting.line(key_hash)[:room]
                found += first
                room -= len(first)
                if room <= 0:
                    break
        found.sort()
        return found[:count]

    def due(self, positions: Iterable[Position]) -> None:
        """See `Dispatcher.due`."""
        self._due.add(positions)

    def knows(self, position: Position) -> bool:
        """See `Dispatcher.knows`."""
        return position in self._hashes or position in self._waiting or position in self._due

    # --- sending -----------------------------------------------------------------------------

    def dispatch(self, deliveries: Sequence[Delivery]) -> int:
        """See `Dispatcher.dispatch`. What cannot be sent yet is put in line, and so dealt with."""
        if self._check_bound():
            return 0
        shares: dict[Consumer, list[Delivery]] = {}
        permits: dict[Consumer, int] = {}
        ahead = self._ahead_max()
        taken = dealt_with = 0
        for delivery in deliveries:
            position = delivery.position
            waits_as = self._waiting.hash_of(position)
            key_hash = hash_of_entry(delivery.metadata) if waits_as is None else waits_as
            owner = self._division.owner(key_hash)
            if (
                owner is not None
                and owner.can_take
                and permits.setdefault(owner, owner.permits) > 0
                and self._is_drained(key_hash, owner)
                and self._is_next(position, key_hash)
            ):
                permits[owner] -= delivery.message_count
                shares.setdefault(owner, []).append(delivery)
                self._hold(owner, delivery, key_hash)
                dealt_with += 1
            elif waits_as is None:
                if len(self._waiting) >= ahead and position not in self._due:
                    break
                self._wait(position, key_hash)
                dealt_with += 1
            self._due.discard(position)
            taken += 1
        for consumer, share in shares.items():
            consumer.deliver(share)
        self._check_bound()  # before anything is settled: having been there is what counts
        return taken if dealt_with else 0

    def _is_next(self, position: Position, key_hash: int) -> bool:
        """Whether nothing with its hash that waits comes before it."""
        line = self._waiting.line(key_hash)
        return self.sharing.out_of_order or not line or position <= line[0]

    def _hold(self, consumer: Consumer, delivery: Delivery, key_hash: int) -> None:
        position = delivery.position
        consumer.hold(position, delivery.message_count)
        self._leave_line(position, key_hash)
        self._hashes[position] = key_hash
        if not self.sharing.out_of_order:
            self._holders[key_hash] = consumer
            self._held[key_hash] = self._held.get(key_hash, 0) + 1

    def _wait(self, position: Position, key_hash: int) -> None:
        self._waiting.add(position, key_hash)
        self._mark_ready(key_hash)

    def _leave_line(self, position: Position, key_hash: int) -> None:
        self._waiting.discard(position)
        if not self._waiting.line(key_hash):
            owner = self._division.owner(key_hash)
            if owner is not None:
                self._ready[owner].pop(key_hash, None)

    # --- what happens to what was sent -------------------------------------------------------

    def drop_replay(self, position: Position) -> None:
        """See `Dispatcher.drop_replay`."""
        self._due.discard(position)
        key_hash = self._waiting.hash_of(position)
        if key_hash is not None:
            self._leave_line(position, key_hash)

    def _acknowledged(self, consumer: Consumer, position: Position) -> bool:
        if not super()._acknowledged(consumer, position):
            return False
        self._let_go(position)
        return True

    def _let_go(self, position: Position) -> int | None:
        """A consumer no longer holds an entry; its hash, if known, may be drained with that."""
        key_hash = self._hashes.pop(position, None)
        if key_hash is None or key_hash not in self._held:
            return key_hash
        self._held[key_hash] -= 1
        if self._held[key_hash] == 0:
            del self._held[key_hash], self._holders[key_hash]
            if self._waiting.line(key_hash):
                self._mark_ready(key_hash)
        return key_hash

    def _take_back(self, positions: Iterable[Position]) -> None:
        for position in positions:
            key_hash = self._let_go(position)
            if key_hash is not None:
                self._wait(position, key_hash)


def _in_words(sharing: KeySharing) -> str:
    order = "in any order" if sharing.out_of_order else "in order"
    return f"by {'ranges of their own' if sharing.sticky else 'division'}, {order}"
