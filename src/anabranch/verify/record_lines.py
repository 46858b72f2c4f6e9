"""The JSON line of each record. Pure.

Keys on disk are short and never change their meaning: a change of meaning is a new format version.

| kind | keys |
|---|---|
| `send` | `p` producer, `e` epoch, `s` seq, `key`, `crc` |
| `sent` | `p`, `e`, `s`, `r` outcome, `id` place, `err` |
| `recv` | `sub`, `c` consumer, `p`, `e`, `s`, `key`, `crc`, `id` |
| `bad` | `sub`, `c`, `id`, `err`: a delivery that does not identify itself |
| `ack` | `sub`, `c`, `a` individual or cumulative, `r`, `id` list of places |
| `cursor` | `sub`, `id` mark-delete position, `t0` when it was asked for |
| `sub` | `sub`, `c`, `type`: the subscription exists from now on |
| `drained` | `sub`, `how`: everything the subscription owes has had its time to arrive |
| `event` | `name`, `about`, `p`, `sub`: a fault, a phase, a lost connection |
| `end` | the client closed its history |

Every line has `k` (kind) and `t` (seconds of the host's monotonic clock). A place is
[partition, ledger, entry, batch index].
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.errors import FormatError
from anabranch.verify.records import (
    Ack,
    AckKind,
    CursorAt,
    Damaged,
    Delivery,
    Drained,
    End,
    Event,
    Outcome,
    Place,
    Record,
    Send,
    Sent,
    Subscribed,
    SubscriptionType,
)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


_scan: Final = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]
_NUMBERS: Final = 1 << 64
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}


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
    if r.sub:
        fields["sub"] = r.sub
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
        | {"a": r.kind, "r": r.outcome, "id": r.places}
    ),
    CursorAt: lambda r: {"k": "cursor", "t": r.t, "sub": r.sub, "id": r.place, "t0": r.asked},
    Subscribed: lambda r: {"k": "sub", "t": r.t, "sub": r.sub, "c": r.consumer, "type": r.type},
    Drained: lambda r: {"k": "drained", "t": r.t, "sub": r.sub, "how": r.how},
    Event: _event,
    End: lambda r: {"k": "end", "t": r.t},
}


def _number(fields: dict[str, Any], key: str, below: int = _NUMBERS) -> int:
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


def _time(fields: dict[str, Any], key: str = "t") -> float:
    value = fields[key]
    if type(value) is not float and type(value) is not int:
        raise ValueError(f"{key!r} must be a number of seconds, not {value!r}")
    return value


def _place(value: Any) -> Place:
    partition, ledger, entry, batch = value
    if not type(partition) is type(ledger) is type(entry) is type(batch) is int:
        raise ValueError(f"'id' must be four whole numbers, not {value!r}")
    return Place(partition, ledger, entry, batch)


def _identity(d: dict[str, Any]) -> tuple[int, int, int]:
    producer, epoch, seq = d["p"], d["e"], d["s"]
    if type(producer) is type(epoch) is type(seq) is int and (
        0 <= producer < _NUMBERS and 0 <= epoch < _NUMBERS and 0 <= seq < _NUMBERS
    ):
        return producer, epoch, seq
    return _number(d, "p"), _number(d, "e"), _number(d, "s")


def _parse_send(d: dict[str, Any]) -> Record:
    return Send(*_identity(d), _text(d, "key"), _checksum(d), _time(d))


def _parse_sent(d: dict[str, Any]) -> Record:
    place = _place(d["id"]) if "id" in d else None
    outcome = _OUTCOMES.get(d["r"]) or Outcome(d["r"])
    return Sent(*_identity(d), outcome, place, str(d.get("err", "")), _time(d))


def _parse_delivery(d: dict[str, Any]) -> Record:
    identity, place = _identity(d), _place(d["id"])
    sub, consumer, key = _text(d, "sub"), _text(d, "c"), _text(d, "key")
    return Delivery(sub, consumer, *identity, key, _checksum(d), place, _time(d))


def _parse_damaged(d: dict[str, Any]) -> Record:
    return Damaged(_text(d, "sub"), _text(d, "c"), _place(d["id"]), _text(d, "err"), _time(d))


def _parse_ack(d: dict[str, Any]) -> Record:
    places = tuple(map(_place, d["id"]))
    kind, outcome = AckKind(d["a"]), Outcome(d["r"])
    return Ack(_text(d, "sub"), _text(d, "c"), kind, outcome, places, _time(d))


def _parse_cursor(d: dict[str, Any]) -> Record:
    return CursorAt(_text(d, "sub"), _place(d["id"]), _time(d, "t0"), _time(d))


def _parse_subscribed(d: dict[str, Any]) -> Record:
    return Subscribed(_text(d, "sub"), _text(d, "c"), SubscriptionType(d["type"]), _time(d))


def _parse_event(d: dict[str, Any]) -> Record:
    producer = _number(d, "p") if "p" in d else None
    sub = _text(d, "sub") if "sub" in d else ""
    return Event(_text(d, "name"), _text(d, "about"), producer, sub, _time(d))


_PARSERS: Final[Mapping[str, Callable[[dict[str, Any]], Record]]] = {
    "send": _parse_send,
    "sent": _parse_sent,
    "recv": _parse_delivery,
    "bad": _parse_damaged,
    "ack": _parse_ack,
    "cursor": _parse_cursor,
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
        text = line.decode()
        # Straight to the scanner: what `json.loads` does around it costs as much again.
        fields, end = _scan(text, 0)
        if end < len(text) and not text[end:].isspace():
            raise ValueError(f"something follows at column {end + 1}")
        kind = fields["k"]
        parse = _PARSERS.get(kind)
        if parse is None:
            raise ValueError(f"unknown kind {kind!r}")
        return parse(fields)
    except KeyError as error:
        raise FormatError(f"record without {error.args[0]!r}: {_excerpt(line)}") from None
    except StopIteration:
        raise FormatError(f"not a record (no JSON): {_excerpt(line)}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"not a record ({error}): {_excerpt(line)}") from None


def _excerpt(line: bytes) -> str:
    return repr(line[:120].decode(errors="replace"))
