"""Settings that say how topics are kept, and what comes of them in the metadata store."""

from pathlib import Path

import pytest

from anabranch.errors import ConfigError
from anabranch.ids import TopicName
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import SETTINGS, Settings
from anabranch.server.topic_settings import managed_ledger_config

NAME = TopicName.parse("orders").managed_ledger_name
COMPRESSED = b"\x47\x78"
LARGE = {"note": "x" * 20_000}


async def nodes(store: MetadataStore) -> tuple[bytes, bytes]:
    """The beginnings of the nodes of the topic and of its subscription."""
    found = []
    for path in (f"/managed-ledgers/{NAME}", f"/managed-ledgers/{NAME}/s"):
        node = await store.get(path)
        assert node is not None
        found.append(node.value[:2])
    return found[0], found[1]


@pytest.mark.parametrize("kind", ["chain", "cursor"])
async def test_large_nodes_of_one_kind_are_compressed_if_a_setting_says_so(kind: str) -> None:
    settings = Settings(**{f"{kind}_compression": "zlib"})  # type: ignore[arg-type]
    runtime = real_runtime()
    store = await open_store("memory:", runtime)
    topics = ManagedLedgers(
        metadata=store, ledgers=MemoryLedgerStore(), runtime=runtime,
        config=managed_ledger_config(settings),
    )  # fmt: skip
    ledger = await topics.open(NAME)
    await ledger.open_cursor("s")
    assert COMPRESSED not in await nodes(store), "small ones stay as they are"
    await ledger.set_properties(LARGE)
    cursor = ledger.cursors["s"]
    cursor.set_cursor_properties(LARGE)
    await cursor.flushed()
    chain, stored = await nodes(store)
    assert (chain == COMPRESSED, stored == COMPRESSED) == (kind == "chain", kind == "cursor")
    await topics.close()
    await store.close()


async def test_a_server_keeps_topics_as_its_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Settings] = []

    def noted(settings: Settings) -> object:
        asked.append(settings)
        raise ConfigError("the extra 'compression' is missing")

    monkeypatch.setattr("anabranch.server.assembly.managed_ledger_config", noted)
    settings = Settings(
        data=str(tmp_path), port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:",
        chain_compression="lz4",
    )  # fmt: skip
    server = Standalone(real_runtime(), settings)
    with pytest.raises(ConfigError, match="the extra 'compression' is missing"):
        await server.start()
    assert asked == [settings]


@pytest.mark.parametrize("name", ["chain_compression", "cursor_compression"])
def test_only_forms_that_pulsar_reads_are_allowed(name: str) -> None:
    assert SETTINGS[name].choices == ("none", "lz4", "zlib", "zstd", "snappy")
    with pytest.raises(ValueError, match="is not none or lz4"):
        SETTINGS[name].parse("brotli")
