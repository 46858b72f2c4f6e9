"""Index keys on ZooKeeper that may not be read are not taken for none."""

from collections.abc import Sequence
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.metadata.store import IndexKey
from anabranch.metadata.zookeeper.indexing import IndexNodes, encode_keys, side_path
from anabranch.metadata.zookeeper.replies import Code, Refusal, ZStat

STAT = ZStat(*[1] * 11)
KEYS = (IndexKey("i", "k"),)


class Tree:
    """Answers reads like a client; it has some nodes, and some that may not be read."""

    def __init__(self, nodes: dict[str, bytes], closed: str) -> None:
        self.nodes = nodes
        self.closed = closed

    def read_value(self, path: str) -> str:
        return path

    async def children(self, path: str) -> tuple[list[str], ZStat]:
        return [name.removeprefix(f"{path}/") for name in self.nodes if name.startswith(path)], STAT

    async def multi_read(self, parts: Sequence[str]) -> list[Any]:
        return [self._read(path) for path in parts]

    def _read(self, path: str) -> Any:
        if path == self.closed:
            return Refusal(Code.NO_AUTH)
        return (self.nodes[path], STAT) if path in self.nodes else Refusal(Code.NO_NODE)


def indexes(closed: str) -> IndexNodes:
    nodes = {"/a": b"1", side_path("/a"): encode_keys(KEYS), "/none": b""}
    return IndexNodes(Tree(nodes, closed))  # type: ignore[arg-type]


@pytest.mark.goal("core.M8", part="zookeeper", broken_by="zk_unreadable_keys_are_none")
@pytest.mark.goal("core.M13", part="zookeeper", broken_by="zk_unreadable_keys_are_none")
async def test_an_export_does_not_lose_them() -> None:
    written = [("/a", STAT.mzxid), ("/none", STAT.mzxid)]
    assert await indexes("").keys_of(written) == [KEYS, ()]
    with pytest.raises(InputError, match=r"/\.anabranch-indexes/%2Fa: .*ACL"):
        await indexes(side_path("/a")).keys_of(written)


async def test_a_search_is_not_cut_short() -> None:
    async def found(closed: str) -> list[str]:
        return [path async for path, _, _ in indexes(closed).find("i", "", None)]

    assert await found("") == ["/a"]
    for closed in ("/a", side_path("/a")):
        with pytest.raises(InputError, match="ACL"):
            await found(closed)
