"""Reads a whole tree with all that is to be restored elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import chain
from typing import Final

from anabranch import limits
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.indexing import IndexNodes
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import OPEN_ACL, Acl, Code, Refusal, ZStat
from anabranch.metadata.zookeeper.walking import Found, RightsWalk, ValueWalk

_PART: Final = limits.METADATA_PAGE_NODES_MAX
_new_tuple: Final = tuple.__new__
Keys = tuple[IndexKey, ...]


async def export(
    client: ZooKeeperClient, indexes: IndexNodes, prefix: str, *, access: bool, values: bool
) -> AsyncIterator[Record]:
    """Every node at or below a path, each as of when its turn came."""
    if not client.exports_access:
        access = False
    if access:
        await client.readers.catch_up()
    if access and not values:
        async for record in _rights_alone(client, prefix):
            yield record
        return
    indexed = await indexes.any()
    async for page in ValueWalk(client).pages(prefix):
        async for record in _whole(client, indexes if indexed else None, page, access=access):
            yield record


async def export_one(client: ZooKeeperClient, indexes: IndexNodes, path: str) -> Record | None:
    """One node as `export` tells of it, without a look at what is below; None if there is none."""
    try:
        value, stat = await client.get_data(path)
    except Refusal as refusal:
        if refusal.code == Code.NO_NODE:
            return None
        raise meaning(refusal, path) from None
    keys = indexes if await indexes.any() else None
    await client.readers.catch_up()
    found = _whole(client, keys, [(path, value, stat)], access=client.exports_access)
    (record,) = [record async for record in found]
    return record


async def _whole(
    client: ZooKeeperClient,
    indexes: IndexNodes | None,
    page: Sequence[Found[bytes]],
    *,
    access: bool,
) -> AsyncIterator[Record]:
    """Nodes that were read, with their keys, if there are any, and their rights."""
    if indexes is None and not access:
        for record in _plain(page):
            yield record
        return
    parts = [page[start : start + _PART] for start in range(0, len(page), _PART)]
    # All are asked for before the first is dealt with, so that the server need not wait.
    asked = [client.begin_acls([path for path, _, _ in part]) for part in parts if access]
    for number, part in enumerate(parts):
        keys: Iterable[Keys | None] = [()] * len(part)
        if indexes is not None:
            keys = await indexes.keys_of([(path, stat.mzxid) for path, _, stat in part])
        rights: Iterable[tuple[AccessRight, ...]] = [()] * len(part)
        if access:
            answers = chain.from_iterable(await asyncio.gather(*asked[number]))
            rights = map(_rights, part, answers)
        for record, own, acl in zip(_plain(part), keys, rights, strict=True):
            yield record._replace(indexes=own or (), access=acl) if own or acl else record


def _plain(page: Iterable[Found[bytes]]) -> list[Record]:
    """Nodes without keys and rights. Whole trees are made of them."""
    record, new = Record, _new_tuple
    return [
        new(
            record,
            (
                *(
                    path,
                    value,
                    stat[4],
                    stat[2],
                    stat[3],
                    stat.creates if stat[5] or stat[9] else 0,
                ),
                *(stat.owner if stat[7] and stat.ephemeral else None, (), ()),
            ),
        )
        for path, value, stat in page
    ]


async def _rights_alone(client: ZooKeeperClient, prefix: str) -> AsyncIterator[Record]:
    async for page in RightsWalk(client).pages(prefix):
        for path, acl, stat in page:
            yield Record(
                *(path, b"", stat.version, stat.ctime, stat.mtime, stat.creates),
                *(stat.owner if stat.owner and stat.ephemeral else None, ()),
                () if acl is OPEN_ACL else _entries(acl),
            )


def _rights(
    node: Found[bytes], answer: tuple[tuple[Acl, ...], ZStat] | Refusal
) -> tuple[AccessRight, ...]:
    if isinstance(answer, Refusal):
        if answer.code == Code.NO_NODE:
            return ()  # gone since it was read
        raise meaning(answer, node[0])
    return () if answer[0] is OPEN_ACL else _entries(answer[0])


def _entries(acl: tuple[Acl, ...]) -> tuple[AccessRight, ...]:
    return () if acl == OPEN_ACL else tuple(AccessRight(*entry) for entry in acl)
