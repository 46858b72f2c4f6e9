"""Histories made by hand or by a model of a correct broker, for the tests of the rules."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from anabranch.verify.history import SUFFIX, Header
from anabranch.verify.payload import build
from anabranch.verify.record_lines import encode
from anabranch.verify.records import (
    CONNECTION_LOST,
    Ack,
    AckKind,
    CursorAt,
    Delivery,
    Drained,
    End,
    Event,
    MessageId,
    Outcome,
    Place,
    Record,
    Send,
    Sent,
    Subscribed,
    SubscriptionType,
)
from anabranch.verify.rules import Judge
from anabranch.verify.verdict import Verdict, conclude

RUN = "00112233445566ff"
ORDERED = "ordered"
SHARED = "shared"
STEP_S = 0.001


def checksum(message: MessageId, key: str) -> int:
    """Return the checksum that the message's payload has."""
    return build(run=RUN, producer=message.producer, epoch=message.epoch, seq=message.seq, key=key)[
        1
    ]


def sent(seq: int, *, producer: int = 0, epoch: int = 0, key: str = "k") -> Send:
    """Return the record of an attempt."""
    return Send(producer, epoch, seq, key, checksum(MessageId(producer, epoch, seq), key))


def delivered(
    seq: int,
    *,
    entry: int | None = None,
    sub: str = ORDERED,
    producer: int = 0,
    epoch: int = 0,
    key: str = "k",
) -> Delivery:
    """Return the record of a delivery; without an entry the message is stored at its seq."""
    crc = checksum(MessageId(producer, epoch, seq), key)
    place = Place(-1, 1, seq if entry is None else entry, -1)
    return Delivery(sub, f"{sub}-consumer", producer, epoch, seq, key, crc, place)


def receipt(seq: int, *, entry: int | None = None, producer: int = 0, epoch: int = 0) -> Sent:
    """Return the record of an acknowledged send."""
    place = Place(-1, 1, seq if entry is None else entry, -1)
    return Sent(producer, epoch, seq, Outcome.OK, place)


def confirmed(*seqs: int, sub: str = ORDERED, kind: AckKind = AckKind.INDIVIDUAL) -> Ack:
    """Return the record of an answered acknowledgement of messages stored at their seq."""
    places = tuple(Place(-1, 1, seq, -1) for seq in seqs)
    return Ack(sub, f"{sub}-consumer", kind, Outcome.OK, places)


def cursor_at(entry: int, *, sub: str = ORDERED, asked: float = 0.0) -> CursorAt:
    """Return the record of a cursor's position; asked for when it is answered if nothing else."""
    return CursorAt(sub, Place(-1, 1, entry, -1), asked)


def outcome(seq: int, how: Outcome, *, producer: int = 0, epoch: int = 0) -> Sent:
    """Return the record of a send that was not acknowledged."""
    return Sent(producer, epoch, seq, how, error="made")


def subscribed(sub: str = ORDERED) -> Subscribed:
    """Return the record that makes a subscription."""
    kind = SubscriptionType.SHARED if sub == SHARED else SubscriptionType.EXCLUSIVE
    return Subscribed(sub, f"{sub}-consumer", kind)


def stamped(records: Iterable[Record], *, begin: float = 100.0) -> list[Record]:
    """Give each record its time: one step after the one before, or its own if that is later."""
    result: list[Record] = []
    now = begin
    for record in records:
        now = max(now + STEP_S, record.t)
        at = round(now, 6)
        if isinstance(record, CursorAt) and not record.asked:
            record = record._replace(asked=at)
        result.append(record._replace(t=at))
    return result


def judged(records: Iterable[Record], *, dedup: bool = False, ack_lag_s: float = 0.0) -> Verdict:
    """Stamp the records and judge them."""
    judge = Judge(dedup=dedup, ack_lag_s=ack_lag_s)
    for record in stamped(records):
        judge.see(record)
    return conclude(judge)


def broken_rules(verdict: Verdict) -> set[str]:
    """Return the ids of the rules that found something."""
    return {rule.id for rule in verdict.rules if rule.violations}


def write_history(
    folder: Path, client: str, records: Iterable[Record], *, header: Header | None = None
) -> Path:
    """Write records as the history of one client."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{client}{SUFFIX}"
    first = header or Header(run=RUN, client=client, host="made", topic="made")
    path.write_bytes(first.line() + b"".join(map(encode, stamped(records))))
    return path


def correct_run(random: Random, *, sends: int, producers: int = 3, keys: int = 4) -> list[Record]:
    """Let a model of a correct broker serve producers and two subscriptions.

    Some sends fail, some stay unknown (stored never, once or twice), some are sent again by the
    library after a lost connection and stored twice. The log is delivered in order to the ordered
    subscription, in any order to the shared one, and to both with repetitions.
    """
    records: list[Record] = [subscribed(ORDERED), subscribed(SHARED)]
    log: list[Delivery] = []
    seqs = [0] * producers
    for _ in range(sends):
        producer = random.randrange(producers)
        seqs[producer] += random.choice((1, 1, 1, 5))
        _send_one(random, records, log, seqs[producer], producer, f"k{random.randrange(keys)}")
    records += _repeated(random, log)
    shuffled = [record._replace(sub=SHARED) for record in log]
    random.shuffle(shuffled)
    records += _repeated(random, shuffled)
    return [*records, Drained(ORDERED, "made"), Drained(SHARED, "made"), End()]


def _send_one(
    random: Random, records: list[Record], log: list[Delivery], seq: int, producer: int, key: str
) -> None:
    def store() -> None:
        log.append(delivered(seq, entry=len(log), producer=producer, key=key))

    records.append(sent(seq, producer=producer, key=key))
    fate = random.random()
    if fate < 0.05:
        records.append(outcome(seq, Outcome.FAIL, producer=producer))
    elif fate < 0.15:
        for _ in range(random.randrange(3)):
            store()
        if random.random() < 0.5:
            records.append(outcome(seq, Outcome.UNKNOWN, producer=producer))
    else:
        store()
        if fate < 0.2:
            records.append(Event(CONNECTION_LOST, "made", producer))
            store()
        records.append(receipt(seq, entry=len(log) - 1, producer=producer))


def _repeated(random: Random, log: Sequence[Delivery]) -> list[Record]:
    result: list[Record] = []
    for index, record in enumerate(log):
        result.append(record)
        if random.random() < 0.1:
            # After a reconnect the broker starts again at the first unacknowledged message.
            result += log[max(0, index - random.randrange(5)) : index + 1]
    return result
