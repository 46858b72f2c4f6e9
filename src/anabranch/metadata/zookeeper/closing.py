"""Access rights of nodes that are restored: they come last.

A node's own rights may shut out whoever restores it: from making its children, from writing it as
often as its version says, even from setting rights. So it is born with those rights and, beside
them, all rights for the identities of this session, or for everybody if it has none; when all is
there, that is taken away again.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from anabranch import limits
from anabranch.errors import OutcomeUnknown
from anabranch.metadata.access_rights import is_born_open, may_be_seen_as
from anabranch.metadata.store import AccessRight
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import OPEN_ACL, Acl, Code, Refusal
from anabranch.metadata.zookeeper.requests import CREATOR_ACL

Rights = tuple[AccessRight, ...]
_NO_IDENTITIES: Final = ("ip", "world")
"""Schemes of whoever has not said who it is."""


class Closing:
    """Opens and closes nodes of one restore."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._ours: Sequence[Acl] | None = None

    async def open_acl(self, rights: Rights) -> Sequence[Acl]:
        """Rights that a node is born with."""
        if self._ours is None:
            ours = await self._client.who_am_i()
            known = any(scheme not in _NO_IDENTITIES for scheme, _ in ours)
            self._ours = CREATOR_ACL if known else OPEN_ACL
        return [*_acl(rights), *self._ours]

    async def close(self, nodes: Sequence[tuple[str, Rights]], *, again: bool = False) -> None:
        """Give nodes their own rights; `again` if it may have been done before.

        Raises:
            InputError: if a node does not let us.
        """
        for start in range(0, len(nodes), limits.METADATA_PAGE_NODES_MAX):
            page = nodes[start : start + limits.METADATA_PAGE_NODES_MAX]
            await asyncio.gather(*(self._close(path, rights, again) for path, rights in page))

    async def _close(self, path: str, rights: Rights, again: bool) -> None:
        try:
            try:
                await self._client.set_acl(path, _acl(rights))
            except OutcomeUnknown:
                # It may be done twice; after the first time we may be shut out.
                again = True
                await self._client.set_acl(path, _acl(rights))
        except Refusal as refusal:
            if refusal.code != Code.NO_AUTH or not again or not await self._is_closed(path, rights):
                raise meaning(refusal, path) from None

    async def close_made(self, nodes: Sequence[tuple[str, Rights]]) -> None:
        """Close those that are there and were born open; all others are left as they are.

        Raises:
            InputError: if a node does not let us.
        """
        for start in range(0, len(nodes), limits.METADATA_PAGE_NODES_MAX):
            page = nodes[start : start + limits.METADATA_PAGE_NODES_MAX]
            await asyncio.gather(*(self._close_made(path, rights) for path, rights in page))

    async def _close_made(self, path: str, rights: Rights) -> None:
        try:
            found, _ = await self._client.get_acl(path)
        except Refusal as refusal:
            if refusal.code in (Code.NO_NODE, Code.NO_AUTH):
                return  # what was born open lets us look at its rights
            raise meaning(refusal, path) from None
        if is_born_open(rights, [AccessRight(*entry) for entry in found]):
            await self._close(path, rights, again=True)

    async def _is_closed(self, path: str, rights: Rights) -> bool:
        try:
            found, _ = await self._client.get_acl(path)
        except Refusal as refusal:
            # It was open to us until its own rights came.
            return refusal.code == Code.NO_AUTH
        return may_be_seen_as(rights, [AccessRight(*entry) for entry in found])


def _acl(rights: Rights) -> list[Acl]:
    return [Acl(right.permissions, right.scheme, right.identity) for right in rights]
