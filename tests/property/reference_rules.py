"""The rules once more, slow and obvious: each looks at the whole history, as often as it likes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.verify.records import (
    CONNECTION_LOST,
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    CURSOR_MOVED,
    OWNER_IN_DOUBT,
    REDELIVERY_ASKED,
    SERVER_KILLED,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Ack,
    AckKind,
    CursorAt,
    Damaged,
    Delivery,
    Drained,
    Event,
    Outcome,
    Place,
    Record,
    Send,
    Sent,
    Subscribed,
)

Message = tuple[int, int, int]
Found = tuple[str, object, object]
"""Rule, message (or time where there is none), subscription or place."""


class Said(NamedTuple):
    """What a rule said of a history."""

    found: list[Found]
    tolerated: int = 0


class History:
    """All records of a run, and the questions that several rules ask."""

    def __init__(self, records: Sequence[Record], *, dedup: bool, ack_lag_s: float) -> None:
        self.records = records
        self.dedup = dedup
        self.ack_lag_s = ack_lag_s
        self.messages = sorted({name(r) for r in records if isinstance(r, Send)})
        self.subs = {r.sub: r for r in reversed(records) if isinstance(r, Subscribed)}

    def sends(self, message: Message) -> list[Send]:
        return [r for r in self.records if isinstance(r, Send) and name(r) == message]

    def outcomes(self, message: Message) -> list[Sent]:
        return [r for r in self.records if isinstance(r, Sent) and name(r) == message]

    def is_ok(self, message: Message) -> bool:
        return any(r.outcome is Outcome.OK for r in self.outcomes(message))

    def is_unknown(self, message: Message) -> bool:
        certain = [r for r in self.outcomes(message) if r.outcome is not Outcome.UNKNOWN]
        return len(self.sends(message)) > len(certain)

    def deliveries(self, sub: str | None = None) -> list[Delivery]:
        return [r for r in self.records if isinstance(r, Delivery) and sub in (None, r.sub)]

    def got(self, sub: str) -> set[Message]:
        return {name(r) for r in self.deliveries(sub)}

    def events(self, *names: str) -> list[Event]:
        return [r for r in self.records if isinstance(r, Event) and r.name in names]

    def pairs(self) -> list[tuple[Message, Place]]:
        """Each message and place it was seen at, once, after its send, as they were seen."""
        sent: set[Message] = set()
        pairs: dict[tuple[Message, Place], None] = {}
        for r in self.records:
            if isinstance(r, Send):
                sent.add(name(r))
            if isinstance(r, Sent | Delivery) and r.place is not None and name(r) in sent:
                pairs[name(r), r.place] = None
        return list(pairs)


def name(record: Send | Sent | Delivery) -> Message:
    return record.producer, record.epoch, record.seq


def lost(h: History) -> Said:
    found: list[Found] = []
    for message in h.messages:
        for sub, made in h.subs.items():
            drains = [r for r in h.records if isinstance(r, Drained) and r.sub == sub]
            is_owed = h.is_ok(message) and h.sends(message)[0].t >= made.t
            is_over = is_owed and drains and h.outcomes(message)[-1].t <= drains[-1].t
            if is_over and message not in h.got(sub):
                found.append(("C1", message, sub))
    return Said(found)


def phantom(h: History) -> Said:
    found: list[Found] = [("C2", r.t, r.sub) for r in h.records if isinstance(r, Damaged)]
    for r in h.deliveries():
        sends = h.sends(name(r))
        if not sends or sends[0].t > r.t + 1.0 or sends[0].crc != r.crc:
            found.append(("C2", name(r), r.sub))
    return Said(found)


def aborted_read(h: History) -> Said:
    found: list[Found] = []
    for message in h.messages:
        outcomes = [r.outcome for r in h.outcomes(message)]
        if len(h.sends(message)) == len(outcomes) and set(outcomes) == {Outcome.FAIL}:
            found += [("C3", message, sub) for sub in h.subs if message in h.got(sub)]
    return Said(found)


def stored_twice(h: History) -> Said:
    found: list[Found] = []
    tolerated = 0
    for message in h.messages:
        if len([place for who, place in h.pairs() if who == message]) < 2:
            continue
        begun = h.sends(message)[0].t
        ended = h.outcomes(message)[-1].t if h.outcomes(message) else 0.0
        cut = any(
            begun <= r.t <= ended and r.producer in (message[0], None)
            for r in h.events(CONNECTION_LOST, SERVER_KILLED)
        )
        if (h.is_unknown(message) or cut) and not h.dedup:
            tolerated += 1
        else:
            found.append(("C4", message, None))
    return Said(found, tolerated)


def _covers(ack: Ack, place: Place) -> bool:
    if ack.outcome is not Outcome.OK:
        return False
    if ack.kind is AckKind.INDIVIDUAL:
        return place in ack.places
    return any(place.partition == last.partition and place <= last for last in ack.places)


def _makes_copies(record: Record, sub: str) -> bool:
    if isinstance(record, Subscribed):
        return record.sub == sub
    causes = (CONSUMER_CONNECTION_LOST, REDELIVERY_ASKED, SERVER_KILLED, CURSOR_MOVED)
    return isinstance(record, Event) and record.name in causes and record.sub in ("", sub)


def acked_again(h: History) -> Said:
    found: list[Found] = []
    tolerated = 0
    for index, r in enumerate(h.records):
        if not isinstance(r, Delivery):
            continue
        confirmed = _confirmed_before(h, index, r)
        if confirmed is None:
            continue
        if _may_be_undone(h, confirmed, index):
            tolerated += 1
        else:
            found.append(("C5", name(r), r.sub))
    return Said(found, tolerated)


def _confirmed_before(h: History, index: int, r: Delivery) -> int | None:
    """The first confirmation, before a delivery, that no copy can have crossed."""
    for first, d in enumerate(h.records[:index]):
        if isinstance(d, Delivery) and d.sub == r.sub and d.place == r.place:
            earlier = [e for e in h.records[:first] if isinstance(e, Delivery) and e.sub == d.sub]
            if name(d) in map(name, earlier):
                continue
            for at in range(first + 1, index):
                ack = h.records[at]
                if _makes_copies(ack, r.sub):
                    break
                if isinstance(ack, Ack) and ack.sub == r.sub and _covers(ack, r.place):
                    later = h.records[at:index]
                    if ack.consumer == r.consumer or any(_begins(e, r) for e in later):
                        return at
                    return None
    return None


def _begins(record: Record, r: Delivery) -> bool:
    """Whether a session of the consumer that got a delivery begins."""
    if isinstance(record, Subscribed):
        return (record.sub, record.consumer) == (r.sub, r.consumer)
    restored = isinstance(record, Event) and record.name == CONNECTION_RESTORED
    return restored and (record.sub, record.about) == (r.sub, r.consumer)  # type: ignore[union-attr]


def _may_be_undone(h: History, confirmed: int, delivered: int) -> bool:
    crashing = False
    for index, r in enumerate(h.records[:delivered]):
        if isinstance(r, Event) and r.name == SERVER_KILLED:
            crashing = True
            if index > confirmed and r.t - h.records[confirmed].t <= h.ack_lag_s:
                return h.ack_lag_s > 0
        if isinstance(r, Event) and r.name == WINDOW_CLOSED:
            crashing = False
        if index == confirmed and crashing:
            return h.ack_lag_s > 0
    return False


def key_order(h: History) -> Said:
    found: list[Found] = []
    for sub, made in h.subs.items():
        firsts: dict[Message, Delivery] = {}
        for r in h.deliveries(sub):
            firsts.setdefault(name(r), r)
        for r in firsts.values() if made.type.is_ordered else ():
            before = list(firsts.values())[: list(firsts.values()).index(r)]
            group = r.producer, r.epoch, r.key or r.place.partition
            same = [
                e.seq for e in before if (e.producer, e.epoch, e.key or e.place.partition) == group
            ]
            if any(seq > r.seq for seq in same):
                found.append(("C6", name(r), sub))
    return Said(found)


def place_order(h: History) -> Said:
    found: list[Found] = []
    receipts = [r for r in h.records if isinstance(r, Sent) and r.outcome is Outcome.OK and r.place]
    for index, r in enumerate(receipts):
        for e in reversed(receipts[:index]):
            assert e.place is not None
            assert r.place is not None
            if (e.producer, e.epoch, e.place[0]) == (r.producer, r.epoch, r.place[0]):
                if r.seq <= e.seq or r.place <= e.place:
                    found.append(("C7", name(r), None))
                break
    return Said(found)


def divergent_place(h: History) -> Said:
    pairs = h.pairs()
    return Said(
        [
            ("C8", message, None)
            for index, (message, place) in enumerate(pairs)
            if place in [taken for _, taken in pairs[:index]]
        ]
    )


def split_ownership(h: History) -> Said:
    receipts = [
        (index, r, r.place)
        for index, r in enumerate(h.records)
        if isinstance(r, Sent) and r.outcome is Outcome.OK and r.place is not None
    ]
    found: list[Found] = []
    for index, r, place in receipts:
        begun = min(s.t for s in h.sends(name(r)))
        later = [
            other.t
            for before, other, at in receipts
            if before < index and at.partition == place.partition and at.ledger > place.ledger
        ]
        if any(t < begun for t in later):
            found.append(("C13", name(r), None))
    return Said(found)


def cursor_regress(h: History) -> Said:
    found: list[Found] = []
    events = [(at, e.name) for at, e in enumerate(h.records) if isinstance(e, Event)]
    doubts = {
        begin: min((at for at, e in events if e == WINDOW_CLOSED and at > begin), default=1 << 60)
        for begin, name in events
        if name == OWNER_IN_DOUBT
    }
    ends = set(doubts) | set(doubts.values())
    for index, r in enumerate(h.records):
        if not isinstance(r, CursorAt):
            continue
        moves = [
            at
            for at, e in enumerate(h.records[:index])
            if isinstance(e, Event)
            and (e.name in (CURSOR_MOVED, SERVER_KILLED) or at in ends)
            and e.sub in ("", r.sub)
        ]
        moved_at = max((h.records[at].t for at in moves), default=float("-inf"))
        since = moves[-1] if moves else 0
        before = [
            e
            for e in h.records[since:index]
            if isinstance(e, CursorAt)
            and (e.sub, e.place.partition) == (r.sub, r.place.partition)
            and moved_at <= e.asked <= e.t <= r.asked
        ]
        doubted = any(begin <= index < end for begin, end in doubts.items())
        if not doubted and r.asked >= moved_at and any(e.place > r.place for e in before):
            found.append(("C11", r.t, r.sub))
    return Said(found)


def stuck(h: History) -> Said:
    found: list[Found] = []
    for producer, epoch in sorted({message[:2] for message in h.messages}):
        own = [
            r
            for r in h.records
            if isinstance(r, Send | Sent) and (r.producer, r.epoch) == (producer, epoch)
        ]
        for since, until in _waits(own):
            allowed = 30.0 if _in_window(h, since, until) else 5.0
            if until - since > allowed:
                found.append(("C14", since, None))
    return Said(found)


def _waits(own: Sequence[Send | Sent]) -> Iterator[tuple[float, float]]:
    waiting, since = 0, 0.0
    for r in own:
        if isinstance(r, Send):
            since = since if waiting else r.t
            waiting += 1
        else:
            waiting -= 1
            if r.outcome is not Outcome.UNKNOWN or not waiting:
                yield since, r.t
                since = r.t
    if waiting:
        yield since, own[-1].t


def _in_window(h: History, since: float, until: float) -> bool:
    opened: list[float] = []
    windows: list[tuple[float, float]] = []
    for r in h.events(WINDOW_OPENED, WINDOW_CLOSED):
        if r.name == WINDOW_OPENED:
            opened.append(r.t)
        elif opened:
            windows.append((opened.pop(), r.t))
    windows += [(t, float("inf")) for t in opened]
    return any(a <= until and since <= b for a, b in windows)


RULES = {
    "C1": lost,
    "C2": phantom,
    "C3": aborted_read,
    "C4": stored_twice,
    "C5": acked_again,
    "C6": key_order,
    "C7": place_order,
    "C8": divergent_place,
    "C11": cursor_regress,
    "C13": split_ownership,
    "C14": stuck,
}
