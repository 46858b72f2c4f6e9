"""Replacing the metadata store."""

from collections.abc import Mapping
from typing import Any, Final

from anabranch.client.admin.calls import Calls
from anabranch.client.limits import ADMIN_SURVEY_S_MAX
from anabranch.errors import ProtocolError

METADATA: Final = "metadata"
_ROOT: Final = "/anabranch/migrations/metadata"


class MetadataMigration(Calls):
    """`AdminClient.metadata_migration`. All calls raise as `Calls.call` does.

    `store` is "metadata", or "configuration" where that is a store of its own.
    """

    async def status(self, store: str = METADATA) -> dict[str, Any]:
        """All that is known of the newest attempt; `lines` is for people."""
        return _object(await self.get(_ROOT, query=_about(store)))

    async def plan(self, parameters: Mapping[str, Any], store: str = METADATA) -> dict[str, Any]:
        """What a start would do, and what stands against it."""
        return await self._post("plan", parameters, store, ADMIN_SURVEY_S_MAX)

    async def start(self, parameters: Mapping[str, Any], store: str = METADATA) -> dict[str, Any]:
        """Begin; it goes on by itself."""
        return await self._post("start", parameters, store, ADMIN_SURVEY_S_MAX)

    async def ask(self, verb: str, why: str = "", store: str = METADATA) -> dict[str, Any]:
        """One of pause, resume, abort, rollback, finalize."""
        return await self._post(verb, {"why": why}, store)

    async def _post(
        self, page: str, body: Mapping[str, Any], store: str, patience_s: float = 0.0
    ) -> dict[str, Any]:
        answer = await self.call(
            "POST", f"{_ROOT}/{page}", dict(body), query=_about(store), patience_s=patience_s
        )
        return _object(answer.json())


def _about(store: str) -> dict[str, str] | None:
    return None if store == METADATA else {"store": store}


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ProtocolError(f"no answer about a migration: {found!r}"[:200])
    return found
