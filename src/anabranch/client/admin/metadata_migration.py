"""Replacing the metadata store."""

from collections.abc import Mapping
from typing import Any, Final

from anabranch.client.admin.calls import Calls
from anabranch.errors import ProtocolError

_ROOT: Final = "/anabranch/migrations/metadata"


class MetadataMigration(Calls):
    """`AdminClient.metadata_migration`. All calls raise as `Calls.call` does."""

    async def status(self) -> dict[str, Any]:
        """All that is known of the newest attempt; `lines` is for people."""
        return _object(await self.get(_ROOT))

    async def plan(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What a start would do, and what stands against it."""
        return _object((await self.call("POST", f"{_ROOT}/plan", dict(parameters))).json())

    async def start(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Begin; it goes on by itself."""
        return _object((await self.call("POST", f"{_ROOT}/start", dict(parameters))).json())

    async def ask(self, verb: str, why: str = "") -> dict[str, Any]:
        """One of pause, resume, abort, rollback, finalize."""
        return _object((await self.call("POST", f"{_ROOT}/{verb}", {"why": why})).json())


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ProtocolError(f"no answer about a migration: {found!r}"[:200])
    return found
