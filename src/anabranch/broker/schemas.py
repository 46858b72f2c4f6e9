"""Schemas of topics: stored in Pulsar's format, each version once, never dropped silently.

A first schema is stored and becomes version 0; the same schema again is the same version. Another
schema than those stored is refused as incompatible: which changes are compatible is not decided
here yet, and guessing would let data through that a consumer cannot read.
"""

import hashlib
from typing import Any

from anabranch.broker.refusals import Refused
from anabranch.broker.topic import Topic
from anabranch.errors import FormatError, InputError
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.ids import TopicName
from anabranch.managed_ledger import SchemaInfo, SchemaStorage
from anabranch.managed_ledger.schemas import version_bytes, version_of_bytes
from anabranch.runtime import Clock
from anabranch.wire import ServerError

NO_VERSION = b""
_NOT_STORED = frozenset({0, 21})
"""None, and a consumer that takes whatever schema there is (AutoConsume)."""


def _properties(schema: Schema) -> Any:
    # Schema has an enum member named KeyValue, which hides that type in the generated stub.
    return schema.properties


class Schemas:
    """The schema registry of a broker."""

    def __init__(self, storage: SchemaStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    async def for_producer(self, topic: Topic, schema: Schema | None) -> bytes:
        """Return the version a producer's messages carry, storing the schema if it is the first.

        Raises:
            Refused: with IncompatibleSchema if the topic has another schema.
        """
        if schema is None or schema.type in _NOT_STORED:
            return NO_VERSION
        return await self._add(topic.name, schema)

    async def for_consumer(self, topic: Topic, schema: Schema) -> None:
        """Check a consumer's schema; it becomes the topic's if that is new and empty.

        Raises:
            Refused: with IncompatibleSchema if the topic has another schema, or data without one.
        """
        if schema.type in _NOT_STORED:
            return
        newest = await self._storage.get(topic.name.schema_id)
        if newest is None and (topic.producers or topic.ledger.entry_count):
            raise Refused(ServerError.IncompatibleSchema, "Topic does not have schema to check")
        await self._add(topic.name, schema)

    async def get(self, topic: TopicName, version: bytes | None) -> tuple[Schema, bytes]:
        """Return a stored schema, the newest if no version is named, with its version.

        Raises:
            Refused: with Pulsar's codes if there is none.
        """
        try:
            wanted = None if version is None else version_of_bytes(version)
        except FormatError as error:
            raise Refused(ServerError.IncompatibleSchema, str(error)) from error
        stored = await self._storage.get(topic.schema_id, wanted)
        if stored is None:
            raise Refused(ServerError.TopicNotFound, f"Topic not found or no-schema: {topic}")
        info = stored.info
        schema = Schema(
            name=topic.partitioned_local,
            type=info.type,  # type: ignore[arg-type]
            schema_data=info.schema,
        )
        for key, value in info.properties.items():
            _properties(schema).add(key=key, value=value)
        return schema, version_bytes(stored.version)

    async def _add(self, topic: TopicName, schema: Schema) -> bytes:
        schema_id = topic.schema_id
        versions = await self._storage.versions(schema_id)
        for stored in reversed(versions):
            if stored.info.type == schema.type and stored.info.schema == schema.schema_data:
                return version_bytes(stored.version)
        if versions and not versions[-1].info.deleted:
            name = Schema.Type.Name(versions[-1].info.type)
            raise Refused(
                ServerError.IncompatibleSchema,
                f"{topic} has another schema (type {name}, version {versions[-1].version}); "
                "changing a topic's schema is not served",
            )
        info = SchemaInfo(
            schema_id,
            schema.type,
            schema.schema_data,
            timestamp_ms=self._clock.wall_ms(),
            properties={pair.key: pair.value for pair in _properties(schema)},
        )
        digest = hashlib.sha256(schema.schema_data).digest()
        try:
            version = await self._storage.put_if_absent(schema_id, info, digest)
        except InputError as error:
            raise Refused(ServerError.IncompatibleSchema, str(error)) from error
        return version_bytes(version)
