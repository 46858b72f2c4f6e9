"""A configuration store belongs to the metadata stores that note its id, and to no other."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from anabranch.errors import ConfigError, FormatError
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.server.configuration_store import (
    ID_PATH,
    USED_PATH,
    beside,
    check_apart,
    refuse_without,
    tie_configuration,
)

URLS = ("zk:one:2181/local", "zk:one:2181/shared")


@pytest.fixture
async def stores() -> AsyncIterator[list[MetadataStore]]:
    async with AsyncExitStack() as held:
        found = [await open_store("memory:", real_runtime()) for _ in range(3)]
        for store in found:
            held.push_async_callback(store.close)
        yield found


async def paths_in(store: MetadataStore) -> list[str]:
    return [node.stat.path async for node in store.scan("/")]


async def refused(
    local: MetadataStore, configuration: MetadataStore, words: str, kind: type[Exception]
) -> None:
    """Nothing is written by who only looks, and nothing to a metadata store that is refused."""
    before = await paths_in(local)
    for dry_run in (True, False):
        with pytest.raises(kind, match=words):
            await beside(URLS, [local, configuration], real_runtime(), dry_run=dry_run)
        assert await paths_in(local) == before


@pytest.mark.goal("454.A37", part="separately", broken_by="any_configuration_will_do")
async def test_a_cluster_stays_with_its_configuration(stores: list[MetadataStore]) -> None:
    local, configuration, another = stores
    await tie_configuration(local, configuration, "first")
    await tie_configuration(local, configuration, "not needed")
    await tie_configuration(another, configuration, "not needed")
    assert await another.exists(USED_PATH), "several clusters share it"
    with pytest.raises(ConfigError, match="name it in the setting configuration_metadata_url"):
        await refuse_without(local)
    await refuse_without(configuration)
    (new,) = [await open_store("memory:", real_runtime())]
    await refused(local, new, "is new or was emptied", ConfigError)
    assert await paths_in(new) == ["/"]
    await tie_configuration(await open_store("memory:", real_runtime()), new, "second")
    await refused(local, new, "belongs to configuration store first", ConfigError)


async def test_tenants_are_in_one_place(stores: list[MetadataStore]) -> None:
    local, configuration, _ = stores
    await local.put("/admin/policies/t/n", b"{}")
    await refused(local, configuration, "has /admin/policies/t itself", ConfigError)
    assert not await configuration.exists(ID_PATH)


async def test_one_store_by_two_names_is_noticed(stores: list[MetadataStore]) -> None:
    local, _, _ = stores
    with pytest.raises(ConfigError, match="the same store in two ways"):
        await tie_configuration(local, local, "first")
    with pytest.raises(ConfigError, match="the same store in two ways"):
        await tie_configuration(local, local, "again")


@pytest.mark.parametrize(
    "urls",
    [
        ("zk:one:2181", "zk:one:2181"),
        ("zk:one:2181", "zk:one:2181/shared"),
        ("zk:one:2181,two:2181/a/b", "zk:two:2181/a"),
        ("oxia://one:6648/default", "oxia://one:6648/default"),
    ],
)
def test_neither_is_a_part_of_the_other(urls: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="the same store or has a part of the other"):
        check_apart(*urls)
    check_apart(*URLS)
    check_apart("zk:one:2181", "zk:two:2181/shared")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (ID_PATH, b"\xff"),
        (ID_PATH, b"[]"),
        (USED_PATH, b'{"format": "anabranch.configuration", "version": 2, "id": "x"}'),
        (USED_PATH, b'{"format": "anabranch.configuration", "version": 1, "id": ""}'),
        (ID_PATH, b'{"format": "anabranch.cluster", "version": 1, "id": "x"}'),
    ],
)
async def test_documents_of_others_are_refused(
    stores: list[MetadataStore], path: str, value: bytes
) -> None:
    local, configuration, _ = stores
    await (local if path == USED_PATH else configuration).put(path, value)
    await refused(local, configuration, path, FormatError)


async def test_who_is_slower_takes_the_id_of_who_was_faster(
    stores: list[MetadataStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two brokers of one cluster begin at once."""
    local, configuration, _ = stores
    put: Callable[..., object] = configuration.put

    async def overtaken(path: str, value: bytes, *rest: object) -> object:
        monkeypatch.undo()
        await tie_configuration(local, configuration, "faster")
        return await put(path, value, *rest)  # type: ignore[misc]

    monkeypatch.setattr(configuration, "put", overtaken)
    await tie_configuration(local, configuration, "slower")
    for store, path in ((local, USED_PATH), (configuration, ID_PATH)):
        node = await store.get(path)
        assert node is not None
        assert b"faster" in node.value
