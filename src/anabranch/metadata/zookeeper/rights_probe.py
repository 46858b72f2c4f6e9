"""Whether servers would take access rights, found out without writing anything.

A multi that makes a node with these rights, and then compares a version that no new node has, is
refused as a whole. Which of the two was refused tells whether the rights were understood.
"""

from typing import Final

from anabranch.metadata.access_rights import hides_password
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import AccessRight
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.limits import PROBED_RIGHTS_MAX
from anabranch.metadata.zookeeper.naming import PROBE
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import Acl, Code, Refusal

_ADMINISTER: Final = 16
_NO_NEW_NODE: Final = 1
"""A version that a node has only after somebody wrote to it."""
_OF_EVERY_SERVER: Final = ("world", "ip", "digest")
_NAMELESS: Final = ("world", "ip")
_SUPER: Final = "super"


class RightsProbe:
    """Asks the servers of one store, and remembers what they said."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._refused: dict[AccessRight, bool] = {}

    async def why_not(
        self, path: str, rights: tuple[AccessRight, ...], *, may_be_there: bool
    ) -> str | None:
        """Why a node cannot be given these rights; None if nothing speaks against it.

        With `may_be_there` it may be somebody else's already. A root always is.
        """
        for right in rights:
            if await self._is_refused(right):
                return _sentence(right)
        if (may_be_there or path == ROOT) and not await self._may_administer(path):
            return (
                "it is in the target already, with access rights (ACL) that do not let us set "
                "others: act as somebody who may administer it"
            )
        return None

    async def _is_refused(self, right: AccessRight) -> bool:
        if right not in self._refused:
            if len(self._refused) >= PROBED_RIGHTS_MAX:
                self._refused.clear()
            self._refused[right] = await self._ask(right)
        return self._refused[right]

    async def _ask(self, right: AccessRight) -> bool:
        client = self._client
        acl = [Acl(right.permissions, right.scheme, right.identity)]
        never = [client.op_create(PROBE, b"", acl=acl), client.op_check(PROBE, _NO_NEW_NODE)]
        # It changes nothing, so it may be asked again on another connection.
        answer = await client.send(requests.multi(never)._replace(writes=False))
        made = answer[0]
        return isinstance(made, Refusal) and made.code == Code.INVALID_ACL

    async def _may_administer(self, path: str) -> bool:
        """Whether we may set the rights of a node; true also if that cannot be told."""
        try:
            found, _ = await self._client.get_acl(path)
        except Refusal as refusal:
            if refusal.code not in (Code.NO_NODE, Code.NO_AUTH):
                raise meaning(refusal, path) from None
            return refusal.code == Code.NO_NODE
        if any(hides_password(AccessRight(*entry)) for entry in found):
            return False  # who may administer is shown them whole
        ours = await self._client.who_am_i()
        if any(scheme == _SUPER for scheme, _ in ours):
            return True
        return any(
            entry.permissions & _ADMINISTER
            and (entry.scheme in (*_NAMELESS, "digest") or (entry.scheme, entry.identity) in ours)
            for entry in found
        )


def _sentence(right: AccessRight) -> str:
    scheme, name = right.scheme, right.identity.partition(":")[0]
    if scheme in _OF_EVERY_SERVER:
        return f"it has a right of {name!r}, which is nobody in ZooKeeper's scheme {scheme!r}"
    return (
        f"it has a right of the scheme {scheme!r} (of {name!r}), which the target's ZooKeeper "
        f"refuses: set up an authProvider for {scheme!r} there, or leave the rights out "
        "(export.acl=skip)"
    )
