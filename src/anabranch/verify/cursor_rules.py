"""Rules about cursors: C5 delivered again after a confirmed ack, C11 cursor regress. Pure."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping

from anabranch.verify.facts import Facts, News
from anabranch.verify.limits import (
    CHECK_MAP_ENTRIES_MAX,
    CURSOR_SNAPSHOTS_MAX,
    UNCONFIRMED_DELIVERIES_MAX,
)
from anabranch.verify.records import (
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    CURSOR_MOVED,
    OWNER_IN_DOUBT,
    REDELIVERY_ASKED,
    SERVER_KILLED,
    WINDOW_CLOSED,
    Ack,
    AckKind,
    CursorAt,
    Delivery,
    Event,
    MessageId,
    Outcome,
    Place,
    Record,
    Subscribed,
)
from anabranch.verify.rule import Handler, Rule
from anabranch.verify.spill import SpilledMap
from anabranch.verify.tables import PlaceBits

_MAKES_COPIES = (CONSUMER_CONNECTION_LOST, REDELIVERY_ASKED, SERVER_KILLED, CURSOR_MOVED)
"""After one of these the broker may send again what it sent before."""


class _Window:
    """The latest first deliveries, between one and two times the bound of them."""

    def __init__(self) -> None:
        self._new: dict[Place, None] = {}
        self._old: dict[Place, None] = {}

    def add(self, place: Place) -> None:
        if len(self._new) == UNCONFIRMED_DELIVERIES_MAX:
            self._old, self._new = self._new, {}
        self._new[place] = None

    def take(self, place: Place) -> Iterator[Place]:
        for places in (self._old, self._new):
            if place in places:
                del places[place]
                yield place

    def take_up_to(self, last: Place) -> Iterator[Place]:
        for places in (self._old, self._new):
            covered = [p for p in places if p.partition == last.partition and p <= last]
            for place in covered:
                del places[place]
                yield place

    def clear(self) -> None:
        self._old, self._new = {}, {}


class _Acknowledged:
    """What one subscription was given and what it confirmed."""

    def __init__(self) -> None:
        self.fresh = _Window()
        """Delivered for the first time, with nothing since that makes the broker send copies."""
        self.confirmed: PlaceBits | None = None
        self.sessions: list[dict[str, PlaceBits]] = [{}]
        """What each consumer confirmed, between one begin of a consumer's session and the next."""
        self.session_of: dict[str, int] = {}
        """The index above at which a consumer's present session began."""
        self.recent: deque[tuple[float, Place]] = deque()
        """Confirmed so lately that a crash now may undo it."""

    def session_begins(self, consumer: str) -> None:
        """What the consumer gets from now on was sent to it from now on."""
        if self.sessions[-1]:
            self.sessions.append({})
        self.session_of[consumer] = len(self.sessions) - 1

    def confirm(self, consumer: str, place: Place) -> None:
        """Keep who confirmed it, and when."""
        if self.confirmed is None:
            self.confirmed = PlaceBits()
        self.confirmed.add(place)
        self.sessions[-1].setdefault(consumer, PlaceBits()).add(place)

    def was_sent_after(self, consumer: str, place: Place) -> bool:
        """Whether what a consumer got was certainly sent after the place was confirmed."""
        began = self.session_of.get(consumer, 0)
        return any(
            place in places and (who == consumer or index < began)
            for index, session in enumerate(self.sessions)
            for who, places in session.items()
        )


class AckedAgain(Rule):
    """C5: a subscription got a message again after its acknowledgement was confirmed.

    A copy that the broker sent before it had the acknowledgement may still arrive after it. Such
    copies have a cause that is on record (a lost connection, a question for redelivery, another
    consumer), so only messages without one between first delivery and confirmation are judged. Of
    another consumer than the one that confirmed, only what its later session got: its queue may
    hold what it was sent before its connection broke without its noticing.
    """

    id = "C5"
    title = "delivered after ack"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.longest_lag_s = 0.0
        """The oldest confirmed acknowledgement that a crash undid, as far as that is allowed."""
        self._subscriptions: dict[str, _Acknowledged] = {}
        self._excused = SpilledMap[tuple[str, int, int, int, int], float](
            "undone acks", facts.spill, entries_max=CHECK_MAP_ENTRIES_MAX
        )
        self._is_crashing = False

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {
            Delivery: self._on_delivery,
            Ack: self._on_ack,
            Event: self._on_event,
            Subscribed: self._on_subscribed,
        }

    def _of(self, sub: str) -> _Acknowledged:
        known = self._subscriptions.get(sub)
        if known is None:
            known = self._subscriptions[sub] = _Acknowledged()
        return known

    def _on_delivery(self, record: Delivery, news: News) -> None:
        known = self._of(record.sub)
        if known.confirmed is not None and record.place in known.confirmed:
            if known.was_sent_after(record.consumer, record.place):
                self._judge(record)
        elif news.is_first_delivery:
            known.fresh.add(record.place)

    def _judge(self, record: Delivery) -> None:
        lag_s = self._excused.get((record.sub, *record.place)) if self.facts.ack_lag_s else None
        if lag_s is not None:
            self.tolerated += 1
            self.longest_lag_s = max(self.longest_lag_s, lag_s)
            return
        self.report(
            f"delivered to {record.sub!r} again after its acknowledgement was confirmed",
            record.t,
            message=MessageId(record.producer, record.epoch, record.seq),
            key=record.key,
            sub=record.sub,
            places=(record.place,),
        )

    def _on_ack(self, record: Ack, _: News) -> None:
        if record.outcome is not Outcome.OK:
            return
        known = self._of(record.sub)
        take = known.fresh.take_up_to if record.kind is AckKind.CUMULATIVE else known.fresh.take
        for named in record.places:
            for place in take(named):
                known.confirm(record.consumer, place)
                self.checked += 1
                if self.facts.ack_lag_s:
                    self._remember(record, known, place)

    def _remember(self, record: Ack, known: _Acknowledged, place: Place) -> None:
        if self._is_crashing:
            self._excused.set((record.sub, *place), 0.0)
        known.recent.append((record.t, place))
        while known.recent[0][0] < record.t - self.facts.ack_lag_s:
            known.recent.popleft()

    def _on_event(self, record: Event, _: News) -> None:
        if record.name in _MAKES_COPIES:
            for sub, known in self._subscriptions.items():
                if not record.sub or record.sub == sub:
                    known.fresh.clear()
        if record.name == CONNECTION_RESTORED and record.sub:
            self._of(record.sub).session_begins(record.about)
        if record.name == SERVER_KILLED:
            self._is_crashing = True
            for sub, known in self._subscriptions.items():
                for t, place in known.recent:
                    if record.t - t <= self.facts.ack_lag_s:
                        self._excused.set((sub, *place), round(record.t - t, 6))
                known.recent.clear()
        elif record.name == WINDOW_CLOSED:
            self._is_crashing = False

    def _on_subscribed(self, record: Subscribed, _: News) -> None:
        known = self._of(record.sub)
        # What the others hold may be sent to the one who came.
        known.fresh.clear()
        known.session_begins(record.consumer)


class _Positions:
    """Where one cursor was seen, as a line that only rises."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.highest: list[Place] = []


class CursorRegress(Rule):
    """C11: a mark-delete position below one that was seen before it was asked for.

    Positions are compared over any operation, but not over a seek or a crash of the owner, and not
    while an owner that was cut off may still tell of what its successor does not know.
    """

    id = "C11"
    title = "cursor regress"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._cursors: dict[tuple[str, int], _Positions] = {}
        self._moved_at: dict[str, float] = {}
        """By subscription; without a name, when all were moved."""
        self._in_doubt = False

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {CursorAt: self._on_cursor, Event: self._on_event}

    def _on_cursor(self, record: CursorAt, _: News) -> None:
        name = record.sub, record.place.partition
        known = self._cursors.get(name)
        if known is None:
            known = self._cursors[name] = _Positions()
        moved = (self._moved_at.get(sub, float("-inf")) for sub in (record.sub, ""))
        if self._in_doubt or record.asked < max(moved):
            return  # nobody knows whether it is of before or after the move
        self.checked += 1
        before = bisect_right(known.times, record.asked)
        if before and record.place < known.highest[before - 1]:
            t, place = known.times[before - 1], known.highest[before - 1]
            self.report(
                f"the cursor of {record.sub!r} is below {place}, where it was at t={t}",
                record.t,
                sub=record.sub,
                places=(place, record.place),
            )
        if not known.highest or record.place > known.highest[-1]:
            known.times.append(record.t)
            known.highest.append(record.place)
        if len(known.times) > CURSOR_SNAPSHOTS_MAX:
            del known.times[: CURSOR_SNAPSHOTS_MAX // 2]
            del known.highest[: CURSOR_SNAPSHOTS_MAX // 2]

    def _on_event(self, record: Event, _: News) -> None:
        # A crash undoes what was acknowledged and not confirmed: an operation must not.
        if record.name == WINDOW_CLOSED:
            if not self._in_doubt:
                return
            self._in_doubt = False
        elif record.name == OWNER_IN_DOUBT:
            self._in_doubt = True
        elif record.name not in (CURSOR_MOVED, SERVER_KILLED):
            return
        self._moved_at[record.sub] = record.t
        for (sub, _partition), known in self._cursors.items():
            if not record.sub or record.sub == sub:
                known.times, known.highest = [], []
