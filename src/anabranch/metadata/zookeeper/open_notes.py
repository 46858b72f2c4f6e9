"""Notes in a target about copies that have nodes open there; see `transfer.open_copies`.

A note belongs to the identity that makes it, as the nodes do that it is about: who may not replace
it could not close those, either. Everybody may read it.
"""

from typing import Final

from anabranch import limits
from anabranch.errors import InputError, OutcomeUnknown, Unreachable
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.closing import Closing
from anabranch.metadata.zookeeper.naming import OPEN_COPIES_ROOT
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import OPEN_ACL, Acl, Code, Refusal, data_of

_READABLE: Final = Acl(1, "world", "anyone")


class OpenNotes:
    """Those of one store."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def put(self, name: str, note: bytes) -> None:
        """Leave a note, or replace it; no word of it where we may write only elsewhere.

        Raises:
            InputError: if somebody else left it.
        """
        acl = [*await Closing(self._client).open_acl(()), _READABLE]
        path = f"{OPEN_COPIES_ROOT}/{name}"
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            try:
                await self._client.create(path, note, acl=acl)
                return
            except OutcomeUnknown:
                continue  # if it is there, it is replaced
            except Refusal as refusal:
                if refusal.code == Code.NO_NODE:
                    if not await self._make_root():
                        return
                elif refusal.code != Code.NODE_EXISTS:
                    raise meaning(refusal, path) from None
                elif await self._replace(path, note, acl):
                    return
        raise Unreachable("ZooKeeper takes connections, but ends them before it answers")

    async def _make_root(self) -> bool:
        try:
            # Notes of anybody are in it.
            await self._client.create(OPEN_COPIES_ROOT, b"", acl=OPEN_ACL)
        except OutcomeUnknown:
            return True
        except Refusal as refusal:
            if refusal.code == Code.NO_AUTH:
                return False
            if refusal.code != Code.NODE_EXISTS:
                raise meaning(refusal, OPEN_COPIES_ROOT) from None
        return True

    async def _replace(self, path: str, note: bytes, acl: list[Acl]) -> bool:
        """Whether it was there still."""
        try:
            await self._client.set_acl(path, acl)
            await self._client.set_data(path, note)
        except OutcomeUnknown:
            return False
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                return False
            if refusal.code == Code.NO_AUTH:
                raise InputError(
                    "the same copy was begun by somebody else, to whom alone the nodes are open "
                    "that it wrote: go on with the credentials that it was begun with"
                ) from None
            raise meaning(refusal, path) from None
        return True

    async def all(self) -> dict[str, bytes]:
        """The notes that are there, by name."""
        client = self._client
        try:
            names, _ = await client.children(OPEN_COPIES_ROOT)
        except Refusal as refusal:
            if refusal.code in (Code.NO_NODE, Code.NO_AUTH):
                return {}
            raise meaning(refusal, OPEN_COPIES_ROOT) from None
        names.sort()
        reads = [client.read_value(f"{OPEN_COPIES_ROOT}/{name}") for name in names]
        parts = zip(names, await client.multi_read(reads), strict=True)
        return {name: data_of(part)[0] for name, part in parts if not isinstance(part, Refusal)}

    async def remove(self, name: str) -> None:
        """Take a note away, if it is there."""
        for path in (f"{OPEN_COPIES_ROOT}/{name}", OPEN_COPIES_ROOT):
            try:
                try:
                    await self._client.delete(path)
                except OutcomeUnknown:
                    await self._client.delete(path)
            except Refusal as refusal:
                if refusal.code not in (Code.NO_NODE, Code.NOT_EMPTY, Code.NO_AUTH):
                    raise meaning(refusal, path) from None
