"""Which changes of a schema are compatible. Pure; the strategies and their meaning are Pulsar's."""

from anabranch.broker.schema_rules.compatibility import (
    Incompatible,
    SchemaText,
    check_change,
    check_consumer,
    check_definition,
    is_same,
)

__all__ = [
    "Incompatible",
    "SchemaText",
    "check_change",
    "check_consumer",
    "check_definition",
    "is_same",
]
