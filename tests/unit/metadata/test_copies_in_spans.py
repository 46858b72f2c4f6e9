"""A copy that is alone with its target does not look before each span, and still sees others."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.errors import ConflictError
from anabranch.metadata.factory import open_store
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.copying import Copy, CopyOptions, CopyReport
from anabranch.metadata.transfer.keeping import EVERYTHING, keeping_of
from anabranch.metadata.transfer.rights_last import RestoresAlone
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.model_stores import empty_store_url, model_runtime

TREE = [Record("/a", b"parent", 2, 1, 1, 40)] + [
    Record(f"/a/{number:02}", b"v", number % 3, 1, 1, number % 2) for number in range(30)
]


@pytest.fixture(params=["zookeeper", "oxia"])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    async with AsyncExitStack() as held:
        yield await empty_store_url(request.param, "", held)


@pytest.fixture
async def target(url: str) -> AsyncIterator[MetadataStore]:
    store = await open_store(url, model_runtime())
    yield store
    await store.close()


async def copied(target: MetadataStore, url: str, folder: Path) -> CopyReport:
    source = MemoryStore(model_runtime().clock)
    await source.restore(each(TREE))
    options = CopyOptions(
        checkpoint=f"{folder}/checkpoint",
        span_nodes=4,
        version_map=f"{folder}/map",
        sorting_folder=str(folder),
    )
    origin = StoreSource(source, "source:", "/", EVERYTHING)
    try:
        return await Copy(
            model_runtime(), origin, target, "target:", keeping_of(url), options
        ).run()
    finally:
        await source.close()


async def test_spans_are_written_without_a_look(
    target: MetadataStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    get, exists = OxiaClient.get, ZooKeeperClient.exists

    def noted_get(self: OxiaClient, path: str, **how: bool) -> object:
        looks.append(path)
        return get(self, path, **how)

    async def noted_exists(self: ZooKeeperClient, path: str) -> object:
        looks.append(path)
        return await exists(self, path)

    monkeypatch.setattr(OxiaClient, "get", noted_get)
    monkeypatch.setattr(ZooKeeperClient, "exists", noted_exists)
    report = await copied(target, url, tmp_path)
    assert (report.verified, report.digest.nodes) == (True, len(TREE) + 1)
    assert not {path for path in looks if path.startswith("/a/")}


async def test_node_of_somebody_else_is_not_written_over(
    target: MetadataStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(target, RestoresAlone)
    real, spans = target.restore_alone, list[int]()

    async def restore_alone(records: AsyncIterator[Record]) -> int:
        spans.append(await real(records))
        if len(spans) == 3:
            await target.put("/a/20", b"of somebody else")
        return spans[-1]

    monkeypatch.setattr(target, "restore_alone", restore_alone)
    with pytest.raises(ConflictError, match="/a/20 exists already"):
        await copied(target, url, tmp_path)
    node = await target.get("/a/20")
    assert node is not None
    assert node.value == b"of somebody else"
