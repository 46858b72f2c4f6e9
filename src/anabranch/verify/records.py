"""What a history is made of: one small tuple per fact, and its JSON line.

Pure. A send has two lines, `send` before it is handed to the client library and `sent` when its
outcome is known; one without the other is a send whose outcome nobody knows. Keys on disk are
short and never change their meaning: a change of meaning is a new format version.

| kind | keys |
|---|---|
| `send` | `p` producer, `e` epoch, `s` seq, `key`, `crc` |
| `sent` | `p`, `e`, `s`, `r` outcome, `id` place, `err` |
| `recv` | `sub`, `c` consumer, `p`, `e`, `s`, `key`, `crc`, `id` |
| `bad` | `sub`, `c`, `id`, `err`: a delivery that does not identify itself |
| `ack` | `sub`, `c`, `a` individual or cumulative, `r`, `m` list of [p, e, s] |
| `sub` | `sub`, `c`, `type`: the subscription exists from now on |
| `drained` | `sub`, `how`: everything the subscription owes has had its time to arrive |
| `event` | `name`, `about`, `p`: a fault, a phase, a lost connection |
| `end` | the client closed its history |

Every line has `k` (kind) and `t` (seconds of the host's monotonic clock). A place is
[partition, ledger, entry, batch index].
"""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from anabranch.errors import FormatError


class Outcome(StrEnum):
    """How an operation ended. A timeout or a lost connection is unknown, never a failure."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class SubscriptionType(StrEnum):
    """Pulsar's four ways to share a subscription."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAILOVER = "failover"
    KEY_SHARED = "key_shared"

    @property
    def is_ordered(self) -> bool:
        """Whether it promises the order of each key."""
        return self is not SubscriptionType.SHARED


class AckKind(StrEnum):
    """How deliveries are acknowledged."""

    INDIVIDUAL = "individual"
    CUMULATIVE = "cumulative"


CONNECTION_LOST: Final = "connection-lost"
"""A client saw its connection gone; its library sends again what was in flight."""
CONNECTION_RESTORED: Final = "connection-restored"
CONSUMER_CONNECTION_LOST: Final = "consumer-connection-lost"
SERVER_KILLED: Final = "server-killed"
WINDOW_OPENED: Final = "window-opened"
"""From here on trouble is expected, until `WINDOW_CLOSED`."""
WINDOW_CLOSED: Final = "window-closed"


class Place(NamedTuple):
    """Where a message is stored."""

    partition: int
    ledger: int
    entry: int
    batch: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.partition}:{self.batch}"


class MessageId(NamedTuple):
    """Which message, wherever it is stored."""

    producer: int
    epoch: int
    seq: int


class Send(NamedTuple):
    """A message is about to be handed to the client library."""

    producer: int
    epoch: int
    seq: int
    key: str
    crc: int
    t: float = 0.0


class Sent(NamedTuple):
    """The library reported the outcome of a send."""

    producer: int
    epoch: int
    seq: int
    outcome: Outcome
    place: Place | None = None
    error: str = ""
    t: float = 0.0


class Delivery(NamedTuple):
    """A consumer received a message that identifies itself."""

    sub: str
    consumer: str
    producer: int
    epoch: int
    seq: int
    key: str
    crc: int
    place: Place
    t: float = 0.0


class Damaged(NamedTuple):
    """A consumer received bytes that are no message of this run."""

    sub: str
    consumer: str
    place: Place
    error: str
    t: float = 0.0


class Ack(NamedTuple):
    """A consumer acknowledged deliveries; `ok` only if the broker answered."""

    sub: str
    consumer: str
    kind: AckKind
    outcome: Outcome
    messages: tuple[MessageId, ...]
    t: float = 0.0


class Subscribed(NamedTuple):
    """The durable subscription exists."""

    sub: str
    consumer: str
    type: SubscriptionType
    t: float = 0.0


class Drained(NamedTuple):
    """What the subscription owes had its time to arrive: what is missing now is lost."""

    sub: str
    how: str
    t: float = 0.0


class Event(NamedTuple):
    """A fault or a phase, so that a violation can be put beside what happened then."""

    name: str
    about: str = ""
    producer: int | None = None
    t: float = 0.0


class End(NamedTuple):
    """The client closed its history by itself."""

    t: float = 0.0


Record = Send | Sent | Delivery | Damaged | Ack | Subscribed | Drained | Event | End


def encode(record: Record) -> bytes:
    """Return the line of a record, newline included."""
    fields = _FIELDS[type(record)](record)
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _send(r: Any) -> dict[str, Any]:
    return {"k": "send", "t": r.t, "p": r.producer, "e": r.epoch, "s": r.seq, "key": r.key} | {
        "crc": r.crc
    }


def _sent(r: Any) -> dict[str, Any]:
    fields = {"k": "sent", "t": r.t, "p": r.producer, "e": r.epoch, "s": r.seq, "r": r.outcome}
    if r.place is not None:
        fields["id"] = r.place
    if r.error:
        fields["err"] = r.error
    return fields


def _delivery(r: Any) -> dict[str, Any]:
    identity = {"p": r.producer, "e": r.epoch, "s": r.seq, "key": r.key, "crc": r.crc}
    return {"k": "recv", "t": r.t, "sub": r.sub, "c": r.consumer, **identity, "id": r.place}


def _event(r: Any) -> dict[str, Any]:
    fields = {"k": "event", "t": r.t, "name": r.name, "about": r.about}
    if r.producer is not None:
        fields["p"] = r.producer
    return fields


_FIELDS: Final[Mapping[type, Callable[[Any], dict[str, Any]]]] = {
    Send: _send,
    Sent: _sent,
    Delivery: _delivery,
    Damaged: lambda r: (
        {"k": "bad", "t": r.t, "sub": r.sub, "c": r.consumer, "id": r.place, "err": r.error}
    ),
    Ack: lambda r: (
        {"k": "ack", "t": r.t, "sub": r.sub, "c": r.consumer}
        | {"a": r.kind, "r": r.outcome, "m": r.messages}
    ),
    Subscribed: lambda r: {"k": "sub", "t": r.t, "sub": r.sub, "c": r.consumer, "type": r.type},
    Drained: lambda r: {"k": "drained", "t": r.t, "sub": r.sub, "how": r.how},
    Event: _event,
    End: lambda r: {"k": "end", "t": r.t},
}


def _number(fields: dict[str, Any], key: str, below: int = 1 << 64) -> int:
    value = fields[key]
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"{key!r} must be a whole number from 0 up, not {value!r}")
    return value


def _checksum(fields: dict[str, Any]) -> int:
    return _number(fields, "crc", 1 << 32)


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields[key]
    if type(value) is not str:
        raise ValueError(f"{key!r} must be text, not {value!r}")
    return value


def _time(fields: dict[str, Any]) -> float:
    value = fields["t"]
    if type(value) is not float and type(value) is not int:
        raise ValueError(f"'t' must be a number of seconds, not {value!r}")
    return value


def _place(value: Any) -> Place:
    place = Place(*value)
    if not all(type(part) is int for part in place):
        raise ValueError(f"'id' must be four whole numbers, not {value!r}")
    return place


def _identity(d: dict[str, Any]) -> MessageId:
    return MessageId(_number(d, "p"), _number(d, "e"), _number(d, "s"))


def _parse_send(d: dict[str, Any]) -> Record:
    return Send(*_identity(d), _text(d, "key"), _checksum(d), _time(d))


def _parse_sent(d: dict[str, Any]) -> Record:
    place = _place(d["id"]) if "id" in d else None
    return Sent(*_identity(d), Outcome(d["r"]), place, str(d.get("err", "")), _time(d))


def _parse_delivery(d: dict[str, Any]) -> Record:
    identity, place = _identity(d), _place(d["id"])
    sub, consumer, key = _text(d, "sub"), _text(d, "c"), _text(d, "key")
    return Delivery(sub, consumer, *identity, key, _checksum(d), place, _time(d))


def _parse_damaged(d: dict[str, Any]) -> Record:
    return Damaged(_text(d, "sub"), _text(d, "c"), _place(d["id"]), _text(d, "err"), _time(d))


def _parse_ack(d: dict[str, Any]) -> Record:
    messages = tuple(MessageId(*message) for message in d["m"])
    kind, outcome = AckKind(d["a"]), Outcome(d["r"])
    return Ack(_text(d, "sub"), _text(d, "c"), kind, outcome, messages, _time(d))


def _parse_subscribed(d: dict[str, Any]) -> Record:
    return Subscribed(_text(d, "sub"), _text(d, "c"), SubscriptionType(d["type"]), _time(d))


def _parse_event(d: dict[str, Any]) -> Record:
    producer = _number(d, "p") if "p" in d else None
    return Event(_text(d, "name"), _text(d, "about"), producer, _time(d))


_PARSERS: Final[Mapping[str, Callable[[dict[str, Any]], Record]]] = {
    "send": _parse_send,
    "sent": _parse_sent,
    "recv": _parse_delivery,
    "bad": _parse_damaged,
    "ack": _parse_ack,
    "sub": _parse_subscribed,
    "drained": lambda d: Drained(_text(d, "sub"), _text(d, "how"), _time(d)),
    "event": _parse_event,
    "end": lambda d: End(_time(d)),
}


def decode(line: bytes) -> Record:
    """Read one line.

    Raises:
        FormatError: saying what is wrong with it.
    """
    try:
        fields = json.loads(line)
        kind = fields["k"]
        if kind not in _PARSERS:
            raise ValueError(f"unknown kind {kind!r}")
        return _PARSERS[kind](fields)
    except KeyError as error:
        raise FormatError(f"record without {error.args[0]!r}: {_excerpt(line)}") from None
    except (TypeError, ValueError) as error:
        raise FormatError(f"not a record ({error}): {_excerpt(line)}") from None


def _excerpt(line: bytes) -> str:
    return repr(line[:120].decode(errors="replace"))
