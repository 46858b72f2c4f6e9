"""Commands that no client sends: every type, with values from the edges of what the wire allows.

Pure: a generator of random numbers gives the same commands everywhere. Most fields that name
something name what may be there, so that commands get past the first look; a part of everything is
extreme, empty, huge, or no text that anybody would write.
"""

import json
import random
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtobufMessage

from anabranch.wire import (
    BaseCommand,
    MessageMetadata,
    build_entry,
    encode,
    flow,
    requests,
    send_frame,
)

TOPICS: Final = (
    "persistent://public/default/hostile",
    "persistent://public/default/hostile-2",
    "persistent://public/default/parts-partition-0",
    "non-persistent://public/default/hostile",
    "hostile",
)
_NAMES: Final = ("s", "s2", "reader", "pulsar.dedup", "__compaction", "")
_IDS: Final = (1, 2, 3)
_WORDS: Final = (
    "",
    " ",
    "x" * 3000,
    "\u0000",
    "\u202e\U0001f600",
    "../../etc",
    "%2e%2e",
    "a\nb",
    "persistent://",
    "t-partition-9999999999999",
    "public/default",
    "(((((((((a{9}){9}){9}",
    "persistent://public/default/.*",
)
_SCHEMAS: Final = (
    b"",
    b"{",
    b"\xff\xfe",
    json.dumps({"type": "record", "name": "r", "fields": []}).encode(),
    json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "x", "type": "r", "aliases": [{}]}]}
    ).encode(),
    b"[" * 5000,
    b'"int"',
    b'{"type":"enum","name":"\\ud800","symbols":["\\udfff"]}',
    (2**31 - 1).to_bytes(4, "big") + b"x",
)
_REQUEST_TYPES: Final = tuple(
    number
    for number, each in BaseCommand.DESCRIPTOR.fields_by_number.items()
    if number > 1 and each.message_type is not None and each.name not in ("send", "message")
)
_CLIENT_TYPES: Final = (
    BaseCommand.PRODUCER, BaseCommand.SUBSCRIBE, BaseCommand.ACK, BaseCommand.FLOW,
    BaseCommand.SEEK, BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, BaseCommand.UNSUBSCRIBE,
    BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER, BaseCommand.GET_LAST_MESSAGE_ID,
    BaseCommand.LOOKUP, BaseCommand.PARTITIONED_METADATA, BaseCommand.GET_TOPICS_OF_NAMESPACE,
    BaseCommand.GET_SCHEMA, BaseCommand.GET_OR_CREATE_SCHEMA, BaseCommand.WATCH_TOPIC_LIST,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE, BaseCommand.CONSUMER_STATS,
)  # fmt: skip
_HOSTILE_SHARE: Final = 0.15
_ANY_TYPE_SHARE: Final = 0.1
_SEND_SHARE: Final = 0.3
_DEPTH_MAX: Final = 4


class HostileCommands:
    """Makes one command after the other; requests are numbered so that answers can be matched."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._requests = 0
        self._named: dict[str, Callable[[], Any]] = {
            "topic": lambda: rng.choice(TOPICS),
            "subscription": lambda: rng.choice(_NAMES),
            "initial_subscription_name": lambda: rng.choice(_NAMES),
            "consumer_id": lambda: rng.choice(_IDS),
            "producer_id": lambda: rng.choice(_IDS),
            "watcher_id": lambda: rng.choice(_IDS),
            "namespace": lambda: "public/default",
            "ledgerId": lambda: rng.randrange(8),
            "entryId": lambda: rng.randrange(20),
            "batch_index": lambda: rng.randrange(-1, 4),
            "messagePermits": lambda: rng.choice((1, 10, 1000, 2**32 - 1)),
            "schema_data": lambda: rng.choice(_SCHEMAS),
            "sequence_id": lambda: rng.randrange(50),
            "producer_name": lambda: rng.choice(("p", "q", "")),
            "advertised_listener_name": lambda: "",
        }

    def next(self) -> tuple[bytes, int | None]:
        """The bytes of a command, and the number by which its answer is known, if it has one."""
        rng = self._rng
        if rng.random() < _SEND_SHARE:
            return self._send(), None
        kinds = _REQUEST_TYPES if rng.random() < _ANY_TYPE_SHARE else _CLIENT_TYPES
        kind = rng.choice(kinds)
        command = BaseCommand(type=kind)  # type: ignore[arg-type]
        body = getattr(command, BaseCommand.DESCRIPTOR.fields_by_number[kind].name)
        self._fill(body, 0)
        body.SetInParent()
        number = None
        if "request_id" in body.DESCRIPTOR.fields_by_name and (
            body.HasField("request_id") or rng.random() < 0.5
        ):
            number = body.request_id = self._numbered()
        return encode(command), number

    def opening(self) -> list[tuple[bytes, int | None]]:
        """What a client begins with: producers and consumers that the others can be about."""
        rng, made = self._rng, list[tuple[bytes, int | None]]()
        topic = rng.choice(TOPICS)
        for number in _IDS:
            producer = requests.producer(topic, number, self._numbered())
            kind: Any = rng.randrange(4)
            consumer = requests.subscribe(topic, f"s{kind}", kind, number, self._numbered())
            made.append((encode(producer), producer.producer.request_id))
            made.append((encode(consumer), consumer.subscribe.request_id))
            made.append((flow(number, rng.choice((1, 3, 1000))), None))
        return made

    def _numbered(self) -> int:
        self._requests += 1
        return self._requests

    def _send(self) -> bytes:
        rng = self._rng
        metadata = MessageMetadata()
        self._fill(metadata, 0)
        entry = build_entry(metadata, rng.randbytes(rng.choice((0, 1, 40))))
        if rng.random() < _HOSTILE_SHARE:
            entry = rng.randbytes(rng.randrange(30))
        sequence_id, highest = self._number("sequence_id", 2**64), None
        if rng.random() < 0.3:
            highest = self._number("sequence_id", 2**64)
        count = rng.choice((1, 1, 2, 0, 2**31 - 1))
        return b"".join(
            send_frame(
                rng.choice(_IDS),
                sequence_id,
                count,
                entry,
                highest_sequence_id=highest,
                is_chunk=rng.random() < 0.2,
            )
        )

    def _number(self, name: str, bound: int) -> int:
        rng = self._rng
        if name in self._named and rng.random() > _HOSTILE_SHARE:
            return int(self._named[name]())
        return rng.choice((0, 1, 2, bound // 2 - 1, bound // 2, bound - 1, rng.randrange(bound)))

    def _fill(self, message: ProtobufMessage, depth: int) -> None:
        rng = self._rng
        for field in message.DESCRIPTOR.fields:
            if not field.is_required and rng.random() < 0.5:
                continue
            if not field.is_repeated:
                self._set(message, field, depth)
                continue
            values = getattr(message, field.name)
            for _ in range(rng.choice((0, 1, 2, 3, 60))):
                if field.message_type is not None:
                    if depth < _DEPTH_MAX:
                        self._fill(values.add(), depth + 1)
                else:
                    values.append(self._value(field))

    def _set(self, message: ProtobufMessage, field: Any, depth: int) -> None:
        if field.message_type is None:
            setattr(message, field.name, self._value(field))
            return
        if depth < _DEPTH_MAX or field.is_required:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self._fill(inner, depth + 1)

    def _value(self, field: Any) -> Any:
        rng = self._rng
        if field.enum_type is not None:
            return rng.choice([each.number for each in field.enum_type.values])
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            value: Any = rng.choice(_WORDS)
            if field.name in self._named and rng.random() > _HOSTILE_SHARE:
                value = self._named[field.name]()
            if field.type == FieldDescriptor.TYPE_BYTES and isinstance(value, str):
                value = value.encode()
            return value
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return rng.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
        return self._integer(field)

    def _integer(self, field: Any) -> int:
        bound = 2**32 if field.cpp_type in _OF_32_BITS else 2**64
        number = self._number(field.name, bound)
        is_signed = field.cpp_type in _SIGNED
        return number - bound if is_signed and number >= bound // 2 else number


_OF_32_BITS: Final = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
_SIGNED: Final = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
