"""Reads a whole tree with all that is to be restored elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from anabranch import limits
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.indexing import IndexNodes
from anabranch.metadata.zookeeper.replies import Acl, Code, Refusal, ZStat
from anabranch.metadata.zookeeper.requests import OPEN_ACL
from anabranch.metadata.zookeeper.walking import Found, Walk
from anabranch.metadata.zookeeper.writing import meaning


async def export(
    client: ZooKeeperClient, indexes: IndexNodes, prefix: str
) -> AsyncIterator[Record]:
    """Every node at or below a path, each as of when its turn came."""
    indexed = await indexes.any()
    async for page in Walk(client).pages(prefix):
        for start in range(0, len(page), limits.METADATA_PAGE_NODES_MAX):
            part = page[start : start + limits.METADATA_PAGE_NODES_MAX]
            keys: Sequence[tuple[IndexKey, ...] | None] = [()] * len(part)
            if indexed:
                keys = await indexes.keys_of([(found.path, found.stat.mzxid) for found in part])
            access = await _access(client, part)
            for found, own, rights in zip(part, keys, access, strict=True):
                yield _record(found, own or (), rights)


def _record(found: Found, keys: tuple[IndexKey, ...], rights: tuple[AccessRight, ...]) -> Record:
    stat = found.stat
    return Record(
        found.path,
        found.value,
        stat.version,
        stat.ctime,
        stat.mtime,
        stat.creates,
        stat.owner if stat.owner and stat.ephemeral else None,
        keys,
        rights,
    )


async def _access(client: ZooKeeperClient, page: list[Found]) -> Sequence[tuple[AccessRight, ...]]:
    if not client.exports_access:
        return [()] * len(page)
    asked = await asyncio.gather(
        *(client.get_acl(found.path) for found in page), return_exceptions=True
    )
    return [_rights(found.path, answer) for found, answer in zip(page, asked, strict=True)]


def _rights(
    path: str, answer: tuple[tuple[Acl, ...], ZStat] | BaseException
) -> tuple[AccessRight, ...]:
    if isinstance(answer, Refusal):
        if answer.code == Code.NO_NODE:
            return ()  # gone since it was read
        raise meaning(answer, path)
    if isinstance(answer, BaseException):
        raise answer
    acl, _ = answer
    return () if acl == OPEN_ACL else tuple(AccessRight(*entry) for entry in acl)
