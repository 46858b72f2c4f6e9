"""Caches, shown on every store that needs no foreign server."""

import asyncio

import pytest

from anabranch.errors import BadVersion, FormatError, NotFound
from anabranch.metadata.cache import MetadataCache
from anabranch.testing.contracts.coordination import Place, until_shown

WRITERS = 8


@pytest.mark.goal("core.M10", part="cache", broken_by="own_write_not_seen")
async def test_own_writes_are_seen_at_once(place: Place) -> None:
    cache = (await place.join()).cache()
    assert await cache.get("/doc") is None
    created = await cache.create("/doc", {"n": 1})
    assert cache.get_if_cached("/doc") == {"n": 1}
    assert await cache.get_with_stat("/doc") == ({"n": 1}, created)
    await cache.put("/doc", {"n": 2})
    assert await cache.get("/doc") == {"n": 2}
    changed = await cache.read_modify_update("/doc", lambda doc: {"n": doc["n"] + 1})
    assert await cache.get("/doc") == changed == {"n": 3}
    await cache.delete("/doc")
    assert await cache.get("/doc") is None
    with pytest.raises(NotFound):
        await cache.read_modify_update("/doc", lambda doc: doc)
    with pytest.raises(BadVersion):
        await cache.put("/doc", {"n": 9}, created.version)


@pytest.mark.goal("core.M10", part="cache", broken_by="cache_ignores_watch")
async def test_what_others_write_is_seen_when_it_is_told(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    cache = ash.cache()
    assert await cache.get("/doc") is None
    assert await cache.children("/") == []
    await birch.store.put("/doc", b'{"n": 1}')

    async def shows(doc: dict[str, int] | None, names: list[str]) -> bool:
        return await cache.get("/doc") == doc and await cache.children("/") == names

    await until_shown(lambda: shows({"n": 1}, ["doc"]))
    await birch.store.delete("/doc")
    await until_shown(lambda: shows(None, []))


@pytest.mark.goal("core.M10", part="cache", broken_by="update_ignores_version")
async def test_updates_of_many_are_all_counted(place: Place) -> None:
    caches = [(await place.join()).cache() for _ in range(WRITERS)]

    async def count(cache: MetadataCache[dict[str, int]]) -> None:
        for _ in range(5):
            await cache.read_modify_update_or_create(
                "/doc", lambda doc: {"n": (doc or {"n": 0})["n"] + 1}
            )

    await asyncio.gather(*map(count, caches))
    assert await (await place.join()).cache().get("/doc") == {"n": 5 * WRITERS}


async def test_what_cannot_be_decoded_is_named(place: Place) -> None:
    ash = await place.join()
    await ash.store.put("/doc", b"{")
    cache = ash.cache()
    with pytest.raises(FormatError, match="stored at /doc cannot be read"):
        await cache.get("/doc")
    with pytest.raises(FormatError, match="/doc"):
        await cache.read_modify_update("/doc", lambda doc: doc)
    assert cache.get_if_cached("/doc") is None


async def test_own_children_are_seen_at_once(place: Place) -> None:
    cache = (await place.join()).cache()
    assert await cache.children("/a") == []
    assert await cache.children("/") == []
    await cache.create("/a/b", {})
    assert await cache.children("/a") == ["b"]
    assert await cache.children("/") == ["a"]
    (await cache.children("/a")).append("not ours")
    assert await cache.children("/a") == ["b"]
    await cache.delete("/a/b")
    assert await cache.children("/a") == []
