"""Rules about order, places and time: C6 key order, C7, C8 positions, C14 stuck. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.verify.facts import Facts, News
from anabranch.verify.limits import CHECK_MAP_ENTRIES_MAX, STUCK_S_MAX
from anabranch.verify.records import Delivery, MessageId, Outcome, Place, Record, Send, Sent
from anabranch.verify.rule import Handler, Rule
from anabranch.verify.spill import SpilledMap
from anabranch.verify.tables import PlaceBits

_LONG_WAIT_S: Final = 1.0

assert _LONG_WAIT_S < STUCK_S_MAX, "a wait that may be too long must be kept"


@dataclass(slots=True)
class _Waiting:
    pending: int = 0
    since: float = 0.0
    last: float = 0.0


class Wait(NamedTuple):
    """A producer that had no receipt for long."""

    since: float
    until: float
    producer: int
    in_window: bool = False


class KeyOrder(Rule):
    """C6: on an ordered subscription, first deliveries of one producer and key rise in seq."""

    id = "C6"
    title = "key order"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._last = SpilledMap[tuple[str, int, int, str | int], int](
            "last of key", facts.spill, entries_max=CHECK_MAP_ENTRIES_MAX
        )

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {Delivery: self._on_delivery}

    def _on_delivery(self, record: Delivery, news: News) -> None:
        if not news.is_first_delivery or not self.facts.subscriptions[record.sub].type.is_ordered:
            return
        self.checked += 1
        # Without a key, a producer's order holds within each partition.
        group = (record.sub, record.producer, record.epoch, record.key or record.place.partition)
        last = self._last.get(group)
        if last is None or record.seq > last:
            self._last.set(group, record.seq)
            return
        self.report(
            f"first delivered to {record.sub!r} after seq {last}",
            record.t,
            message=MessageId(record.producer, record.epoch, record.seq),
            key=record.key,
            sub=record.sub,
            places=(record.place,),
        )


class PlaceOrder(Rule):
    """C7: the receipts of one producer come in the order of seq and of place."""

    id = "C7"
    title = "position order"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._last: dict[tuple[int, int, int], tuple[int, Place]] = {}

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {Sent: self._on_sent}

    def _on_sent(self, record: Sent, _: News) -> None:
        place = record.place
        if record.outcome is not Outcome.OK or place is None:
            return
        self.checked += 1
        group = (record.producer, record.epoch, place.partition)
        last_seq, last_place = self._last.get(group, (-1, None))
        if last_place is not None and (record.seq <= last_seq or place <= last_place):
            self.report(
                f"its receipt follows that of seq {last_seq} at {last_place}",
                record.t,
                message=MessageId(record.producer, record.epoch, record.seq),
                places=(last_place, place),
            )
        self._last[group] = record.seq, place


class DivergentPlace(Rule):
    """C8: one place, two messages."""

    id = "C8"
    title = "divergent position"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._taken = PlaceBits()

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {Sent: self._on_place, Delivery: self._on_place}

    def _on_place(self, record: Sent | Delivery, news: News) -> None:
        place = record.place
        if place is None or not news.is_new_place:
            return
        self.checked += 1
        if not self._taken.add(place):
            self.report(
                f"another message was seen at {place} before",
                record.t,
                message=MessageId(record.producer, record.epoch, record.seq),
                places=(place,),
            )


class Stuck(Rule):
    """C14: a producer waited too long for any receipt."""

    id = "C14"
    title = "stuck"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self.long_waits: list[Wait] = []
        self.longest_s = 0.0
        self.longest_in_window_s = 0.0

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {Send: self._on_send, Sent: self._on_sent}

    def _on_send(self, record: Send, _: News) -> None:
        name = record.producer, record.epoch
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = _Waiting()
        if not waiting.pending:
            waiting.since = record.t
        waiting.pending += 1
        waiting.last = record.t

    def _on_sent(self, record: Sent, _: News) -> None:
        waiting = self._waiting[record.producer, record.epoch]
        is_progress = record.outcome is not Outcome.UNKNOWN
        if is_progress or waiting.pending == 1:
            self._end_wait(record.producer, waiting.since, record.t)
        if is_progress:
            waiting.since = record.t
        waiting.pending -= 1
        waiting.last = record.t

    def _end_wait(self, producer: int, since: float, until: float) -> None:
        self.checked += 1
        if until - since > _LONG_WAIT_S:
            # Judged at the end: the window it falls into may not be closed yet.
            self.long_waits.append(Wait(since, until, producer))
        else:
            self.longest_s = max(self.longest_s, until - since)

    def conclude(self) -> None:
        """Judge the long waits, up to its last sign of life that of a client that died waiting."""
        for (producer, _), waiting in self._waiting.items():
            if waiting.pending:
                self._end_wait(producer, waiting.since, waiting.last)
        self.long_waits = [
            wait._replace(in_window=self.facts.in_window(wait.since, wait.until))
            for wait in self.long_waits
        ]
        for since, until, producer, in_window in self.long_waits:
            waited = until - since
            if in_window:
                allowed = self.facts.wait_in_window_s
                self.longest_in_window_s = max(self.longest_in_window_s, waited)
            else:
                allowed = STUCK_S_MAX
                self.longest_s = max(self.longest_s, waited)
            if waited > allowed:
                self.report(
                    f"producer {producer} had no receipt for {waited:.1f} s, {allowed:g} s allowed",
                    since,
                )
