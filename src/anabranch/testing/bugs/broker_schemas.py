"""Planted bugs of the schemas that `anabranch.broker` stores and judges."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anabranch.admin.endpoints import Call
from anabranch.broker.refusals import Refused
from anabranch.broker.schema_rules import SchemaText
from anabranch.broker.schema_rules.avro_resolution import _Comparison
from anabranch.broker.schema_rules.avro_types import Record, RecordField
from anabranch.broker.schemas import Schemas
from anabranch.broker.topic import Topic
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.ids import TopicName
from anabranch.managed_ledger import SchemaInfo
from anabranch.managed_ledger.schemas import StoredSchema
from anabranch.policies.effective import EffectivePolicies
from anabranch.testing.planted import original, planted


@planted("any_schema_is_compatible", target="anabranch.broker.schemas:Schemas.add")
async def any_schema_is_compatible(
    self: Schemas, topic: TopicName, schema: SchemaText, policies: EffectivePolicies
) -> int:
    """Whoever comes with another schema is taken for one with the first."""
    try:
        version: int = await original("any_schema_is_compatible")(self, topic, schema, policies)
    except Refused:
        return 0
    return version


@planted(
    "fields_without_default_may_come",
    target="anabranch.broker.schema_rules.avro_resolution:_Comparison._record_problem",
)
def fields_without_default_may_come(
    self: _Comparison, reader: Record, writer: Record
) -> str | None:
    """A field that nobody wrote and that has no default is no problem."""
    lenient = Record(
        reader.name,
        [RecordField(each.name, each.type, True, each.aliases) for each in reader.fields],
    )
    found: str | None = original("fields_without_default_may_come")(self, lenient, writer)
    return found


@planted(
    "only_the_newest_schema_is_judged_by",
    target="anabranch.broker.schema_rules.compatibility:_judged_by",
)
def only_the_newest_schema_is_judged_by(
    existing: Sequence[SchemaText], strategy: str
) -> Sequence[SchemaText]:
    """Transitive strategies look at the last version alone."""
    return existing[-1:]


@planted(
    "consumers_are_judged_like_producers",
    target="anabranch.broker.schema_rules.compatibility:_for_consumers",
)
def consumers_are_judged_like_producers(strategy: str) -> str:
    """A consumer may have what a producer may bring."""
    return strategy


@planted("types_may_change", target="anabranch.broker.schema_rules.compatibility:_check")
def types_may_change(old: SchemaText, new: SchemaText, strategy: str) -> None:
    """A schema of another type is compatible with any."""
    if old.type == new.type:
        original("types_may_change")(old, new, strategy)


@planted("every_schema_is_version_zero", target="anabranch.broker.schemas:Schemas.for_producer")
async def every_schema_is_version_zero(self: Schemas, topic: Topic, schema: Schema | None) -> bytes:
    """Producers are told the first version, whichever theirs is."""
    version: bytes = await original("every_schema_is_version_zero")(self, topic, schema)
    return bytes(len(version))


@planted("schemas_are_not_enforced", target="anabranch.broker.schemas:Schemas.for_producer")
async def schemas_are_not_enforced(self: Schemas, topic: Topic, schema: Schema | None) -> bytes:
    """A producer without a schema is welcome everywhere."""
    if schema is None:
        return b""
    version: bytes = await original("schemas_are_not_enforced")(self, topic, schema)
    return version


@planted("schemas_update_themselves", target="anabranch.broker.schemas:Schemas._judge")
def schemas_update_themselves(
    self: Schemas, versions: list[StoredSchema], schema: SchemaText, policies: EffectivePolicies
) -> None:
    """A producer brings a new schema although only operators may."""


@planted("types_have_names_of_the_wire", target="anabranch.admin.schemas:_shown")
def types_have_names_of_the_wire(stored: StoredSchema) -> dict[str, Any]:
    """Types are shown by the names that the protocol has for them."""
    shown: dict[str, Any] = original("types_have_names_of_the_wire")(stored)
    kind: Any = stored.info.type
    return {**shown, "type": Schema.Type.Name(kind).upper()}


@planted("keys_and_values_are_shown_as_bytes", target="anabranch.admin.schemas:_definition")
def keys_and_values_are_shown_as_bytes(info: SchemaInfo) -> str:
    """A schema of keys and values is shown as it is stored, lengths and all."""
    return info.schema.decode(errors="replace")


@planted("strategies_are_not_asked_by_rest", target="anabranch.admin.schemas:_policies")
async def strategies_are_not_asked_by_rest(call: Call) -> EffectivePolicies:
    """What is added by REST is judged by the same strategy everywhere."""
    policies: EffectivePolicies = await original("strategies_are_not_asked_by_rest")(call)
    return replace(policies, schema_compatibility_strategy="FULL")


@planted("deleted_schemas_live_on", target="anabranch.broker.schemas:Schemas.delete")
async def deleted_schemas_live_on(self: Any, topic: Any, **how: Any) -> int:
    """Whoever deletes a schema is told that it is gone, and it is not."""
    del self, topic, how
    return 0
