"""Opening stores by URL; what they do is shown in tests/contract."""

import pytest

from anabranch.errors import ConfigError
from anabranch.metadata.factory import open_store
from anabranch.metadata.memory import MemoryStore
from anabranch.runtime.real import real_runtime


async def test_memory_stores_share_nothing() -> None:
    runtime = real_runtime()
    one, other = await open_store("memory:", runtime), await open_store("memory:", runtime)
    assert isinstance(one, MemoryStore)
    await one.put("/a", b"")
    assert not await other.exists("/a")


@pytest.mark.parametrize("url", ["memory", "zookeeper:x", "", ":", "embedded"])
async def test_unknown_store_names_the_known_ones(url: str) -> None:
    with pytest.raises(ConfigError, match=r"memory:.*embedded:<folder>"):
        await open_store(url, real_runtime())


@pytest.mark.parametrize(("url", "fix"), [("memory:x", "'memory:'"), ("embedded:", "<folder>")])
async def test_wrong_rest_of_the_url_says_what_to_write(url: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=fix):
        await open_store(url, real_runtime())
