"""One subscription: a cursor, its consumers, and the reading that feeds them.

All state changes happen in plain functions on the owner's loop. At most one storage read is in
flight; the tail of a topic is served from the entry cache without any await.
"""

import asyncio
from collections.abc import Callable, Sequence

from anabranch import limits
from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.delayed import Delaying
from anabranch.broker.deliveries import cached_replays, first_deliveries, replayed, take_over
from anabranch.broker.dispatch import Dispatcher
from anabranch.broker.handover import Handover
from anabranch.broker.mishaps import Spawns
from anabranch.broker.policies.delivery_rules import DeliveryRules
from anabranch.broker.refusals import Refused
from anabranch.broker.stall import Stall, concerns_one_entry
from anabranch.broker.subscription_types import TYPE_NAMES, new_dispatcher
from anabranch.broker.throttling import DispatchThrottle
from anabranch.broker.traffic import Expired, Traffic
from anabranch.broker.visibility import Visibility
from anabranch.errors import AnabranchError, ProtocolError
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger import Cursor, ManagedLedger, newest_matching
from anabranch.runtime.network import Buffer
from anabranch.wire import Ack, ServerError, publish_time_ms


class Subscription:
    """What a topic keeps for one named group of consumers."""

    def __init__(
        self,
        name: str,
        *,
        ledger: ManagedLedger,
        cursor: Cursor,
        visibility: Visibility,
        tasks: Spawns,
        on_failure: Callable[[Exception], None],
        on_abandoned: Callable[["Subscription"], None],
        rules: DeliveryRules | None = None,
    ) -> None:
        self.name = name
        self.traffic = Traffic()
        self.expired = Expired()
        self.last_flow_ms = self.last_ack_ms = 0
        self.attachments = 0
        """How often somebody came to consume."""
        self._rules = rules or DeliveryRules()
        self.cursor = cursor
        self._ledger = ledger
        self._visibility = visibility
        self._tasks = tasks
        self._on_failure = on_failure
        self._on_abandoned = on_abandoned
        self.throttle: DispatchThrottle | None = None
        self._dispatcher: Dispatcher | None = None
        self._read_position = ledger.next_position(cursor.mark_delete)
        self._reading = False
        self._resting = False
        self._stall = Stall(name, self.wake)
        self._delaying = Delaying(ledger.clock, self._due, self._rules)
        self._handover = Handover(lambda: self._dispatcher, rewind=self._rewind, wake=self.wake)
        self._generation = 0
        """Raised by every rewind, so that a read begun before it is thrown away."""
        self._seeking = False
        self._moving = False
        """A seek waits for the disk; nothing is sent meanwhile."""
        self._awaited: asyncio.TimerHandle | None = None
        """Until it fires, consumers that a seek closed are expected back."""

    # --- consumers ---------------------------------------------------------------------------

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Who is attached now."""
        return self._dispatcher.consumers if self._dispatcher is not None else ()

    @property
    def is_blocked(self) -> bool:
        """Whether too much is unacknowledged for anything new to be sent."""
        return self._dispatcher is not None and self._dispatcher.is_blocked

    @property
    def delayed(self) -> int:
        """Entries that are kept back until their time."""
        return len(self._delaying.entries)

    @property
    def type_name(self) -> str:
        """How messages are shared out among those attached."""
        return "None" if self._dispatcher is None else TYPE_NAMES[self._dispatcher.type_number]

    def add_consumer(self, consumer: Consumer, type_number: int) -> None:
        """Attach a consumer.

        Raises:
            Refused: if the type differs from the connected ones', or is taken.
        """
        consumer.totals = self.traffic
        self.attachments += 1
        if self.consumers:
            assert self._dispatcher is not None
            if self._dispatcher.type_number != type_number:
                raise Refused(
                    ServerError.ConsumerBusy,
                    f"Subscription is of different type: {TYPE_NAMES[self._dispatcher.type_number]}"
                    f" consumers are connected",
                )
            self._dispatcher.add(consumer)
            self._stall.end()
            self._handover.look_later()
            self.wake()
            return
        dispatcher = new_dispatcher(type_number, self._ledger.name, consumer)
        dispatcher.add(consumer)
        self._dispatcher = dispatcher
        self._stop_awaiting()
        self._rewind()
        self._handover.look_later()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach a consumer; what it held unacknowledged goes to the others."""
        if self._dispatcher is not None and self._dispatcher.remove(consumer):
            self._rewind()
        self._handover.look()
        self.wake()
        self.end_if_abandoned()

    def close(self) -> None:
        """Disconnect everybody and send nothing any more; its topic is closed."""
        consumers, self._dispatcher = list(self.consumers), None
        self._generation += 1
        self._stall.end()
        self._delaying.clear()
        self._handover.stop()
        self._stop_awaiting()
        for consumer in consumers:
            consumer.disconnect()

    def end_if_abandoned(self) -> None:
        """Give a subscription that is not durable up once nobody is attached or awaited."""
        if not (self.cursor.is_durable or self.consumers or self._seeking or self._awaited):
            self._on_abandoned(self)

    def _stop_awaiting(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None

    def _await_no_longer(self) -> None:
        self._awaited = None
        self.end_if_abandoned()

    def _rewind(self) -> None:
        self._generation += 1
        self._stall.end()
        self._delaying.clear()
        self._read_position = self._ledger.next_position(self.cursor.mark_delete)

    # --- what consumers ask ------------------------------------------------------------------

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Let a consumer be sent more messages."""
        consumer.permits += permits
        self.last_flow_ms = self._rules.now_ms()
        self.wake()

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None
    ) -> None:
        """Send unacknowledged entries again: those named, or all that the consumer holds."""
        if self._dispatcher is None:
            return
        if epoch is not None:
            consumer.epoch = max(epoch, consumer.epoch or 0)
        if self._dispatcher.redeliver(consumer, positions):
            self._rewind()
        self.wake()

    def acknowledge(self, consumer: Consumer, ack: Ack) -> None:
        """Take acknowledgements over into the cursor; they become durable with its next flush."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            return
        take_over(ack, consumer, self.cursor, dispatcher)
        self.last_ack_ms = self._rules.now_ms()
        consumer.traffic.acknowledged += len(ack.message_ids)
        self.traffic.acknowledged += len(ack.message_ids)
        if self._stall.position == self._read_position:
            self._read_position = self.cursor.next_unacknowledged(self._read_position)
        # Somebody else may have held it, and may be able to take more now.
        self.wake()

    # --- seeking -----------------------------------------------------------------------------

    async def seek(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Go on from a position, durably; of a batch there only with the messages of a set.

        If that cannot be stored the consumers are closed all the same, and come back to where
        they were.

        Raises:
            Refused: if a seek is under way.
            InputError: if the set is larger than any batch can be; nothing was changed.
            AnabranchError: if it could not be stored; the cursor has not moved.
        """
        self._begin_seek()
        try:
            await self._move(position, ack_set)
        finally:
            self._seeking = False

    async def seek_to_time(self, time_ms: int) -> None:
        """Go on with the first entry that was published at or after a time, durably.

        Raises:
            Refused: if a seek is under way.
        """
        self._begin_seek()
        try:
            earlier = await newest_matching(
                self._ledger,
                self._visibility.last_readable(),
                lambda entry: _is_published_before(entry, time_ms),
            )
            await self._move(self._ledger.next_position(EARLIEST if earlier is None else earlier))
        finally:
            self._seeking = False

    def _begin_seek(self) -> None:
        if self._seeking:
            raise Refused(ServerError.UnknownError, f"a seek of {self.name} is under way")
        self._seeking = True

    async def _move(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Move the cursor and send everybody away: what is in their queues is of before.

        Those who come while it is not durable yet wait: it may turn out not to have moved.
        """
        moved = self.cursor.move(position, ack_set)
        self._moving = True
        try:
            self._send_away()
            await moved
        finally:
            self._moving = False
            self._rewind()
            self.wake()

    def _send_away(self) -> None:
        consumers = list(self.consumers)
        for consumer in consumers:
            assert self._dispatcher is not None
            self._dispatcher.remove(consumer)
        self._rewind()
        if consumers and not self.cursor.is_durable:
            self._stop_awaiting()
            self._awaited = asyncio.get_running_loop().call_later(
                limits.RETURN_AFTER_SEEK_S_MAX, self._await_no_longer
            )
        for consumer in consumers:
            consumer.disconnect()

    # --- reading and sending -----------------------------------------------------------------

    def wake(self) -> None:
        """Send what can be sent now, and no more at once than a peer's socket can answer for."""
        dispatcher = self._dispatcher
        batches = 0
        while dispatcher is not None and not (self._reading or self._resting or self._moving):
            if batches == limits.DISPATCH_BATCHES_PER_TURN_MAX:
                self._resting = True
                asyncio.get_running_loop().call_soon(self._rested)
                return
            batches += 1
            wanted = dispatcher.entries_wanted()
            if self.throttle is not None:
                wanted = self.throttle.room_for(wanted)
            if wanted == 0:
                return
            self._read_position = self._delaying.read_on_from(self._read_position)
            replays = dispatcher.replays(wanted)
            start = replays[0] if replays else self._read_position
            if start > self._visibility.last_readable() or start == self._stall.position:
                return
            if replays:
                entries, replays = cached_replays(self._ledger, replays)
            else:
                entries = self._ledger.read_cached(start, wanted, limits.READ_BATCH_BYTES_MAX)
            if entries is None:
                self._reading = True
                count = len(replays) or wanted
                # The generation of now: a rewind may come before the task has begun.
                read = self._read(start, count, replays, self._generation)
                self._tasks.spawn(f"read {self.name}", read)
                return
            if not self._deliver(entries, replays):
                return

    def _rested(self) -> None:
        # What was sent is in the sockets now, and those that are full have said so.
        self._resting = False
        self.wake()

    async def _read(
        self, start: Position, count: int, replays: list[Position], generation: int
    ) -> None:
        last_seen = self._visibility.last_readable()
        try:
            entries = await self._ledger.read(start, count, limits.READ_BATCH_BYTES_MAX)
        except AnabranchError as error:
            if not concerns_one_entry(error):
                self._on_failure(error)
                return
            self._reading = False
            if generation != self._generation or not self._stalls_at(start, replays, error):
                self.wake()
            return
        finally:
            self._reading = False
        if generation == self._generation and not entries:
            self._pass_trimmed(last_seen, replays)
        if generation != self._generation or not entries or self._deliver(entries, replays):
            self.wake()

    def _stalls_at(self, start: Position, replays: list[Position], error: Exception) -> bool:
        """Wait at an entry that cannot be read; False if it is acknowledged, and passed by."""
        if not replays:
            # Where it is now, should a ledger have ended before it meanwhile.
            start = self._ledger.next_position(self._ledger.previous_position(start))
            self._read_position = self.cursor.next_unacknowledged(start)
        if self.cursor.is_acknowledged(start):
            if self._dispatcher is not None:
                self._dispatcher.drop_replay(start)
            return False
        self._stall.begin(start, error)
        return True

    def _pass_trimmed(self, last_seen: Position, replays: list[Position]) -> None:
        """Nothing is left up to `last_seen`: it was trimmed while it was being read."""
        if self._dispatcher is not None:
            for position in replays:
                self._dispatcher.drop_replay(position)
        if not replays:
            self._read_position = self._ledger.next_position(last_seen)

    def _deliver(self, entries: list[Entry], replays: list[Position]) -> bool:
        """Send entries that were read; false if there is nothing to go on with."""
        dispatcher = self._dispatcher
        if dispatcher is None or not entries:
            return False
        if replays:
            return self._deliver_again(dispatcher, entries, replays)
        deliveries, passed = first_deliveries(
            entries, self.cursor, self._visibility, dispatcher, self._delaying
        )
        if passed is None:
            return False
        sent = self._dispatch(dispatcher, deliveries) if deliveries else 0
        if sent < len(deliveries):
            self._read_position = deliveries[sent].position
            self._delaying.went_back(self._ledger.next_position(passed))
            return False
        self._read_position = self._ledger.next_position(passed)
        return True

    def _deliver_again(
        self, dispatcher: Dispatcher, entries: list[Entry], replays: list[Position]
    ) -> bool:
        found = replayed(entries, replays, self.cursor, self._visibility, dispatcher)
        return not found or self._dispatch(dispatcher, found) == len(found)

    def _dispatch(self, dispatcher: Dispatcher, deliveries: list[Delivery]) -> int:
        sent = dispatcher.dispatch(deliveries)
        if self.throttle is not None:
            self.throttle.charge(deliveries[:sent])
        return sent

    def _due(self, positions: list[Position]) -> None:
        if self._dispatcher is not None:
            self._dispatcher.due(positions)
            self.wake()


def _is_published_before(entry: Buffer, time_ms: int) -> bool:
    try:
        return publish_time_ms(entry) < time_ms
    except ProtocolError:
        return False  # what nobody can read is not passed over
