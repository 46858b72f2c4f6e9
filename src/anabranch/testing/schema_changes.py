"""Changes of Avro schemas, and whether they are compatible: one table for Pulsar and for us."""

import json
from typing import Any, Final, NamedTuple


class SchemaChange(NamedTuple):
    """From one schema to another."""

    name: str
    old: Any
    new: Any
    backward: bool
    """The new one reads what was written with the old one."""
    forward: bool
    """The old one reads what is written with the new one."""


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record; fields are given as (name, type) or (name, type, default)."""
    made = []
    for each in fields:
        field = {"name": each[0], "type": each[1]}
        if len(each) > 2:
            field["default"] = each[2]
        if len(each) > 3:
            field["aliases"] = each[3]
        made.append(field)
    return {"type": "record", "name": name, "fields": made, **more}


def definition(schema: Any) -> bytes:
    """The bytes of a schema."""
    return json.dumps(schema).encode()


_AB = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
_ABC = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
_A = record(("a", "int"))

CHANGES: Final = (
    SchemaChange(
        "field added without default", _A, record(("a", "int"), ("b", "int")), False, True
    ),
    SchemaChange("field added with default", _A, record(("a", "int"), ("b", "int", 0)), True, True),
    SchemaChange("field removed", record(("a", "int"), ("b", "int")), _A, True, False),
    SchemaChange(
        "optional field removed", record(("a", "int"), ("b", ["null", "int"], None)), _A, True, True
    ),
    SchemaChange("int becomes long", _A, record(("a", "long")), True, False),
    SchemaChange("int becomes string", _A, record(("a", "string")), False, False),
    SchemaChange(
        "float becomes double", record(("a", "float")), record(("a", "double")), True, False
    ),
    SchemaChange(
        "string becomes bytes", record(("a", "string")), record(("a", "bytes")), True, True
    ),
    SchemaChange("field becomes optional", _A, record(("a", ["null", "int"])), True, False),
    SchemaChange(
        "union gets a branch",
        record(("a", ["null", "int"])),
        record(("a", ["null", "int", "string"])),
        True,
        False,
    ),
    SchemaChange("record renamed", _A, record(("a", "int"), name="Other"), True, True),
    SchemaChange("record gets a namespace", _A, record(("a", "int"), namespace="n"), True, True),
    SchemaChange("field renamed with an alias", _A, record(("b", "int", 0, ["a"])), True, False),
    SchemaChange("enum gets a symbol", record(("a", _AB)), record(("a", _ABC)), True, True),
    SchemaChange(
        "enum renamed", record(("a", _AB)), record(("a", {**_AB, "name": "F"})), False, False
    ),
    SchemaChange(
        "fixed grows",
        record(("a", {"type": "fixed", "name": "F", "size": 4})),
        record(("a", {"type": "fixed", "name": "F", "size": 8})),
        False,
        False,
    ),
    SchemaChange(
        "items of an array change",
        record(("a", {"type": "array", "items": "int"})),
        record(("a", {"type": "array", "items": "long"})),
        True,
        False,
    ),
    SchemaChange(
        "values of a map change",
        record(("a", {"type": "map", "values": "int"})),
        record(("a", {"type": "map", "values": "string"})),
        False,
        False,
    ),
    SchemaChange(
        "nested record gets a field",
        record(("a", record(("x", "int"), name="N"))),
        record(("a", record(("x", "int"), ("y", "int"), name="N"))),
        False,
        True,
    ),
    SchemaChange(
        "recursive record gets a field",
        record(("next", ["null", "R"], None)),
        record(("next", ["null", "R"], None), ("v", "int", 0)),
        True,
        True,
    ),
)
