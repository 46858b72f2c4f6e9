"""Schemas of topics."""

from typing import Any

from anabranch.client.admin.calls import Calls, segment
from anabranch.client.admin.documents import SchemaVersion
from anabranch.client.admin.refusals import AdminRefused
from anabranch.client.settings import Schema
from anabranch.errors import ProtocolError
from anabranch.ids import TopicName
from anabranch.policies import from_json
from anabranch.wire.schema_forms import TYPE_NAMES, unpacked

_UNFIT = "Error during schema compatibility check"


class Schemas(Calls):
    """`AdminClient.schemas`. All calls raise as `Calls.call` does."""

    async def get_newest(self, topic: str) -> SchemaVersion:
        """The newest version."""
        return from_json(SchemaVersion, await self.get(_path(topic, "schema")))

    async def get_version(self, topic: str, version: int) -> SchemaVersion:
        """One version."""
        return from_json(SchemaVersion, await self.get(_path(topic, f"schema/{version}")))

    async def versions(self, topic: str) -> list[SchemaVersion]:
        """All versions, the oldest first."""
        found = await self.get(_path(topic, "schemas"))
        each = found.get("getSchemaResponses", []) if isinstance(found, dict) else []
        return [from_json(SchemaVersion, one) for one in each]

    async def add(self, topic: str, schema: Schema) -> int:
        """Add a version, unless it is there already, and return its number."""
        answer = await self.call("POST", _path(topic, "schema"), _document(schema))
        return _version(answer.json())

    async def is_compatible(self, topic: str, schema: Schema) -> bool:
        """Whether a version could be added."""
        try:
            answer = await self.call("POST", _path(topic, "compatibility"), _document(schema))
        except AdminRefused as error:
            if _UNFIT in error.reason:  # how some brokers say no
                return False
            raise
        said = answer.json()
        return bool(
            isinstance(said, dict) and (said.get("compatibility") or said.get("isCompatibility"))
        )

    async def delete(self, topic: str, *, force: bool = False) -> None:
        """End the schema of a topic; with `force` its versions are removed too."""
        await self.call("DELETE", _path(topic, "schema"), query={"force": force})


def _path(topic: str, page: str) -> str:
    name = TopicName.parse(topic)
    return f"/schemas/{name.namespace_name}/{segment(name.partitioned_local)}/{page}"


def _document(schema: Schema) -> dict[str, Any]:
    name = TYPE_NAMES[schema.as_wire().type]
    return {
        "type": name,
        "schema": unpacked(schema.data) if name == "KEY_VALUE" else schema.data.decode(),
        "properties": dict(schema.properties),
    }


def _version(said: Any) -> int:
    while isinstance(said, dict):
        said = said.get("version")
    if not isinstance(said, int):
        raise ProtocolError(f"no number of a version: {said!r}"[:200])
    return said
