"""Values into bytes and back: text, JSON, Avro, protocol buffers; older versions; bad bytes."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served_client import TOPIC, served

from anabranch.client import BrokerRefused
from anabranch.client.avro import AvroSchema as Parsed
from anabranch.client.avro import decode, encode
from anabranch.client.records import record_schema
from anabranch.client.schemas import (
    AvroSchema,
    JsonSchema,
    ProtobufSchema,
    Reading,
    StringSchema,
)
from anabranch.errors import ConfigError, FormatError, InputError
from anabranch.generated.pulsar_api_pb2 import KeyValue


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Item:
    name: str
    price: float = 1.5
    parts: "list[Item]" = field(default_factory=list)


@dataclass
class Order:
    id: int
    item: Item
    size: Size = Size.SMALL
    note: str | None = None
    seal: bytes = b""
    paid: bool = False
    tags: dict[str, int] = field(default_factory=dict)


FULL = Order(-7, Item("tea", 2.0, [Item("leaf")]), Size.LARGE, "ü", b"\x00\xff", True, {"a": 1})
LEAN = Order(2**40, Item("tea"))


@pytest.mark.goal("core.B23", part="schemas", broken_by="sdk_reads_by_its_own_schema")
@pytest.mark.parametrize("codec", [JsonSchema(Order), AvroSchema(Order)], ids=["json", "avro"])
def test_values_come_back_and_older_versions_are_read(codec: Any) -> None:
    for order in (FULL, LEAN):
        assert codec.decode(codec.encode(order)) == order

    @dataclass
    class Known:
        item: Item
        id: int
        more: int = 5

    newer = type(codec)(Known)
    assert newer.decode(codec.encode(FULL), codec.schema) == Known(FULL.item, -7)


def test_texts_and_protocol_buffers() -> None:
    texts = StringSchema()
    assert texts.decode(texts.encode("ü")) == "ü"
    with pytest.raises(FormatError):
        texts.decode(b"\xff")
    pairs = ProtobufSchema(KeyValue)
    assert pairs.decode(pairs.encode(KeyValue(key="a", value="b"))).value == "b"
    said = json.loads(pairs.schema.data)
    assert said["rootMessageTypeName"] == "pulsar.proto.KeyValue"
    with pytest.raises(FormatError):
        pairs.decode(b"\xff")


def test_what_no_schema_can_be_made_of() -> None:
    @dataclass
    class Odd:
        what: complex

    with pytest.raises(ConfigError, match=r"Odd\.what"):
        record_schema(Odd)
    with pytest.raises(ConfigError, match="dataclass"):
        JsonSchema(int)
    with pytest.raises(ConfigError, match="no schema of Avro"):
        Parsed("{")


def test_wrong_values_are_refused() -> None:
    orders: Any = AvroSchema(Order)
    with pytest.raises(InputError):
        orders.encode(Order("x", Item("a")))  # type: ignore[arg-type]
    with pytest.raises(InputError):
        orders.encode(Order(2**64, Item("a")))
    with pytest.raises(InputError, match=r"Order\.id"):
        JsonSchema(Order).decode(b'{"id": "x"}')
    with pytest.raises(InputError, match="item"):
        JsonSchema(Order).decode(b'{"id": 1}')
    with pytest.raises(FormatError):
        JsonSchema(Order).decode(b"{")


ORDERS = AvroSchema(Order)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    with suppress(FormatError, InputError):
        assert isinstance(ORDERS.decode(data), Order)


ANY = Parsed(
    json.dumps(
        {
            "type": "record", "name": "R", "namespace": "n",
            "fields": [
                {"name": "u", "type": ["null", "long", "string", "double", "boolean"]},
                {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
                {"name": "a", "type": {"type": "array", "items": "n.F"}},
                {"name": "m", "type": {"type": "map", "values": ["int", {"type": "string"}]}},
            ],
        }
    )
)  # fmt: skip
VALUES = st.fixed_dictionaries(
    {
        "u": st.none() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.booleans()
        | st.floats(allow_nan=False),
        "f": st.binary(min_size=3, max_size=3),
        "a": st.lists(st.binary(min_size=3, max_size=3), max_size=3),
        "m": st.dictionaries(st.text(), st.integers(-5, 5) | st.text(), max_size=3),
    }
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_any_value_survives(value: dict[str, Any]) -> None:
    assert decode(ANY, encode(ANY, value)) == value


async def test_versions_are_asked_for_and_schemas_are_checked() -> None:
    @dataclass
    class Old:
        a: str

    @dataclass
    class New:
        a: str
        b: int = 3

    old, new = AvroSchema(Old), AvroSchema(New)
    async with served() as (_, client), asyncio.timeout(20):
        consumer = await client.consumer(TOPIC, "s")
        for codec, value in ((old, Old("x")), (new, New("y", 4))):
            object.__setattr__(codec.schema, "name", "R")
            producer = await client.producer(TOPIC, schema=codec.schema)
            await producer.send(codec.encode(value))  # type: ignore[arg-type]
            await producer.close()
        reading = Reading(client, new)
        messages = [await consumer.receive() for _ in range(2)]
        assert messages[0].schema_version != messages[1].schema_version
        assert [await reading.value_of(each) for each in messages] == [New("x"), New("y", 4)]
        with pytest.raises(BrokerRefused, match="IncompatibleSchema"):
            await client.producer(TOPIC, schema=JsonSchema(Order).schema)
