"""Planted bugs of the schemas that `anabranch.broker` stores and judges."""

from collections.abc import Sequence

from anabranch.broker.refusals import Refused
from anabranch.broker.schema_rules import SchemaText
from anabranch.broker.schema_rules.avro_resolution import _Seen
from anabranch.broker.schema_rules.avro_types import Record, RecordField
from anabranch.broker.schemas import Schemas
from anabranch.broker.topic import Topic
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.ids import TopicName
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
    target="anabranch.broker.schema_rules.avro_resolution:_record_problem",
)
def fields_without_default_may_come(reader: Record, writer: Record, seen: _Seen) -> str | None:
    """A field that nobody wrote and that has no default is no problem."""
    lenient = Record(
        reader.name,
        [RecordField(each.name, each.type, True, each.aliases) for each in reader.fields],
    )
    found: str | None = original("fields_without_default_may_come")(lenient, writer, seen)
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
