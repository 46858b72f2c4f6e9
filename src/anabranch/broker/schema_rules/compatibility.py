"""Pulsar's compatibility strategies, by type of schema. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.broker.schema_rules import avro_types
from anabranch.broker.schema_rules.avro_resolution import problem
from anabranch.errors import InputError
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.wire.schema_forms import TYPE_NAMES, TYPE_NUMBERS, halves_of

ALWAYS_COMPATIBLE: Final = "ALWAYS_COMPATIBLE"
ALWAYS_INCOMPATIBLE: Final = "ALWAYS_INCOMPATIBLE"
_BACKWARD: Final = "BACKWARD"
_TRANSITIVE: Final = "_TRANSITIVE"
_WITH_LATEST: Final = frozenset({"BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"})
"""For a consumer these ask only whether it can read what is written now."""
_AVRO_TEXT: Final[frozenset[int]] = frozenset({Schema.Json, Schema.Avro, Schema.Protobuf})
_PARTS: Final = {**TYPE_NUMBERS, "BYTES": 0}
"""Numbers of the types that a key or a value may have, by Pulsar's names."""


class Incompatible(InputError):
    """A change that the strategy does not allow."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as its owner defined it."""

    type: int
    data: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


def check_definition(schema: SchemaText) -> None:
    """Check that a definition is one at all.

    Raises:
        Incompatible: naming what is wrong.
    """
    try:
        if schema.type in _AVRO_TEXT:
            avro_types.parse(schema.data)
        elif schema.type == Schema.KeyValue:
            for part in _key_and_value(schema):
                check_definition(part)
        elif schema.type == Schema.ProtobufNative:
            _root_message(schema)
    except Incompatible:
        raise
    except InputError as error:
        name = _name_of(schema.type)
        raise Incompatible(f"Invalid schema definition data for {name} schema: {error}") from error


def check_change(existing: Sequence[SchemaText], new: SchemaText, strategy: str) -> None:
    """Check that a schema may become the newest of a topic, given those before it, oldest first.

    Raises:
        Incompatible: if the strategy does not allow it.
    """
    if strategy == ALWAYS_COMPATIBLE:
        return
    for old in _judged_by(existing, strategy):
        _check(old, new, strategy.removesuffix(_TRANSITIVE))


def check_consumer(existing: Sequence[SchemaText], schema: SchemaText, strategy: str) -> None:
    """Check that a consumer with this schema may read a topic with those, oldest first.

    Raises:
        Incompatible: if the strategy does not allow it.
    """
    check_change(existing, schema, _for_consumers(strategy))


def _judged_by(existing: Sequence[SchemaText], strategy: str) -> Sequence[SchemaText]:
    return existing if strategy.endswith(_TRANSITIVE) else existing[-1:]


def _for_consumers(strategy: str) -> str:
    """Whatever producers may do, a consumer has to read what is written now."""
    return _BACKWARD if strategy in _WITH_LATEST else strategy


def _check(old: SchemaText, new: SchemaText, strategy: str) -> None:
    if old.type != new.type:
        raise Incompatible(
            f"Incompatible schema: exists schema type {_name_of(old.type)}, "
            f"new schema type {_name_of(new.type)}"
        )
    if old.data == new.data:
        return
    if strategy == ALWAYS_INCOMPATIBLE:
        raise Incompatible("Schema compatibility strategy is ALWAYS_INCOMPATIBLE")
    check = _CHECKS.get(new.type)
    if check is not None:
        check(old, new, strategy)


def _check_avro(old: SchemaText, new: SchemaText, strategy: str) -> None:
    wrong = None
    try:
        before, after = avro_types.parse(old.data), avro_types.parse(new.data)
        if strategy in (_BACKWARD, "FULL"):
            wrong = problem(after, before)
        if wrong is None and strategy in ("FORWARD", "FULL"):
            wrong = problem(before, after)
    except InputError as error:
        raise Incompatible(f"Incompatible schema: {error}") from error
    if wrong is not None:
        raise Incompatible(
            f"Error during schema compatibility check with strategy {strategy}: {wrong}"
        )


def _check_key_and_value(old: SchemaText, new: SchemaText, strategy: str) -> None:
    for before, after in zip(_key_and_value(old), _key_and_value(new), strict=True):
        _check(before, after, strategy)


def _check_root_message(old: SchemaText, new: SchemaText, strategy: str) -> None:
    before, after = _root_message(old), _root_message(new)
    if before != after:
        raise Incompatible(
            f"Protobuf root message change is not allowed under the '{strategy}' strategy. "
            f"Original message name: '{before}', new message name: '{after}'."
        )


_CHECKS: Final[dict[int, Callable[[SchemaText, SchemaText, str], None]]] = {
    Schema.Json: _check_avro,
    Schema.Avro: _check_avro,
    Schema.Protobuf: _check_avro,
    Schema.KeyValue: _check_key_and_value,
    Schema.ProtobufNative: _check_root_message,
}


def _key_and_value(schema: SchemaText) -> tuple[SchemaText, SchemaText]:
    """The two schemas within one, each behind its length."""
    try:
        halves = halves_of(schema.data)
    except InputError as error:
        raise Incompatible(str(error)) from None
    parts = []
    for which, half in zip(("key", "value"), halves, strict=True):
        kind = _PARTS.get(schema.properties.get(f"{which}.schema.type", "BYTES"))
        if kind is None:
            raise Incompatible(f"the schema of a {which} is of no known type")
        parts.append(SchemaText(kind, half))
    return parts[0], parts[1]


def _root_message(schema: SchemaText) -> str:
    try:
        name = json.loads(schema.data)["rootMessageTypeName"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Incompatible(f"the schema names no root message: {error}") from error
    if not isinstance(name, str):
        raise Incompatible(f"the schema's root message is {name!r}")
    return name


def is_same(one: SchemaText, other: SchemaText) -> bool:
    """Whether two definitions say the same; of JSON the order and blanks say nothing."""
    if one.type != other.type:
        return False
    if one.data == other.data:
        return True
    if one.type not in _AVRO_TEXT:
        return False
    try:
        return bool(json.loads(one.data) == json.loads(other.data))
    except (ValueError, RecursionError):
        return False


def _name_of(number: int) -> str:
    return TYPE_NAMES.get(number, str(number))
