"""Commands about the ledgers of a stopped server, whose data are not known here, or damaged.

Every one of them says what is wrong, of which file, and changes nothing.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.metadata.features import FEATURES_PATH, check_features, encode_features
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_tie import tie
from anabranch.server.data_folder import IDENTITY_FILE, claim

TOPIC = "public/default/persistent/orders"
LOG = "metadata/log/000000000001.journal"
VERSION_AT = 9
"""Where a segment's header has the low byte of its version."""
LOOKS = (
    ("managed-ledger", "show", "orders", "--data", "{data}"),
    ("managed-ledger", "cursors", "orders", "--data", "{data}"),
    ("managed-ledger", "verify", "--data", "{data}"),
    ("ledgers", "ls", "{data}", "--orphans"),
)
REMOVES = (("ledgers", "gc", "{data}"), ("ledgers", "delete", "{data}", "{orphan}"))
FORCED = ("ledgers", "delete", "{data}", "{orphan}", "--force")
LEDGERS_ALONE = (
    ("ledgers", "ls", "{data}"),
    ("ledgers", "describe", "{data}/ledgers", "{orphan}"),
    ("ledgers", "verify", "embedded:{data}/ledgers"),
)


async def serve(data: Path) -> int:
    """A data folder with a topic, and a ledger that nothing names."""
    runtime = real_runtime()
    (await claim(runtime, str(data))).lock.release()
    metadata = await open_store(f"embedded:{data}/metadata", runtime)
    await check_features(metadata)
    await tie(runtime.disk, f"{data}/ledgers", metadata, "here")
    ledgers = await EmbeddedLedgerStore.open_folder(runtime.disk, f"{data}/ledgers")
    topics = ManagedLedgers(metadata=metadata, ledgers=ledgers, runtime=runtime)
    await topics.open(TOPIC)
    orphan = await topics.ids.next()
    await ledgers.create(orphan)
    await topics.close()
    await ledgers.close()
    await metadata.close()
    return orphan


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its content."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def of_another_version(data: Path) -> None:
    file = data / IDENTITY_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 9}))


def of_nobody(data: Path) -> None:
    (data / IDENTITY_FILE).write_text("{}")


def with_other_features(data: Path) -> None:
    async def put() -> None:
        metadata = await open_store(f"embedded:{data}/metadata", real_runtime())
        await metadata.put(FEATURES_PATH, encode_features({"ledger-layout": 2}))
        await metadata.close()

    asyncio.run(put())


def changed(file: str, at: int, mask: int) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        content = bytearray((data / file).read_bytes())
        content[at] ^= mask
        (data / file).write_bytes(content)

    return change


def check_refused(
    data: Path, change: Callable[[Path], None], commands: tuple[tuple[str, ...], ...], said: str
) -> None:
    data.mkdir()
    orphan = asyncio.run(serve(data))
    change(data)
    before = fingerprint(data)
    for words in commands:
        command = [word.format(data=data, orphan=orphan) for word in words]
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code == 2, (command, refused.output)
        assert said.format(data=data) in refused.stderr, command
        assert refused.stdout == ""
    assert fingerprint(data) == before


@pytest.mark.goal("core.U1", part="data folder", broken_by="data_folder_of_any_version")
def test_a_data_folder_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    commands = (*LOOKS, *REMOVES, FORCED, *LEDGERS_ALONE)
    said = "{data}/anabranch.json has format version 9; this build knows 1"
    check_refused(tmp_path / "data", of_another_version, commands, said)


def test_a_data_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    commands = (*LOOKS, *REMOVES, FORCED, *LEDGERS_ALONE)
    said = "{data}/anabranch.json is not the identity of an Anabranch data folder"
    check_refused(tmp_path / "data", of_nobody, commands, said)


@pytest.mark.goal("core.U1", part="features", broken_by="features_are_not_asked_for")
def test_data_for_features_that_are_not_known_here_are_refused(tmp_path: Path) -> None:
    said = "ledger-layout is at 2, this build knows 1 to 1"
    check_refused(tmp_path / "data", with_other_features, (*LOOKS, *REMOVES), said)


@pytest.mark.broken_by("damage_is_said_of_the_copy")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(LOG, VERSION_AT, 8), "{data}/" + LOG + " has journal format version 9"),
        (changed(LOG, 200, 1), "corrupt data in {data}/" + LOG + " at byte"),
        (changed(LOG, 200, 1), "although {data}/" + LOG + " says at byte"),
    ],
)
def test_what_is_wrong_with_metadata_is_said_of_the_file_that_has_it(
    tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    check_refused(tmp_path / "data", change, (*LOOKS, *REMOVES), said)
