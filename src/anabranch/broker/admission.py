"""Who may publish to one topic: names, access modes, and the epoch that fences former owners.

An exclusive producer owns its topic under an epoch that is stored before it is admitted. Whoever
comes back with an older one finds out that it was replaced, on this broker or on another.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch.broker.limits import PRODUCERS_WAITING_MAX, TOPIC_EPOCH_MAX
from anabranch.broker.producer import (
    EXCLUSIVE,
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    WAIT_FOR_EXCLUSIVE,
    Producer,
)
from anabranch.broker.refusals import Refused
from anabranch.errors import AlreadyClosed, Terminated
from anabranch.managed_ledger import ManagedLedger
from anabranch.wire import ServerError

EPOCH_PROPERTY: Final = "pulsar.topic.epoch"


class Admission:
    """The producers of one topic."""

    def __init__(
        self, topic: str, ledger: ManagedLedger, check: Callable[[Producer], None]
    ) -> None:
        self.producers: dict[str, Producer] = {}
        self._topic = topic
        self._ledger = ledger
        self._check = check
        self._owner: Producer | None = None
        """The exclusive producer, also while its epoch is being stored."""
        self._waiting: dict[asyncio.Future[None], Producer] = {}
        """By their turns, in their order."""
        self._epoch = _epoch_of(ledger.properties.get(EPOCH_PROPERTY, ""))
        self._drawn = self._epoch
        """The highest epoch given out, stored or not yet."""
        self._closed = False

    async def admit(
        self,
        producer: Producer,
        *,
        on_queued: Callable[[Callable[[], None]], None] = lambda _leave: None,
    ) -> None:
        """Let a producer publish; one that waits for its turn is queued first.

        Args:
            producer: who wants to.
            on_queued: told if it has to wait, with what to call if it does so no longer.

        Raises:
            Refused: with ProducerBusy or ProducerFenced, as its access mode has it.
            Terminated: if the topic was ended for good.
        """
        self._refuse_if_fenced(producer)
        await self._free_name(producer)
        if producer.access_mode in (SHARED, EXCLUSIVE):
            await self._part_from_ghosts(producer)
        self._refuse_if_over()
        self._check(producer)
        self._refuse_if_fenced(producer)  # perhaps while others were asked for a sign of life
        if producer.access_mode == SHARED:
            self._refuse_beside_an_owner(ServerError.ProducerBusy)
            self.producers[producer.name] = producer
            return
        if producer.access_mode == WAIT_FOR_EXCLUSIVE:
            if self._is_taken():
                await self._wait_for_turn(producer, on_queued)
        elif producer.access_mode == EXCLUSIVE_WITH_FENCING:
            self._fence_all(producer)
        else:
            self._refuse_beside_an_owner(ServerError.ProducerFenced)
            if self._is_taken():
                raise Refused(ServerError.ProducerFenced, "Topic has existing shared producers")
        await self._own(producer)

    def remove(self, producer: Producer) -> None:
        """Let a producer go; no error if it went before. Whoever waits longest may be next."""
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
        if self._owner is producer:
            self._owner = None
        self._call_next()

    async def all_settled(self) -> None:
        """Wait until what producers have handed to storage by now is durable, or has failed."""
        events = [asyncio.Event() for _ in self.producers]
        for producer, event in zip(self.producers.values(), events, strict=True):
            producer.after_pending(event.set)
        for event in events:
            await event.wait()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def close(self) -> None:
        """Let all go; those who wait are told to come back."""
        self._closed = True
        self.producers.clear()
        self._owner = None
        waiting, self._waiting = self._waiting, {}
        for turn in waiting:
            if not turn.done():
                turn.set_exception(AlreadyClosed(f"{self._topic} is closed"))

    async def _free_name(self, producer: Producer) -> None:
        while (holder := self.producers.get(producer.name)) is not None:
            same_client = (
                holder.connection is producer.connection
                and holder.producer_id == producer.producer_id
            )
            if same_client and producer.epoch > holder.epoch:
                self._succeed(holder)
                return
            if producer.access_mode == EXCLUSIVE_WITH_FENCING:
                return
            if same_client or await holder.connection.is_alive():
                raise Refused(
                    ServerError.ProducerBusy,
                    f"Producer with name '{producer.name}' is already connected to topic",
                )
            if self.producers.get(producer.name) is holder:
                self._succeed(holder)

    def _succeed(self, holder: Producer) -> None:
        # Not `remove`: its place is not free for those who wait.
        del self.producers[holder.name]
        if self._owner is holder:
            self._owner = None

    async def _part_from_ghosts(self, producer: Producer) -> None:
        """Before somebody is turned away for others: are they there at all?"""
        others = [self._owner] if producer.access_mode == SHARED else self.producers.values()
        for other in list(others):
            if other is None or other.connection is producer.connection:
                continue
            if not await other.connection.is_alive():
                self.remove(other)

    def _refuse_if_fenced(self, producer: Producer) -> None:
        if producer.topic_epoch is not None and producer.topic_epoch < self._drawn:
            raise Refused(
                ServerError.ProducerFenced,
                f"Topic epoch has already moved. Current epoch: {self._drawn}, "
                f"Producer epoch: {producer.topic_epoch}",
            )

    def _refuse_if_over(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"{self._topic} is closed")
        if self._ledger.terminated is not None:
            raise Terminated(f"{self._topic} was terminated at {self._ledger.terminated}")

    def _refuse_beside_an_owner(self, code: ServerError) -> None:
        owner = self._owner or next(iter(self._waiting.values()), None)
        if owner is not None:
            raise Refused(code, f"Topic has an existing exclusive producer: {owner.name}")

    def _is_taken(self) -> bool:
        return bool(self._owner is not None or self.producers or self._waiting)

    async def _wait_for_turn(
        self, producer: Producer, on_queued: Callable[[Callable[[], None]], None]
    ) -> None:
        if len(self._waiting) >= PRODUCERS_WAITING_MAX:
            raise Refused(
                ServerError.ProducerBusy,
                f"{PRODUCERS_WAITING_MAX} producers wait for this topic already",
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = producer

        def leave() -> None:
            self._waiting.pop(turn, None)
            if not turn.done():
                turn.set_exception(AlreadyClosed(f"{producer.name} went away"))

        on_queued(leave)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            self.remove(producer)  # perhaps it was its turn just then
            raise

    def _call_next(self) -> None:
        while self._waiting and self._owner is None and not self.producers:
            turn = next(iter(self._waiting))
            following = self._waiting.pop(turn)
            if not turn.done():  # as it is if whoever waited was cancelled
                self._owner = following
                turn.set_result(None)

    def _fence_all(self, successor: Producer) -> None:
        waiting, self._waiting = self._waiting, {}
        for turn in waiting:
            if not turn.done():
                error = Refused(ServerError.ProducerFenced, f"Fenced by {successor.name}")
                turn.set_exception(error)
        fenced = list(self.producers.values())
        self.producers.clear()
        self._owner = None
        for producer in fenced:
            producer.fence()

    async def _own(self, producer: Producer) -> None:
        self._owner = producer
        epoch = producer.topic_epoch
        if epoch is None or epoch > self._drawn:
            # One above was not drawn for this topic, but for one of that name before.
            epoch = self._drawn = self._drawn + 1
        try:
            # Who waited for its turn was looked at long ago.
            self._refuse_if_over()
            self._check(producer)
            if epoch > self._epoch:
                await self._ledger.set_properties({EPOCH_PROPERTY: str(epoch)})
                self._epoch = max(self._epoch, epoch)
            self._refuse_if_over()
            if self._owner is not producer:
                raise Refused(ServerError.ProducerFenced, f"Topic epoch has moved to {self._drawn}")
        except BaseException:
            if self._owner is producer:
                self._owner = None
                self._call_next()
            raise
        producer.topic_epoch = epoch
        self.producers[producer.name] = producer


def _epoch_of(stored: str) -> int:
    if not (stored.isascii() and stored.isdigit()):
        return -1
    return int(stored) if len(stored) < len(str(TOPIC_EPOCH_MAX)) else TOPIC_EPOCH_MAX
