"""Secondary indexes, which ZooKeeper does not have: a side node per indexed node.

The side node holds the keys and is written in the same multi as the node itself, so that both have
the same zxid. Keys count only while that is so: whoever writes or removes the node without regard
to them, such as another program, voids them in that moment.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Final
from urllib.parse import quote, unquote

from anabranch import limits
from anabranch.errors import FormatError
from anabranch.metadata.paths import order_key
from anabranch.metadata.store import IndexKey
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.naming import INDEX_ROOT
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import Code, Refusal, ZStat, data_of
from anabranch.metadata.zookeeper.requests import Request

_VERSION: Final = 1


def side_path(path: str) -> str:
    """Where the keys of a node are."""
    return f"{INDEX_ROOT}/{quote(path, safe=' :=;,+-_')}"


def encode_keys(keys: tuple[IndexKey, ...]) -> bytes:
    """A side node's value."""
    pairs = [[key.index, key.key] for key in keys]
    return json.dumps({"version": _VERSION, "keys": pairs}).encode()


def decode_keys(path: str, value: bytes) -> tuple[IndexKey, ...]:
    """Undo `encode_keys`.

    Raises:
        FormatError: naming the node, if it cannot be read.
    """
    try:
        document = json.loads(value)
        if document["version"] == _VERSION:
            return tuple(IndexKey(str(index), str(key)) for index, key in document["keys"])
        problem = f"has version {document['version']!r}, known is {_VERSION}"
    except (ValueError, KeyError, TypeError):
        problem = "cannot be read"
    raise FormatError(f"the index keys of {path} in {side_path(path)}: the document {problem}")


class IndexNodes:
    """The side nodes of one store."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._rooted = False

    async def beside(self, path: str, keys: tuple[IndexKey, ...]) -> tuple[Request[object], ...]:
        """What to do in the same moment as a write that gives a node these keys."""
        if not keys:
            return ()
        if not self._rooted:
            await self._make_root()
        side, value = side_path(path), encode_keys(keys)
        try:
            await self._client.exists(side)
        except Refusal as refusal:
            if refusal.code != Code.NO_NODE:
                raise
            return (self._client.op_create(side, value, acl=self._client.new_acl),)
        return (self._client.op_set(side, value),)

    def look_again(self) -> None:
        """Somebody else makes or removes side nodes."""
        self._rooted = False

    async def _make_root(self) -> None:
        try:
            await self._client.create(INDEX_ROOT, b"", acl=self._client.new_acl)
        except Refusal as refusal:
            # Rights are looked at before whether there is anything to be made.
            if refusal.code == Code.NO_AUTH:
                await self._check_there(refusal)
            elif refusal.code != Code.NODE_EXISTS:
                raise
        self._rooted = True

    async def _check_there(self, refusal: Refusal) -> None:
        try:
            await self._client.exists(INDEX_ROOT)
        except Refusal:
            raise refusal from None

    async def find(
        self, index: str, first: str, last: str | None
    ) -> AsyncIterator[tuple[str, bytes, ZStat]]:
        """Nodes with keys of an index in a range, ordered by key and then path."""
        places = [
            (key.key, path)
            async for path, keys in self._all()
            for key in keys
            if key.index == index and key.key >= first and (last is None or key.key < last)
        ]
        places.sort(key=lambda place: (place[0], order_key(place[1])))
        for start in range(0, len(places), limits.METADATA_PAGE_NODES_MAX):
            page = places[start : start + limits.METADATA_PAGE_NODES_MAX]
            while page:
                page, found = await self._look(index, page)
                for node in found:
                    yield node

    async def _look(
        self, index: str, page: list[tuple[str, str]]
    ) -> tuple[list[tuple[str, str]], list[tuple[str, bytes, ZStat]]]:
        """The nodes that do have their keys, up to one that has to be looked at again."""
        reads = [self._client.read_value(path) for _, path in page]
        there: list[tuple[str, str, bytes, ZStat]] = []
        for (key, path), part in zip(page, await self._client.multi_read(reads), strict=True):
            if isinstance(part, Refusal):
                _check_gone(part, path)
            else:
                there.append((key, path, *data_of(part)))
        keys_of = await self.keys_of([(path, stat.mzxid) for _, path, _, stat in there])
        found: list[tuple[str, bytes, ZStat]] = []
        for number, (key, path, value, stat) in enumerate(there):
            keys = keys_of[number]
            if keys is None:  # written between the two reads
                return [(key, path) for key, path, _, _ in there[number:]], found
            if IndexKey(index, key) in keys:
                found.append((path, value, stat))
        return [], found

    async def _all(self) -> AsyncIterator[tuple[str, tuple[IndexKey, ...]]]:
        try:
            names, _ = await self._client.children(INDEX_ROOT)
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                return
            raise
        for start in range(0, len(names), limits.METADATA_PAGE_NODES_MAX):
            page = names[start : start + limits.METADATA_PAGE_NODES_MAX]
            reads = [self._client.read_value(f"{INDEX_ROOT}/{name}") for name in page]
            for name, part in zip(page, await self._client.multi_read(reads), strict=True):
                path = unquote(name)
                if isinstance(part, Refusal):
                    _check_gone(part, side_path(path))
                else:
                    yield path, decode_keys(path, data_of(part)[0])

    async def keys_of(
        self, written: Sequence[tuple[str, int]]
    ) -> list[tuple[IndexKey, ...] | None]:
        """The keys of nodes that were read before, with the zxids of their last writes.

        None for a node that was written again since.
        """
        reads = [self._client.read_value(side_path(path)) for path, _ in written]
        found: list[tuple[IndexKey, ...] | None] = []
        for (path, mzxid), part in zip(written, await self._client.multi_read(reads), strict=True):
            if isinstance(part, Refusal):
                _check_gone(part, side_path(path))
                found.append(())
                continue
            value, stat = data_of(part)
            if stat.mzxid > mzxid:
                found.append(None)
            else:
                # An older one is of an earlier state of the node, and void.
                found.append(decode_keys(path, value) if stat.mzxid == mzxid else ())
        return found

    async def any(self) -> bool:
        """Whether any node has ever had a key."""
        try:
            return (await self._client.exists(INDEX_ROOT)).num_children > 0
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                return False
            raise


def _check_gone(refusal: Refusal, path: str) -> None:
    """Nothing there is no keys; what may not be read could be any.

    Raises:
        AnabranchError: if it was refused for another reason than that nothing is there.
    """
    if refusal.code != Code.NO_NODE:
        raise meaning(refusal, path)
