"""Schemas by REST: every type, versions, strategies, and the same schemas that clients meet.

Names of types, and how a schema of keys and values is written, are those of Pulsar's Java client.
"""

import json
import struct

import pytest

from anabranch.broker.schema_rules import SchemaText
from anabranch.errors import InputError
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.ids import TopicName
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call
from anabranch.wire.schema_forms import TYPE_NAMES, halves_of, packed, unpacked

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
PLAIN = (
    "STRING", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE", "TIME",
    "TIMESTAMP", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME",
)  # fmt: skip
RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
WIDER = {**RECORD, "fields": [*RECORD["fields"], {"name": "b", "type": "int", "default": 0}]}
NARROWER = {**RECORD, "fields": [{"name": "c", "type": "int"}]}


def written(definition):
    return json.dumps(definition, separators=(",", ":"))


def body(kind, definition="", properties=None):
    text = definition if isinstance(definition, str) else written(definition)
    return {"type": kind, "schema": text, "properties": properties or {}}


@pytest.fixture
async def ask():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()

    async def ask(method, path, given=None):
        data = b"" if given is None else json.dumps(given).encode()
        answer = await call(server.web_app, f"/admin/v2/{path}", method=method, body=data)
        text = answer.body.decode()
        return answer.status, json.loads(text) if text else None

    ask.broker = server.broker
    yield ask
    await server.close()


def path(topic, page="schema"):
    return f"schemas/public/default/{topic}/{page}"


async def stored_by_rest(ask, topic, given):
    assert await ask("POST", path(topic), given) == (200, {"version": {"version": 0}})
    status, found = await ask("GET", path(topic))
    assert (status, found["version"]) == (200, 0)
    return found


@pytest.mark.goal("core.B10", part="rest", broken_by="types_have_names_of_the_wire")
async def test_every_type_is_named_as_pulsar_names_it(ask):
    for kind in PLAIN:
        found = await stored_by_rest(ask, f"of-{kind}", body(kind))
        assert (found["type"], found["data"]) == (kind, "")
    for kind in ("JSON", "AVRO", "PROTOBUF"):
        found = await stored_by_rest(ask, f"of-{kind}", body(kind, RECORD, {"p": "q"}))
        assert (found["type"], found["data"]) == (kind, written(RECORD))
        assert found["properties"] == {"p": "q"}
    native = {"fileDescriptorSet": "", "rootMessageTypeName": "R", "rootFileDescriptorName": "f"}
    found = await stored_by_rest(ask, "of-native", body("PROTOBUF_NATIVE", native))
    assert (found["type"], found["data"]) == ("PROTOBUF_NATIVE", written(native))
    for wrong in ("LOCALDATE", "BOOL", "", "nope"):
        assert (await ask("POST", path("wrong"), body(wrong)))[0] == 422
    assert (await ask("GET", path("wrong")))[0] == 404


@pytest.mark.goal("core.B10", part="rest", broken_by="keys_and_values_are_shown_as_bytes")
async def test_a_schema_of_keys_and_values_is_an_object_of_both(ask):
    both = {"key": "", "value": RECORD}
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    found = await stored_by_rest(ask, "pairs", body("KEY_VALUE", both, properties))
    assert (found["type"], found["data"][:1]) == ("KEY_VALUE", "{")
    assert json.loads(found["data"]) == both
    (stored,) = await ask.broker.schemas.versions(TopicName.parse("pairs"))
    value = written(RECORD).encode()
    assert stored.info.schema == struct.pack(">ii", 0, len(value)) + value
    assert await ask("POST", path("pairs", "version"), body("KEY_VALUE", found["data"])) == (
        200, {"version": 0},
    )  # fmt: skip
    for wrong in ("no json", {"key": ""}, "[]"):
        assert (await ask("POST", path("pairs"), body("KEY_VALUE", wrong)))[0] == 422


@pytest.mark.goal("core.B10", part="rest", broken_by="strategies_are_not_asked_by_rest")
async def test_versions_are_added_as_the_strategy_allows(ask):
    await stored_by_rest(ask, "v", body("AVRO", RECORD))
    wider, narrower = body("AVRO", WIDER), body("AVRO", NARROWER)
    status, said = await ask("POST", path("v", "compatibility"), wider)
    assert (status, said) == (
        202, {"schemaCompatibilityStrategy": "FULL", "compatibility": True},
    )  # fmt: skip
    assert await ask("POST", path("v"), wider) == (200, {"version": {"version": 1}})
    assert await ask("POST", path("v"), body("AVRO", RECORD)) == (200, {"version": {"version": 0}})
    assert (await ask("POST", path("v"), narrower))[0] == 409
    status, said = await ask("POST", path("v", "compatibility"), narrower)
    assert (status, said["compatibility"]) == (202, False)
    strategy = "namespaces/public/default/schemaCompatibilityStrategy"
    assert (await ask("PUT", strategy, "ALWAYS_COMPATIBLE"))[0] == 204
    status, said = await ask("POST", path("v", "compatibility"), narrower)
    assert said == {"schemaCompatibilityStrategy": "ALWAYS_COMPATIBLE", "compatibility": True}
    assert await ask("POST", path("v"), narrower) == (200, {"version": {"version": 2}})
    _, found = await ask("GET", path("v", "schemas"))
    every = found["getSchemaResponses"]
    assert [json.loads(each["data"]) for each in every] == [RECORD, WIDER, NARROWER]
    for number, each in enumerate(every):
        assert await ask("GET", path("v", f"schema/{number}")) == (200, each)
        same = body("AVRO", json.dumps(json.loads(each["data"]), indent=1))
        assert await ask("POST", path("v", "version"), same) == (200, {"version": number})
    assert (await ask("GET", path("v", "schema/3")))[0] == 404


@pytest.mark.goal("core.B10", part="rest", broken_by="deleted_schemas_live_on")
async def test_rest_and_clients_see_the_same_schemas(ask):
    name = TopicName.parse("shared")
    await stored_by_rest(ask, "shared", body("AVRO", RECORD))
    topic = await ask.broker.topics.open(name, create=True)
    wire = Schema(name="R", type=Schema.Avro, schema_data=written(WIDER).encode())
    assert await ask.broker.schemas.for_producer(topic, wire) == (1).to_bytes(8, "big")
    _, found = await ask("GET", path("shared"))
    assert (found["version"], json.loads(found["data"])) == (1, WIDER)
    got, version = await ask.broker.schemas.get(name, (0).to_bytes(8, "big"))
    assert (json.loads(got.schema_data), version) == (RECORD, (0).to_bytes(8, "big"))
    assert (await ask("DELETE", path("shared")))[0] == 200
    assert (await ask("GET", path("shared")))[0] == 404
    text = SchemaText(Schema.Avro, written(RECORD).encode())
    assert await ask.broker.schemas.version_of(name, text) is None


def test_types_of_the_wire_all_have_a_name():
    assert set(TYPE_NAMES) == set(Schema.Type.values())
    assert len(set(TYPE_NAMES.values())) == len(TYPE_NAMES)


@pytest.mark.parametrize("cut", [b"", b"\0\0\0", b"\0\0\0\5ab", b"\0\0\0\0", b"\0\0\0\0\0\0\0\1"])
def test_halves_that_are_cut_off_are_refused(cut):
    with pytest.raises(InputError, match="cut off"):
        halves_of(cut)


def test_halves_come_back_as_they_were():
    assert json.loads(unpacked(packed(written({"key": RECORD, "value": "ü"})))) == {
        "key": RECORD,
        "value": "ü",
    }
    with pytest.raises(InputError, match="no JSON"):
        unpacked(struct.pack(">i", 1) + b"{" + struct.pack(">i", 0))


@pytest.mark.parametrize(
    "given",
    [
        body("STRING", "\ud800"),
        body("JSON", '{"type":"\ud800"}'),
        body("KEY_VALUE", '{"key":"\ud800","value":""}'),
        body("STRING", "", {"a": "\ud800"}),
        body("STRING", "", {"\ud800": "a"}),
    ],
)
async def test_what_is_no_text_is_refused(ask, given):
    for page in ("schema", "compatibility", "version"):
        status, answer = await ask("POST", path("t", page), given)
        assert (status, "reason" in answer) == (422, True), page
    assert (await ask("GET", path("t")))[0] == 404
