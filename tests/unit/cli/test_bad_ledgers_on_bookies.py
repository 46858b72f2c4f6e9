"""What is wrong with a ledger on bookies is said clearly, by the library and by the commands.

Nothing is changed by it: the metadata of every ledger stay as they were, byte for byte.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli.main import app
from anabranch.errors import ConfigError, ConflictError, FormatError, InputError
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.testing.bookies.loopback import LoopbackBookie
from anabranch.testing.contracts.ledgers import append, payloads_of

GOOD, BAD = 7, 8
USED = BookKeeperSettings(ensemble_size=1, write_quorum=1, ack_quorum=1, password=b"secret")
UNKNOWN_VERSION = b"BookieMetadataFormatVersion\t9\nwhatever"
DAMAGED = b"BookieMetadataFormatVersion\t3\n\x7fcut"


@dataclass
class Bench:
    """A bookie, its metadata in another process, a closed ledger, and room for a bad one."""

    folder: Path
    url: str
    metadata: MetadataStore
    store: BookKeeperLedgerStore

    async def tree(self) -> dict[str, bytes]:
        return {node.stat.path: node.value async for node in self.metadata.scan("/ledgers")}

    async def spoil(self, content: bytes) -> None:
        await self.metadata.put(LedgerPaths().ledger(BAD), content)

    async def command(self, *words: str, password: str | None = None) -> Result:
        """Run a command, which has an event loop of its own."""
        options = ["--metadata", self.url]
        if password is not None:
            file = self.folder / "credentials.toml"
            head = 'format = "anabranch.ledgers-credentials"\nversion = 1\n[bookkeeper]\n'
            file.write_text(f'{head}password = "{password}"\n')
            file.chmod(0o600)
            options += ["--credentials", str(file)]
        name, *rest = words
        command = ["ledgers", name, "bookkeeper:", *rest, *options]
        return await asyncio.to_thread(CliRunner().invoke, app, command)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    runtime = real_runtime()
    async with AsyncExitStack() as held:
        service = MetadataService(runtime, Settings(data=str(tmp_path / "m"), metadata_port=0))
        await service.start()
        held.push_async_callback(service.close)
        metadata = await ServedStore.open(runtime, service.url)
        held.push_async_callback(metadata.close)
        bookie = LoopbackBookie(runtime, metadata)
        await bookie.start()
        held.push_async_callback(bookie.stop)
        store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, USED)
        held.push_async_callback(store.close)
        writer = await store.create(GOOD)
        await append(writer, b"good")
        await writer.close()
        yield Bench(tmp_path, service.url, metadata, store)


@pytest.mark.broken_by("ledger_metadata_of_any_version")
@pytest.mark.broken_by("cut_ledger_metadata_are_believed")
@pytest.mark.parametrize(
    ("content", "said"),
    [(UNKNOWN_VERSION, "version 9; this build knows 2 and 3"), (DAMAGED, "cut off: 3 of 127")],
)
async def test_metadata_that_cannot_be_understood(bench: Bench, content: bytes, said: str) -> None:
    await bench.spoil(content)
    before = await bench.tree()
    for act in (bench.store.open, bench.store.describe, bench.store.delete):
        with pytest.raises(FormatError, match=rf"ledger {BAD}.*{said}"):
            await act(BAD)
    for words in (("describe", str(BAD)), ("read", str(BAD)), ("delete", str(BAD), "--force")):
        result = await bench.command(*words)
        assert result.exit_code == 2
        assert f"ledger {BAD}" in result.stderr
        assert said in result.stderr
    listed = await bench.command("ls", "--output", "json")
    states = {row["ledger"]: row["state"] for row in json.loads(listed.stdout)}
    assert states == {GOOD: "closed", BAD: "unreadable"}, "the others are shown"
    checked = await bench.command("verify")
    assert checked.exit_code == 1
    assert said in checked.stdout
    assert "1 ledgers, 1 entries, 1 good copies" in checked.stdout
    assert await bench.tree() == before


@pytest.mark.broken_by("ledgers_of_any_password")
async def test_a_password_that_is_not_the_ledgers(bench: Bench) -> None:
    before = await bench.tree()
    runtime = real_runtime()
    wrong = replace(USED, password=b"guess")
    stranger = await BookKeeperLedgerStore.open_cluster(runtime, bench.metadata, wrong)
    with pytest.raises(ConfigError, match=f"ledger {GOOD} has another password"):
        await stranger.open(GOOD)
    await stranger.close()
    removal = ("delete", str(GOOD), "--force")
    for words in (("describe", str(GOOD)), ("read", str(GOOD)), ("verify",), removal):
        result = await bench.command(*words, password="guess")
        assert result.exit_code == 2
        assert f"ledger {GOOD} has another password than the settings" in result.stderr
    shown = await bench.command("read", str(GOOD), "--format", "raw", password="secret")
    assert shown.stdout == "good"
    assert await bench.tree() == before


@pytest.mark.broken_by("ledger_ids_are_used_again")
async def test_an_id_that_is_in_use(bench: Bench) -> None:
    before = await bench.tree()
    with pytest.raises(ConflictError, match=f"ledger {GOOD} exists already"):
        await bench.store.create(GOOD)
    assert await bench.tree() == before
    assert await payloads_of(await bench.store.open(GOOD)) == [b"good"]


@pytest.mark.broken_by("entries_of_any_size_go_to_bookies")
async def test_an_entry_above_the_limit(bench: Bench) -> None:
    writer = await bench.store.create(9)
    with pytest.raises(InputError, match="an entry of 5253121 bytes is too large, bookies take"):
        writer.append(bytes(5_253_121), lambda *_: None)
    assert await append(writer, b"next") == [0], "nothing was changed"
    assert bench.store.pressure.pending_bytes == 0


async def test_a_layout_that_is_not_known(bench: Bench) -> None:
    await bench.metadata.put("/ledgers/LAYOUT", b"2\norg.example.Flat:1")
    before = await bench.tree()
    with pytest.raises(FormatError, match="LAYOUT"):
        await BookKeeperLedgerStore.open_cluster(real_runtime(), bench.metadata, USED)
    result = await bench.command("ls")
    assert result.exit_code == 2
    assert "LAYOUT" in result.stderr
    assert await bench.tree() == before
