"""Schemas of topics: stored in Pulsar's format, each version once, never dropped silently.

A first schema is stored and becomes version 0; the same schema again is the same version; another
becomes a new version if the topic's policies call the change compatible. What that means is
`schema_rules`'.
"""

import hashlib
from typing import Any, Final

from anabranch import limits
from anabranch.broker.refusals import Refused
from anabranch.broker.schema_rules import (
    Incompatible,
    SchemaText,
    check_change,
    check_consumer,
    check_definition,
    is_same,
)
from anabranch.broker.topic import Topic
from anabranch.errors import ConflictError, FormatError, InputError
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.ids import Position, TopicName
from anabranch.managed_ledger import SchemaInfo, SchemaStorage
from anabranch.managed_ledger.schemas import StoredSchema, version_bytes, version_of_bytes
from anabranch.policies.effective import EffectivePolicies
from anabranch.runtime import Clock
from anabranch.wire import ServerError

NO_VERSION: Final = b""
_NOT_STORED: Final[frozenset[int]] = frozenset({0, Schema.AutoConsume})
"""None, and a consumer that takes whatever schema there is."""


def text_of(schema: Schema) -> SchemaText:
    """A schema of the wire as the rules know it."""
    return SchemaText(
        schema.type,
        schema.schema_data,
        {pair.key: pair.value for pair in _properties(schema)},
    )


def _properties(schema: Schema) -> Any:
    # Schema has an enum member named KeyValue, which hides that type in the generated stub.
    return schema.properties


def _stored_text(stored: StoredSchema) -> SchemaText:
    return SchemaText(stored.info.type, stored.info.schema, stored.info.properties)


class Schemas:
    """The schema registry of a broker."""

    def __init__(self, storage: SchemaStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    # --- clients ------------------------------------------------------------------------------

    async def for_producer(self, topic: Topic, schema: Schema | None) -> bytes:
        """Return the version a producer's messages carry, storing the schema if it is new.

        Raises:
            Refused: with IncompatibleSchema if the topic's policies do not allow it.
        """
        if schema is None or schema.type in _NOT_STORED:
            if (
                topic.policies.schema_validation_enforced
                and await self._storage.get(topic.name.schema_id) is not None
            ):
                raise Refused(
                    ServerError.IncompatibleSchema,
                    "Producers cannot connect or send message without a schema to topics with a "
                    "schema when SchemaValidationEnforced is enabled",
                )
            return NO_VERSION
        return version_bytes(await self.add(topic.name, text_of(schema), topic.policies))

    async def for_consumer(self, topic: Topic, schema: Schema) -> None:
        """Check a consumer's schema; it becomes the topic's if that is new and nobody uses it.

        Raises:
            Refused: with IncompatibleSchema if it cannot read the topic, or there are data without
                a schema.
        """
        if schema.type in _NOT_STORED:
            return
        text = text_of(schema)
        versions = await self._storage.versions(topic.name.schema_id)
        if not versions and not _is_used(topic):
            await self.add(topic.name, text, topic.policies)
            return
        if not versions:
            raise Refused(
                ServerError.IncompatibleSchema,
                "Failed to add schema to an active topic with empty(BYTES) schema: new schema "
                f"type {Schema.Type.Name(schema.type)}",
            )
        strategy = topic.policies.schema_compatibility_strategy
        try:
            check_consumer([_stored_text(each) for each in versions], text, strategy)
        except Incompatible as error:
            raise Refused(ServerError.IncompatibleSchema, str(error)) from error

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

    # --- operators ----------------------------------------------------------------------------

    async def versions(self, topic: TopicName) -> list[StoredSchema]:
        """All versions of a topic's schema, oldest first."""
        return await self._storage.versions(topic.schema_id)

    async def places(self, topic: TopicName) -> list[tuple[int, Position]]:
        """The versions of a topic's schema and where each is stored, oldest first."""
        stored = await self._storage.places(topic.schema_id)
        return [(each.version, each.position) for each in stored]

    async def version_of(self, topic: TopicName, schema: SchemaText) -> int | None:
        """The version that says the same as a schema; None if none does."""
        return _version_among(await self.versions(topic), schema)

    async def add(self, topic: TopicName, schema: SchemaText, policies: EffectivePolicies) -> int:
        """Return the version of a schema, adding it if it is new and the change is allowed.

        Raises:
            Refused: with IncompatibleSchema if it is not.
        """
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            versions = await self._storage.versions(topic.schema_id)
            known = _version_among(versions, schema)
            if known is not None:
                return known
            self._judge(versions, schema, policies)
            try:
                return await self._store(topic, schema, [each.version for each in versions])
            except ConflictError:
                continue  # what it was judged by is not all there is
        raise ConflictError(f"the schema of {topic} kept changing while a version was being added")

    async def check(
        self, topic: TopicName, schema: SchemaText, policies: EffectivePolicies
    ) -> None:
        """Check whether a schema could be added, and change nothing.

        Raises:
            Refused: with IncompatibleSchema if it could not.
        """
        self._judge(await self._storage.versions(topic.schema_id), schema, policies)

    async def delete(self, topic: TopicName, *, user: str = "", force: bool = False) -> int | None:
        """End a topic's schema; older versions stay readable unless `force` removes them.

        Returns:
            The number of the version that says so; None if there is no schema, or it was removed.
        """
        if force:
            await self._storage.delete(topic.schema_id)
            return None
        return await self._storage.mark_deleted(topic.schema_id, user, self._clock.wall_ms())

    def _judge(
        self, versions: list[StoredSchema], schema: SchemaText, policies: EffectivePolicies
    ) -> None:
        try:
            check_definition(schema)
            if not policies.schema_auto_update:
                raise Incompatible("Schema not found and schema auto updating is disabled.")
            existing = [_stored_text(each) for each in versions]
            check_change(existing, schema, policies.schema_compatibility_strategy)
        except Incompatible as error:
            raise Refused(ServerError.IncompatibleSchema, str(error)) from error

    async def _store(self, topic: TopicName, schema: SchemaText, known: list[int]) -> int:
        info = SchemaInfo(
            topic.schema_id,
            schema.type,
            schema.data,
            timestamp_ms=self._clock.wall_ms(),
            properties=dict(schema.properties),
        )
        digest = hashlib.sha256(schema.data).digest()
        try:
            return await self._storage.add_after(topic.schema_id, info, digest, known)
        except InputError as error:
            raise Refused(ServerError.IncompatibleSchema, str(error)) from error


def _version_among(versions: list[StoredSchema], schema: SchemaText) -> int | None:
    for stored in reversed(versions):
        if is_same(_stored_text(stored), schema):
            return stored.version
    return None


def _is_used(topic: Topic) -> bool:
    attached = any(each.consumers for each in topic.subscriptions.values())
    return bool(topic.producers or attached or topic.holds_messages)
