"""Ledgers belong to the metadata that name them: those of another cluster open none of them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import ConfigError, FormatError
from anabranch.metadata.factory import open_store
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.cluster_tie import PATH, TIE_FILE, tie, tie_bookies, tie_path
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings


@pytest.fixture
async def runtime() -> Runtime:
    return real_runtime()


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


async def test_ledgers_are_not_opened_for_the_metadata_of_another_cluster(
    runtime: Runtime, tmp_path: Path
) -> None:
    services = []
    for name in ("first", "second"):
        settings = Settings(data=str(tmp_path / name), metadata_port=0)
        services.append(MetadataService(runtime, settings))
        await services[-1].start()
    data, other = tmp_path / "data", tmp_path / "other"

    async def start(folder: Path, service: MetadataService) -> None:
        settings = Settings(port=0, web_port=0, data=str(folder), metadata_url=service.url)
        server = Standalone(runtime, settings)
        await server.start()
        await server.close()

    await start(data, services[0])
    await start(other, services[1])
    before = fingerprint(data)
    with pytest.raises(
        ConfigError, match=r"belong to cluster .* and the metadata store to cluster"
    ):
        await start(data, services[1])
    assert fingerprint(data) == before
    await start(data, services[0])
    await start(tmp_path / "one more", services[0])
    ties = [
        json.loads((tmp_path / name / "ledgers" / TIE_FILE).read_text())
        for name in ("data", "one more", "other")
    ]
    assert ties[0] == ties[1] != ties[2]
    for service in services:
        await service.close()


async def test_metadata_without_a_name_get_none_from_ledgers_that_have_one(
    runtime: Runtime, tmp_path: Path
) -> None:
    folder = str(tmp_path / "ledgers")
    named, empty = [await open_store("memory:", runtime) for _ in range(2)]
    assert await tie(runtime.disk, folder, named, "a") == "a"
    assert await tie(runtime.disk, folder, named, "b") == "a"
    with pytest.raises(ConfigError, match=r"of cluster a, but .* new or was emptied"):
        await tie(runtime.disk, folder, empty, "c")
    assert await empty.get(PATH) is None


async def test_ledgers_of_before_there_were_ties_are_not_given_to_empty_metadata(
    runtime: Runtime, tmp_path: Path
) -> None:
    (tmp_path / "journal").mkdir()
    empty, used = [await open_store("memory:", runtime) for _ in range(2)]
    await used.put("/anabranch/features", b"{}")
    with pytest.raises(ConfigError, match="new or was emptied"):
        await tie(runtime.disk, str(tmp_path), empty, "a")
    assert await empty.get(PATH) is None
    assert not (tmp_path / TIE_FILE).exists()
    assert await tie(runtime.disk, str(tmp_path), used, "a") == "a"


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (b"\xff", "is not JSON"),
        (b"[]", "not a document of format"),
        (b'{"format": "anabranch.cluster", "version": 2}', "has version 2; this build knows 1"),
        (b'{"format": "anabranch.cluster", "version": 1}', "names no cluster_id"),
    ],
)
async def test_an_unknown_tie_is_refused_by_name(
    runtime: Runtime, tmp_path: Path, document: bytes, complaint: str
) -> None:
    (tmp_path / TIE_FILE).write_bytes(document)
    metadata = await open_store("memory:", runtime)
    with pytest.raises(FormatError, match=complaint) as caught:
        await tie(runtime.disk, str(tmp_path), metadata, "a")
    assert TIE_FILE in str(caught.value)
    assert await metadata.get(PATH) is None


async def test_ledgers_on_bookies_belong_to_the_first_metadata_that_name_them(
    runtime: Runtime,
) -> None:
    first, second, registry = [await open_store("memory:", runtime) for _ in range(3)]
    assert await tie_bookies(first, registry, "/ledgers", "a") == "a"
    assert await tie_bookies(first, registry, "/ledgers", "x") == "a"
    with pytest.raises(ConfigError, match=r"cluster a, but the metadata store is new or was"):
        await tie_bookies(second, registry, "/ledgers", "b")
    assert await second.get(PATH) is None
    assert await tie_bookies(second, registry, "/others", "b") == "b", "another root is free"
    with pytest.raises(ConfigError, match=r"cluster a, and the metadata store to cluster b"):
        await tie_bookies(second, registry, "/ledgers", "b")
    assert await tie_bookies(second, second, "/ledgers", "x") == "b", "bookies of its own"


async def test_an_unknown_tie_of_bookies_is_refused_by_name(runtime: Runtime) -> None:
    metadata = await open_store("memory:", runtime)
    await metadata.put(tie_path("/ledgers"), b'{"format": "anabranch.cluster", "version": 2}')
    with pytest.raises(FormatError, match=r"/anabranch/bookies/ledgers has version 2; this build"):
        await tie_bookies(metadata, metadata, "/ledgers", "a")
    assert await metadata.get(PATH) is None


async def test_the_tie_of_bookies_is_one_however_the_address_is_written(runtime: Runtime) -> None:
    below, above = "/one/two/ledgers", "/ledgers"
    whole = await open_store("memory:", runtime)
    await tie_bookies(whole, whole, below, "a")
    node = await whole.get("/one/two/anabranch/bookies/ledgers")
    assert node is not None, "what a store sees whose root is /one/two"
    chrooted, other = [await open_store("memory:", runtime) for _ in range(2)]
    await chrooted.put("/anabranch/bookies/ledgers", node.value)
    with pytest.raises(ConfigError, match="belong to cluster a"):
        await tie_bookies(other, chrooted, above, "b")


async def test_servers_that_start_together_agree(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store("memory:", runtime)
    look, overtaken = store.get, False

    async def overtaken_after_the_first_look(path: str) -> Any:
        nonlocal overtaken
        found = await look(path)
        if not overtaken:
            overtaken = True
            assert await tie_bookies(store, store, "/ledgers", "faster") == "faster"
        return found

    monkeypatch.setattr(store, "get", overtaken_after_the_first_look)
    assert await tie_bookies(store, store, "/ledgers", "slower") == "faster"
