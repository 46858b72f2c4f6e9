"""Schemas at producers and consumers: stored once, found again, or refused."""

from wire_peer import TOPIC, Wire, running_broker

from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.managed_ledger import SchemaInfo
from anabranch.wire import ServerError, requests


async def test_a_schema_is_stored_once_and_another_is_refused() -> None:
    string = pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)
    numbers = pb.Schema(name="s", schema_data=b"", type=pb.Schema.Int64)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        for number in (1, 2):
            answer = await wire.ask(requests.producer(TOPIC, number, number, schema=string))
            assert answer.producer_success.schema_version == bytes(8)
        refused = await wire.ask(requests.producer(TOPIC, 3, 3, schema=numbers))
        assert refused.error.error == ServerError.IncompatibleSchema
        found = await wire.ask(requests.get_schema(TOPIC, 4))
        assert found.getSchemaResponse.schema.type == pb.Schema.String
        consumer = await wire.subscribe(schema=numbers)
        assert consumer.error.error == ServerError.IncompatibleSchema


async def test_a_schema_equal_to_an_older_version_is_that_version() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        (topic,) = broker.topics.all()
        storage = broker.schemas._storage
        for number, data in enumerate((b"{}", b"[]")):
            info = SchemaInfo(topic.name.schema_id, 2, data)
            assert await storage.put_if_absent(topic.name.schema_id, info, data) == number
        old = pb.Schema(name="s", schema_data=b"{}", type=pb.Schema.Json)
        answer = await wire.ask(requests.producer(TOPIC, 2, 9, schema=old))
        assert answer.producer_success.schema_version == bytes(8)
