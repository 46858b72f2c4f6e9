"""`anabranch managed-ledger` on the folder of a stopped server: it judges and changes nothing."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from anabranch import limits
from anabranch.cli.main import app
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import Position
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, ManagedLedgers
from anabranch.managed_ledger.chain import LedgerSpan
from anabranch.managed_ledger.formats import ChainDocument, decode_chain, encode_chain
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_tie import tie
from anabranch.server.data_folder import claim

ORDERS = "public/default/persistent/orders"
ENDED = "public/default/persistent/a%2Fb"
CONFIG = ManagedLedgerConfig(ledger_entries_max=10)


def anabranch(*words: str) -> Result:
    return CliRunner().invoke(app, ["managed-ledger", *words])


def as_json(*words: str) -> Any:
    result = anabranch(*words, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its content."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def append(ledger: ManagedLedger, payload: bytes) -> "asyncio.Future[Position]":
    future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position | None, error: Exception | None) -> None:
        assert error is None
        assert position is not None
        future.set_result(position)

    ledger.append(payload, done)
    return future


async def serve(data: Path) -> list[Position]:
    """A topic with a small and a large cursor, and one that has ended."""
    runtime = real_runtime()
    (await claim(runtime, str(data))).lock.release()
    metadata = await open_store(f"embedded:{data}/metadata", runtime)
    await tie(runtime.disk, f"{data}/ledgers", metadata, "here")
    ledgers = await EmbeddedLedgerStore.open_folder(runtime.disk, f"{data}/ledgers")
    topics = ManagedLedgers(metadata=metadata, ledgers=ledgers, runtime=runtime, config=CONFIG)
    orders = await topics.open(ORDERS)
    small = await orders.open_cursor("small", initial="earliest", cursor_properties={"k": "v"})
    large = await orders.open_cursor("large/one", initial="earliest", properties={"p": 3})
    positions = [await append(orders, b"entry %d" % number) for number in range(25)]
    await orders.set_properties({"colour": "blue"})
    small.acknowledge(positions[:3])
    small.acknowledge([positions[5], positions[6], positions[12]])
    large.acknowledge_batch(positions[8], [0b101])
    large.acknowledge(positions[1::2])
    await large.flushed()
    large.acknowledge(positions[:1])
    await large.flushed()
    await small.flushed()
    ended = await topics.open(ENDED)
    await append(ended, b"last")
    await ended.migrate()
    # No clean close: the last ledger stays open, as a crash would leave it.
    await ledgers.close()
    await metadata.close()
    return positions


@pytest.fixture
def positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Position]:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 80)
    (tmp_path / "data").mkdir()
    return asyncio.run(serve(tmp_path / "data"))


@pytest.fixture
def data(tmp_path: Path, positions: list[Position]) -> str:
    del positions
    return str(tmp_path / "data")


async def on_metadata(data: str, change: Callable[[MetadataStore], Awaitable[None]]) -> None:
    store = await open_store(f"embedded:{data}/metadata", real_runtime())
    await change(store)
    await store.close()


@pytest.mark.goal("core.L6", part="shown and checked", broken_by="open_ledger_looks_empty")
def test_show_tells_what_node_and_ledgers_say(data: str, positions: list[Position]) -> None:
    before = fingerprint(Path(data))
    for name in (ORDERS, "orders", "persistent://public/default/orders"):
        found = as_json("show", name, "--data", data)
        assert found["managed_ledger"] == ORDERS
        assert found["topic"] == "persistent://public/default/orders"
        assert found["properties"] == {"colour": "blue"}
        assert (found["entries"], found["terminated"], found["migrated"]) == (25, None, False)
        assert [row["ledger"] for row in found["ledgers"]] == sorted(
            {position.ledger_id for position in positions}
        )
        assert [(row["state"], row["entries"]) for row in found["ledgers"]] == [
            ("closed", 10), ("closed", 10), ("open", 5),
        ]  # fmt: skip
        assert found["bytes"] == sum(len(b"entry %d" % number) for number in range(25))
        assert found["cursors"] == ["large/one", "small"]
    ended = as_json("show", "persistent://public/default/a/b", "--data", data)
    assert ended["managed_ledger"] == ENDED
    assert ended["migrated"]
    assert ended["terminated"] == f"{ended['ledgers'][0]['ledger']}:0"
    text = anabranch("show", "orders", "--data", data).stdout
    assert "colour=blue" in text
    assert text.splitlines()[-1].split()[1:3] == ["open", "5"]
    assert "goes on elsewhere" in anabranch("show", ENDED, "--data", data).stdout
    assert fingerprint(Path(data)) == before


@pytest.mark.goal("core.L7", part="shown and checked", broken_by="cursor_is_shown_by_its_node")
def test_cursors_are_shown_as_they_are_stored(data: str, positions: list[Position]) -> None:
    before = fingerprint(Path(data))
    large, small = as_json("cursors", "orders", "--data", data)
    first = positions[0].ledger_id
    assert small["cursor"] == "small"
    assert small["mark_delete"] == f"{first}:2"
    assert small["pending"] == 19
    assert small["ranges"] == [[first, 5, 6], [positions[12].ledger_id, 2, 2]]
    assert (small["batches"], large["batches"]) == ({}, {f"{first}:8": [0b101]})
    assert (small["ledger"], small["entry"]) == (None, None)
    assert small["cursor_properties"] == {"k": "v"}
    assert (large["cursor"], large["properties"]) == ("large/one", {"p": 3})
    assert large["mark_delete"] == f"{first}:1"
    assert large["pending"] == 12
    assert (large["ledger"] > positions[-1].ledger_id, large["entry"]) == (True, 1)
    table = anabranch("cursors", "orders", "--data", data).stdout.splitlines()
    assert table[0].split() == ["cursor", "mark-delete", "pending", "ranges", "batches", "ledger"]
    assert table[2].split() == ["small", f"{first}:2", "19", "2", "0", "-"]
    assert fingerprint(Path(data)) == before


def test_metadata_alone_says_less(data: str) -> None:
    url = f"embedded:{data}/metadata"
    found = as_json("show", "orders", "--metadata", url)
    assert (found["entries"], found["ledgers"][-1]["entries"]) == (None, None)
    assert "not known" in anabranch("show", "orders", "--metadata", url).stdout
    large, small = as_json("cursors", "orders", "--metadata", url)
    assert large["pending"] is None
    assert small["mark_delete"] is not None
    refused = anabranch("verify", "--metadata", url)
    assert refused.exit_code == 2
    assert "give --ledgers" in refused.stderr


def test_sound_folder_has_no_findings(data: str) -> None:
    before = fingerprint(Path(data))
    found = as_json("verify", "--data", data)
    assert found["findings"] == []
    assert (found["managed_ledgers"], found["ledgers"], found["cursors"]) == (2, 4, 2)
    assert found["entries"] == 26
    one = as_json(
        "verify", "orders",
        "--metadata", f"embedded:{data}/metadata", "--ledgers", f"embedded:{data}/ledgers",
    )  # fmt: skip
    assert (one["managed_ledgers"], one["entries"], one["findings"]) == (1, 25, [])
    assert fingerprint(Path(data)) == before


@pytest.mark.goal("core.L6", part="shown and checked", broken_by="counts_are_not_compared")
@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("entries", "its chain says 11 entries, and it has 10"),
        ("size", "its chain says 1 bytes, and it has"),
    ],
)
def test_chain_that_counts_wrong_is_found(data: str, field: str, said: str) -> None:
    async def change(store: MetadataStore) -> None:
        node = await store.get(f"/managed-ledgers/{ORDERS}")
        assert node is not None
        info = pb.ManagedLedgerInfo.FromString(node.value)
        setattr(info.ledgerInfo[0], field, 11 if field == "entries" else 1)
        await store.put(node.stat.path, info.SerializeToString())

    asyncio.run(on_metadata(data, change))
    before = fingerprint(Path(data))
    found = anabranch("verify", "orders", "--data", data)
    assert found.exit_code == 1
    assert said in found.stdout
    assert found.stdout.splitlines()[-1].startswith("1 findings in 1 managed ledgers")
    assert fingerprint(Path(data)) == before


async def spoil(store: MetadataStore, positions: list[Position]) -> None:
    """Another topic that names ledgers of the first and one that is not there; bad cursors."""
    folder = "/managed-ledgers/public/default/persistent"
    node = await store.get(f"{folder}/orders")
    assert node is not None
    spans = (*decode_chain(node.value, ORDERS).spans[1:], LedgerSpan(10**6, 1, 1, 1))
    thief = ChainDocument(spans, terminated=positions[0])
    await store.put(f"{folder}/thief", encode_chain(thief))
    await store.put(f"{folder}/torn", b"\xff")
    small = await store.get(f"{folder}/orders/small")
    assert small is not None
    cursor = pb.ManagedCursorInfo.FromString(small.value)
    cursor.cursorsLedgerId = 10**6 + 1
    await store.put(f"{folder}/orders/lost", cursor.SerializeToString())
    cursor.cursorsLedgerId = -1
    cursor.markDeleteLedgerId = positions[-1].ledger_id
    cursor.markDeleteEntryId = 5
    await store.put(f"{folder}/orders/beyond", cursor.SerializeToString())
    await store.put(f"{folder}/orders/broken", b"\xff")


@pytest.mark.goal("core.L6", part="shown and checked", broken_by="lost_ledger_is_not_missed")
def test_damage_of_every_kind_is_found(data: str, positions: list[Position]) -> None:
    asyncio.run(on_metadata(data, lambda store: spoil(store, positions)))
    found = anabranch("verify", "--data", data, "--output", "json")
    assert found.exit_code == 1
    said: dict[tuple[str, str], str] = {}
    for each in json.loads(found.stdout)["findings"]:
        key = each["managed_ledger"].rpartition("/")[2], each["where"]
        said[key] = f"{said.get(key, '')}; {each['detail']}"
    middle, last = (f"ledger {positions[n].ledger_id}" for n in (10, -1))
    assert f"{ORDERS} has it too; it was made for {ORDERS}" in said.pop(("thief", middle), "")
    assert "it is not closed, and is not the last one" in said.pop(("thief", last), "")
    assert "it is not in the ledger store" in said.pop(("thief", "ledger 1000000"), "")
    assert "and its last entry is" in said.pop(("thief", "end"), "")
    assert "is not a ManagedLedgerInfo" in said.pop(("torn", "node"), "")
    assert "is above the last entry" in said.pop(("orders", "cursor beyond"), "")
    assert "is not a ManagedCursorInfo" in said.pop(("orders", "cursor broken"), "")
    assert "its ledger 1000001 is not there" in said.pop(("orders", "cursor lost"), "")
    assert said == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "orders"), "give --data FOLDER"),
        (("show", "orders", "--data", "{data}", "--metadata", "memory:"), "and not both"),
        (("show", "orders", "--data", "{data}/metadata"), "is not the data folder"),
        (("show", "nothing", "--data", "{data}"), "there is no managed ledger public/default"),
        (("show", "a/b", "--data", "{data}"), "topic name needs"),
        (("cursors", "nothing", "--data", "{data}"), "there is no managed ledger"),
        (("verify", "nothing", "--data", "{data}"), "there is no managed ledger"),
        (("verify", "--metadata", "embedded:{data}/metadata", "--ledgers", "memory:"), "looked"),
        (("verify", "--metadata", "embedded:{data}"), "there is no metadata store"),
        (("verify", "--metadata", "nonsense:"), "nonsense"),
    ],
)
def test_wrong_words_are_refused(data: str, words: tuple[str, ...], said: str) -> None:
    before = fingerprint(Path(data))
    refused = anabranch(*(word.format(data=data) for word in words))
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr
    assert fingerprint(Path(data)) == before


def test_folder_in_use_is_refused(data: str) -> None:
    lock = real_runtime().disk.lock_folder(data)
    try:
        for words in (
            ("--data", data),
            ("--metadata", "memory:", "--ledgers", f"embedded:{data}/ledgers"),
        ):
            refused = anabranch("verify", *words)
            assert refused.exit_code == 2
            assert "is in use by another process" in refused.stderr
    finally:
        lock.release()
