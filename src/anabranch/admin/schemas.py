"""Schemas of topics: what they are, adding versions, asking what could be added."""

from contextlib import suppress
from typing import Any, Final

from starlette.responses import JSONResponse

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.policy_rows import what_counts
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_access import require_namespace
from anabranch.broker.refusals import Refused
from anabranch.broker.schema_rules import Incompatible, SchemaText, check_definition
from anabranch.errors import InputError
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.managed_ledger import SchemaInfo
from anabranch.managed_ledger.schemas import StoredSchema
from anabranch.policies.effective import EffectivePolicies
from anabranch.security import Right
from anabranch.wire.schema_forms import TYPE_NAMES, TYPE_NUMBERS, packed, unpacked

_ONE: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"


async def get_schema(call: Call) -> object:
    """The newest version."""
    versions = await call.broker.schemas.versions(call.topic)
    if not versions:
        raise RestRefused(404, "Schema not found")
    return _shown(versions[-1])


async def get_version(call: Call) -> object:
    """One version."""
    wanted = call.number("version")
    for stored in await call.broker.schemas.versions(call.topic):
        if stored.version == wanted:
            return _shown(stored)
    raise RestRefused(404, "Schema not found")


async def get_versions(call: Call) -> object:
    """All versions."""
    versions = await call.broker.schemas.versions(call.topic)
    if not versions:
        raise RestRefused(404, "Schema not found")
    return {"getSchemaResponses": [_shown(stored) for stored in versions]}


async def get_places(call: Call) -> object:
    """Where the versions are stored."""
    places = await call.broker.schemas.places(call.topic)
    if not places:
        raise RestRefused(404, "Schema metadata not found")
    index = [
        {"ledgerId": place.ledger_id, "entryId": place.entry_id, "version": version}
        for version, place in places
    ]
    return {"info": index[-1], "index": index}


async def post_schema(call: Call) -> object:
    """Add a version."""
    await require_namespace(call)
    schema = _given(call)
    try:
        check_definition(schema)
    except Incompatible as error:
        raise RestRefused(422, str(error)) from None
    version = await call.broker.schemas.add(call.topic, schema, await _policies(call))
    return {"version": {"version": version}}


async def delete_schema(call: Call) -> object:
    """End a schema; with `force` its versions are removed too."""
    version = await call.broker.schemas.delete(call.topic, force=call.flag("force"))
    return {"version": -1 if version is None else version}


async def compatibility(call: Call) -> object:
    """Whether a schema could be added."""
    policies = await _policies(call)
    compatible = True
    try:
        await call.broker.schemas.check(call.topic, _given(call), policies)
    except Refused:
        compatible = False
    strategy = policies.schema_compatibility_strategy
    answer = {"schemaCompatibilityStrategy": strategy, "compatibility": compatible}
    return JSONResponse(answer, 202)


async def version_of(call: Call) -> object:
    """The version that a schema has; -1 if it has none."""
    version = await call.broker.schemas.version_of(call.topic, _given(call))
    return {"version": -1 if version is None else version}


async def _policies(call: Call) -> EffectivePolicies:
    return await what_counts(call)


def _given(call: Call) -> SchemaText:
    body = call.json()
    if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
        raise RestRefused(422, "the body has to be an object with type, schema and properties")
    number = TYPE_NUMBERS.get(str(body.get("type")).upper())
    if number is None:
        raise RestRefused(422, f"{str(body.get('type'))[:40]!r} is no type of schema")
    properties = body.get("properties") or {}
    if not isinstance(properties, dict) or not all(
        isinstance(value, str) for value in properties.values()
    ):
        raise RestRefused(422, "properties have to be an object of texts")
    try:
        key_value = number == Schema.KeyValue
        data = packed(body["schema"]) if key_value else body["schema"].encode()
    except InputError as error:
        raise RestRefused(422, str(error)) from None
    return SchemaText(number, data, properties)


def _shown(stored: StoredSchema) -> dict[str, Any]:
    info = stored.info
    return {
        "version": stored.version,
        "type": TYPE_NAMES.get(info.type, str(info.type)),
        "timestamp": info.timestamp_ms,
        "data": _definition(info),
        "properties": dict(info.properties),
    }


def _definition(info: SchemaInfo) -> str:
    if info.type == Schema.KeyValue:
        with suppress(InputError):  # stored by others: shown as it is
            return unpacked(info.schema)
    return info.schema.decode(errors="replace")


def _row(method: str, page: str, right: Right, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_ONE}/{page}", right, serve, words)


SCHEMA_ENDPOINTS: Final = (
    _row("GET", "schema", Right.LOOK_UP, get_schema, "The schema of a topic"),
    _row("GET", "schema/{version}", Right.LOOK_UP, get_version, "A version of it"),
    _row("GET", "schemas", Right.LOOK_UP, get_versions, "All its versions"),
    _row("GET", "metadata", Right.LOOK_UP, get_places, "Where its versions are stored"),
    _row("POST", "schema", Right.PRODUCE, post_schema, "Add a version"),
    _row("DELETE", "schema", Right.ADMINISTER, delete_schema, "End a schema"),
    _row("POST", "compatibility", Right.LOOK_UP, compatibility, "Whether it could be added"),
    _row("POST", "version", Right.LOOK_UP, version_of, "The version of a schema"),
)
