"""Reads a whole tree with all that is to be restored elsewhere."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from anabranch import limits
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.indexing import IndexNodes
from anabranch.metadata.zookeeper.replies import OPEN_ACL, Acl, Code, Refusal
from anabranch.metadata.zookeeper.walking import Walk
from anabranch.metadata.zookeeper.writing import meaning

_PART: Final = limits.METADATA_PAGE_NODES_MAX


async def export(
    client: ZooKeeperClient, indexes: IndexNodes, prefix: str, *, access: bool
) -> AsyncIterator[Record]:
    """Every node at or below a path, each as of when its turn came."""
    indexed = await indexes.any()
    access = access and client.exports_access
    async for page in Walk(client).pages(prefix):
        parts = [page[start : start + _PART] for start in range(0, len(page), _PART)]
        # All are asked for before the first is dealt with, so that the server need not wait.
        asked = [client.begin_acls([path for path, _, _ in part]) for part in parts if access]
        for number, part in enumerate(parts):
            keys: Sequence[tuple[IndexKey, ...] | None] = [()] * len(part)
            if indexed:
                keys = await indexes.keys_of([(path, stat.mzxid) for path, _, stat in part])
            rights: Sequence[tuple[Acl, ...] | Refusal] = [OPEN_ACL] * len(part)
            if access:
                rights = await asked[number]
            for (path, value, stat), own, acl in zip(part, keys, rights, strict=True):
                session = stat.owner if stat.owner and stat.ephemeral else None
                yield Record(
                    *(path, value, stat.version, stat.ctime, stat.mtime, stat.creates),
                    *(session, own or (), () if acl is OPEN_ACL else _rights(path, acl)),
                )


def _rights(path: str, answer: tuple[Acl, ...] | Refusal) -> tuple[AccessRight, ...]:
    if isinstance(answer, Refusal):
        if answer.code == Code.NO_NODE:
            return ()  # gone since it was read
        raise meaning(answer, path)
    return () if answer == OPEN_ACL else tuple(AccessRight(*entry) for entry in answer)
