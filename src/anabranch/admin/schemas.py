"""Schemas of topics: what they are, adding versions, asking what could be added."""

import json
from typing import Any, Final

from starlette.responses import JSONResponse

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_access import require_namespace
from anabranch.broker.refusals import Refused
from anabranch.broker.schema_rules import SchemaText
from anabranch.generated.pulsar_api_pb2 import Schema
from anabranch.managed_ledger.schemas import StoredSchema
from anabranch.policies.effective import EffectivePolicies
from anabranch.security import Right

_ONE: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_KEY_VALUE: Final = "KEY_VALUE"
_NAMES: Final = {number: name.upper() for name, number in Schema.Type.items()} | {
    Schema.KeyValue: _KEY_VALUE,
    Schema.ProtobufNative: "PROTOBUF_NATIVE",
    Schema.AutoConsume: "AUTO_CONSUME",
}
"""Types as the REST names them."""


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


async def post_schema(call: Call) -> object:
    """Add a version."""
    await require_namespace(call)
    schema = _given(call)
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
    schema = _given(call)
    for stored in await call.broker.schemas.versions(call.topic):
        if (stored.info.type, stored.info.schema) == (schema.type, schema.data):
            return {"version": stored.version}
    return {"version": -1}


async def _policies(call: Call) -> EffectivePolicies:
    return await call.broker.policies.effective(call.topic)


def _given(call: Call) -> SchemaText:
    body = call.json()
    if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
        raise RestRefused(422, "the body has to be an object with type, schema and properties")
    types = {name: number for number, name in _NAMES.items()}
    number = types.get(str(body.get("type")).upper())
    if number is None:
        raise RestRefused(422, f"{str(body.get('type'))[:40]!r} is no type of schema")
    properties = body.get("properties") or {}
    if not isinstance(properties, dict) or not all(
        isinstance(value, str) for value in properties.values()
    ):
        raise RestRefused(422, "properties have to be an object of texts")
    data = body["schema"].encode()
    return SchemaText(number, _packed(data) if number == Schema.KeyValue else data, properties)


def _packed(data: bytes) -> bytes:
    """A schema of keys and values, given as an object of both, as it is stored."""
    try:
        both = json.loads(data)
        halves = [json.dumps(both[name]).encode() for name in ("key", "value")]
    except (ValueError, KeyError, TypeError):
        raise RestRefused(422, "a KEY_VALUE schema has to be an object of key and value") from None
    return b"".join(len(half).to_bytes(4, "big") + half for half in halves)


def _shown(stored: StoredSchema) -> dict[str, Any]:
    info = stored.info
    return {
        "version": stored.version,
        "type": _NAMES.get(info.type, str(info.type)),
        "timestamp": info.timestamp_ms,
        "data": info.schema.decode(errors="replace"),
        "properties": dict(info.properties),
    }


def _row(method: str, page: str, right: Right, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_ONE}/{page}", right, serve, words)


SCHEMA_ENDPOINTS: Final = (
    _row("GET", "schema", Right.LOOK_UP, get_schema, "The schema of a topic"),
    _row("GET", "schema/{version}", Right.LOOK_UP, get_version, "A version of it"),
    _row("GET", "schemas", Right.LOOK_UP, get_versions, "All its versions"),
    _row("POST", "schema", Right.PRODUCE, post_schema, "Add a version"),
    _row("DELETE", "schema", Right.ADMINISTER, delete_schema, "End a schema"),
    _row("POST", "compatibility", Right.LOOK_UP, compatibility, "Whether it could be added"),
    _row("POST", "version", Right.LOOK_UP, version_of, "The version of a schema"),
)
