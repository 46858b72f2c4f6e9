"""Which changes of a schema are allowed: rules by strategy, type and history, and at a broker."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_peer import TOPIC, Wire, running_broker

from anabranch.broker import BrokerSettings
from anabranch.broker.schema_rules import (
    Incompatible,
    SchemaText,
    check_change,
    check_consumer,
    check_definition,
)
from anabranch.broker.schema_rules.avro_types import parse
from anabranch.errors import InputError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.policies.effective import PolicyDefaults
from anabranch.testing.schema_changes import CHANGES, SchemaChange, definition, record
from anabranch.wire import ServerError, requests

AVRO, JSON, STRING, INT64 = pb.Schema.Avro, pb.Schema.Json, pb.Schema.String, pb.Schema.Int64


def avro(schema: Any, kind: int = AVRO) -> SchemaText:
    return SchemaText(kind, definition(schema))


def allows(strategy: str, new: SchemaText, *old: SchemaText) -> bool:
    try:
        check_change(old, new, strategy)
    except Incompatible:
        return False
    return True


def settings(strategy: str, **more: Any) -> BrokerSettings:
    return BrokerSettings(policies=PolicyDefaults(schema_compatibility_strategy=strategy, **more))


@pytest.mark.goal(
    "core.B10", part="compatibility strategies", broken_by="fields_without_default_may_come"
)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name.replace(" ", "-"))
@pytest.mark.parametrize("kind", [AVRO, JSON], ids=["avro", "json"])
def test_changes_are_judged_as_pulsar_judges_them(change: SchemaChange, kind: int) -> None:
    old, new = avro(change.old, kind), avro(change.new, kind)
    for suffix in ("", "_TRANSITIVE"):
        assert allows(f"BACKWARD{suffix}", new, old) == change.backward
        assert allows(f"FORWARD{suffix}", new, old) == change.forward
        assert allows(f"FULL{suffix}", new, old) == (change.backward and change.forward)
    assert allows("ALWAYS_COMPATIBLE", new, old)
    assert not allows("ALWAYS_INCOMPATIBLE", new, old)
    assert allows("ALWAYS_INCOMPATIBLE", old, old)


@pytest.mark.goal(
    "core.B10", part="compatibility strategies", broken_by="only_the_newest_schema_is_judged_by"
)
def test_transitive_strategies_judge_by_all_versions() -> None:
    first = avro(record(("a", "int")))
    second = avro(record(("a", "int"), ("b", "int", 0)))
    third = avro(record(("a", "int"), ("b", "int")))
    assert allows("BACKWARD", third, first, second)
    assert not allows("BACKWARD_TRANSITIVE", third, first, second)


@pytest.mark.goal(
    "core.B10", part="compatibility strategies", broken_by="consumers_are_judged_like_producers"
)
def test_a_consumer_must_be_able_to_read_whatever_producers_may_do() -> None:
    written = avro(record(("a", "int"), ("b", "int")))
    reads = avro(record(("a", "int")))
    wants_more = avro(record(("a", "int"), ("b", "int"), ("c", "int")))
    for strategy in ("FORWARD", "FORWARD_TRANSITIVE", "BACKWARD", "FULL"):
        check_consumer([written], reads, strategy)
        with pytest.raises(Incompatible):
            check_consumer([written], wants_more, strategy)
    check_consumer([written], wants_more, "ALWAYS_COMPATIBLE")
    with pytest.raises(Incompatible):
        check_consumer([written], reads, "ALWAYS_INCOMPATIBLE")


def key_value(key: bytes, value: bytes, types: str = "AVRO") -> SchemaText:
    data = b"".join(struct.pack(">i", len(part)) + part for part in (key, value))
    properties = {"key.schema.type": "STRING", "value.schema.type": types}
    return SchemaText(pb.Schema.Type.Value("KeyValue"), data, properties)


def native(root: str, more: str = "") -> SchemaText:
    text = json.dumps({"rootMessageTypeName": root, "fileDescriptorSet": more})
    return SchemaText(pb.Schema.ProtobufNative, text.encode())


@pytest.mark.goal("core.B10", part="all types", broken_by="types_may_change")
def test_each_type_has_its_rule() -> None:
    string, number = SchemaText(STRING, b""), SchemaText(INT64, b"")
    assert not allows("FULL", number, string)
    assert allows("ALWAYS_COMPATIBLE", number, string)
    small, large = definition(record(("a", "int"))), definition(record(("a", "int"), ("b", "int")))
    assert allows("FORWARD", key_value(b"", large), key_value(b"", small))
    assert not allows("BACKWARD", key_value(b"", large), key_value(b"", small))
    assert not allows("FULL", key_value(b"", small, "JSON"), key_value(b"", large))
    assert allows("FULL", native("p.M", "x"), native("p.M"))
    assert not allows("FULL", native("p.N"), native("p.M"))
    protobuf = pb.Schema.Protobuf
    assert not allows("BACKWARD", SchemaText(protobuf, large), SchemaText(protobuf, small))
    assert allows("FULL", SchemaText(22, b"new"), SchemaText(22, b"old"))


@pytest.mark.parametrize(
    "wrong",
    [
        avro({"type": "record", "name": "R"}),
        avro("nowhere.defined"),
        avro({"type": "fixed", "name": "F", "size": -1}),
        avro(record(("a", record(("b", "int"))))),
        SchemaText(JSON, b"{"),
        SchemaText(AVRO, b'{"type":' * 100 + b'"int"' + b"}" * 100),
        SchemaText(pb.Schema.Type.Value("KeyValue"), b"\0\0\0\7ab"),
        key_value(b"", b"", "ROUND"),
        SchemaText(pb.Schema.ProtobufNative, b"[]"),
    ],
)
def test_what_is_no_schema_is_refused(wrong: SchemaText) -> None:
    with pytest.raises(Incompatible):
        check_definition(wrong)


@given(st.recursive(
    st.none() | st.integers() | st.text(max_size=5)
    | st.sampled_from(["record", "enum", "fixed", "array", "map", "int", "null"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size"]),
        inner, max_size=5,
    ),
    max_leaves=10,
))  # fmt: skip
def test_any_json_is_a_schema_or_refused(value: Any) -> None:
    data = json.dumps(value).encode()
    if isinstance(value, int | None):
        with pytest.raises(InputError):
            parse(data)
        return
    refusals = []
    for _ in range(2):
        try:
            parse(data)
        except InputError as error:
            refusals.append(str(error))
    assert refusals in ([], refusals[:1] * 2), "the same is said of the same text"


def wire_schema(text: SchemaText) -> pb.Schema:
    return pb.Schema(name="s", schema_data=text.data, type=text.type)  # type: ignore[arg-type]


@pytest.mark.goal("core.B10", part="versions", broken_by="every_schema_is_version_zero")
async def test_versions_are_told_to_producers_and_found_by_consumers() -> None:
    first = avro(record(("a", "int")))
    second = avro(record(("a", "int"), ("b", "int", 0)))
    async with running_broker(settings("FULL")) as broker:
        wire = await Wire(broker).connect()
        for number, text in enumerate((first, second, first)):
            answer = await wire.ask(
                requests.producer(TOPIC, number, number, schema=wire_schema(text))
            )
            expected = (0, 1, 0)[number].to_bytes(8, "big")
            assert answer.producer_success.schema_version == expected
        blanks = SchemaText(AVRO, definition(record(("a", "int"))).replace(b":", b" : "))
        found = await wire.ask(
            pb.BaseCommand(
                type=pb.BaseCommand.GET_OR_CREATE_SCHEMA,
                getOrCreateSchema=pb.CommandGetOrCreateSchema(
                    request_id=5, topic=TOPIC, schema=wire_schema(blanks)
                ),
            )
        )
        assert found.getOrCreateSchemaResponse.schema_version == bytes(8)
        newest = await wire.ask(requests.get_schema(TOPIC, 4))
        assert newest.getSchemaResponse.schema.schema_data == second.data
        old = await wire.ask(requests.get_schema(TOPIC, 4, bytes(8)))
        assert old.getSchemaResponse.schema.schema_data == first.data
        third = avro(record(("a", "string")))
        refused = await wire.ask(requests.producer(TOPIC, 9, 9, schema=wire_schema(third)))
        assert refused.error.error == ServerError.IncompatibleSchema
        whatever = pb.Schema(name="s", schema_data=b"", type=pb.Schema.AutoConsume)
        assert (await wire.subscribe(schema=whatever)).type == pb.BaseCommand.SUCCESS


@pytest.mark.goal("core.B10", part="enforced", broken_by="schemas_are_not_enforced")
async def test_where_schemas_are_enforced_nobody_publishes_without() -> None:
    string = pb.Schema(name="s", schema_data=b"", type=STRING)
    async with running_broker(settings("FULL", schema_validation_enforced=True)) as broker:
        wire = await Wire(broker).connect()
        await wire.producer(1)
        answer = await wire.ask(requests.producer(TOPIC, 2, 2, schema=string))
        assert answer.type == pb.BaseCommand.PRODUCER_SUCCESS
        refused = await wire.ask(requests.producer(TOPIC, 3, 3))
        assert refused.error.error == ServerError.IncompatibleSchema


@pytest.mark.goal("core.B10", part="enforced", broken_by="schemas_update_themselves")
async def test_where_producers_may_not_change_the_schema_only_known_ones_come() -> None:
    string = pb.Schema(name="s", schema_data=b"", type=STRING)
    async with running_broker(settings("FULL", schema_auto_update=False)) as broker:
        wire = await Wire(broker).connect()
        refused = await wire.ask(requests.producer(TOPIC, 3, 3, schema=string))
        assert refused.error.error == ServerError.IncompatibleSchema
