"""The memory store's thin path; the whole contract is shown in tests/contract."""

import pytest

from anabranch.errors import AlreadyClosed, BadVersion, ConfigError
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import ABSENT, EventKind
from anabranch.runtime.real import real_runtime


async def test_put_get_watch_close() -> None:
    store = await open_store("memory:", real_runtime())
    watch = store.watch("/a")
    stat = await store.put("/a/b", b"1", ABSENT)
    node = await store.get("/a/b")
    assert node is not None
    assert (node.value, node.stat) == (b"1", stat)
    with pytest.raises(BadVersion):
        await store.put("/a/b", b"2", ABSENT)
    await store.close()
    assert [(e.kind, e.path) async for e in watch] == [
        (EventKind.CREATED, "/a"),
        (EventKind.CREATED, "/a/b"),
    ]
    with pytest.raises(AlreadyClosed):
        await store.get("/a")


@pytest.mark.parametrize("url", ["memory", "memory:x", "zookeeper:", "", ":"])
async def test_unknown_store_names_the_known_ones(url: str) -> None:
    with pytest.raises(ConfigError, match="memory:"):
        await open_store(url, real_runtime())
