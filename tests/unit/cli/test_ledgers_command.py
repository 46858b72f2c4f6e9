"""`anabranch ledgers` on the folder of a stopped store: it tells much and changes nothing."""

import asyncio
import base64
import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli.main import app
from anabranch.ids import Position
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_tie import TIE_FILE, encode, tie
from anabranch.server.data_folder import claim
from anabranch.testing.contracts.ledgers import append

SEGMENT_BYTES = 2000


def anabranch(*words: str) -> Result:
    return CliRunner().invoke(app, ["ledgers", *words])


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its content."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


async def fill(folder: Path) -> None:
    runtime = real_runtime()
    store = await EmbeddedLedgerStore.open_folder(
        runtime.disk, str(folder), segment_bytes=SEGMENT_BYTES
    )
    closed = await store.create(7, custom_metadata={"application": b"pulsar"})
    left_open = await store.create(2**40)
    for number in range(30):
        await append(closed, b"closed-%d;" % number * 10)
        await append(left_open, b"open-%d;" % number * 10)
    await closed.close()
    await store.tidied()
    await store.close()


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "ledgers"))
    return tmp_path / "ledgers"


def test_a_disk_that_takes_no_writes_can_be_looked_into(
    ledgers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {"magic": "anabranch data folder", "version": 1, "cluster_id": "here"}
    (ledgers.parent / "anabranch.json").write_text(json.dumps(identity))
    (ledgers.parent / "lock").touch()
    opened: list[str] = []
    real_open = os.open

    def read_only_open(path: str, flags: int, *mode: int) -> int:
        if str(path).startswith(str(ledgers.parent)):
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise OSError(errno.EROFS, "Read-only file system", path)
            opened.append(Path(path).name)
        return real_open(path, flags, *mode)

    monkeypatch.setattr("anabranch.runtime.real_disk.os.open", read_only_open)
    url = f"embedded:{ledgers}"
    for words in (("ls", url), ("describe", url, "7"), ("read", url, "7"), ("verify", url)):
        result = anabranch(*words)
        assert result.exit_code == 0, (words, result.output)
    assert "000000000001.journal" in opened
    assert opened.count("lock") == 4


def test_ls_describe_and_read_change_nothing(ledgers: Path) -> None:
    before = fingerprint(ledgers)
    url = f"embedded:{ledgers}"
    listed = json.loads(anabranch("ls", url, "--output", "json").stdout)
    assert [(row["ledger"], row["state"], row["entries"]) for row in listed] == [
        (7, "closed", 30),
        (2**40, "open", 30),
    ]
    table = anabranch("ls", url).stdout.splitlines()
    assert table[0].split() == ["ledger", "state", "entries", "bytes", "segments"]
    assert table[1].split()[:3] == ["7", "closed", "30"]
    known = json.loads(anabranch("describe", url, "00/0000/L0007", "--output", "json").stdout)
    assert known["custom_metadata"] == {"application": "pulsar"}
    assert known["long_path"] == "000/0000/0000/0000/L0007"
    assert known["runs"][0] == {"first_entry": 0, "segment": 1}
    assert "application=pulsar" in anabranch("describe", url, "7").stdout
    lines = anabranch("read", url, "7", "--first", "3", "--last", "5", "--format", "json").stdout
    entries = [json.loads(line) for line in lines.splitlines()]
    assert [entry["entry"] for entry in entries] == [3, 4, 5]
    assert base64.b64decode(entries[0]["data"]) == b"closed-3;" * 10
    raw = anabranch("read", url, "7", "--first", "29", "--format", "raw").stdout_bytes
    assert raw == b"closed-29;" * 10
    assert anabranch("read", url, "7", "--last", "0").stdout == f"7:0 {(b'closed-0;' * 10).hex()}\n"
    assert anabranch("verify", url).exit_code == 0
    assert fingerprint(ledgers) == before


def test_a_torn_tail_is_said_and_left(ledgers: Path) -> None:
    tail = sorted((ledgers / "journal").iterdir())[-1]
    if tail.stat().st_size < 100:
        tail = sorted((ledgers / "journal").iterdir())[-2]
    tail.write_bytes(tail.read_bytes() + b"\0\0\1\0torn")
    before = fingerprint(ledgers)
    checked = anabranch("verify", str(ledgers), "--output", "json")
    assert checked.exit_code == 0
    assert json.loads(checked.stdout)["torn_bytes"] == 8
    assert anabranch("ls", str(ledgers)).exit_code == 0
    assert fingerprint(ledgers) == before


@pytest.mark.parametrize("index_files", ["there", "lost"])
def test_verify_names_every_damaged_entry(ledgers: Path, index_files: str) -> None:
    files = sorted((ledgers / "journal").iterdir())
    flipped = {}
    for file, text in ((files[0], b"closed-1;"), (files[0], b"open-3;"), (files[2], b"open-")):
        content = bytearray(file.read_bytes())
        at = content.index(text)
        content[at] ^= 1
        file.write_bytes(content)
        flipped[file.name, at - 29] = text
    if index_files == "lost":
        for file in (ledgers / "index").iterdir():
            file.unlink()
    before = fingerprint(ledgers)
    checked = anabranch("verify", f"embedded:{ledgers}", "--output", "json")
    assert checked.exit_code == 1
    damage = json.loads(checked.stdout)["damage"]
    places = {(Path(each["file"]).name, each["offset"]) for each in damage}
    if index_files == "there":
        assert places == set(flipped)
        assert {each["entry"] for each in damage} >= {"7:1", f"{2**40}:3"}
        assert "entry 7:1: a record fails its checksum" in anabranch("verify", str(ledgers)).stdout
    else:
        first = next(iter(flipped))
        assert first in places
        assert anabranch("ls", str(ledgers)).exit_code == 2, "no list of what cannot be read"
    assert fingerprint(ledgers) == before


def test_a_lost_segment_is_damage(ledgers: Path) -> None:
    files = sorted((ledgers / "journal").iterdir())
    files[1].unlink()
    checked = anabranch("verify", str(ledgers))
    assert checked.exit_code == 1
    assert "is a segment lost" in checked.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ls", "memory:"), "cannot be looked into"),
        (("ls", "{nowhere}"), "there is no ledger store"),
        (("verify", "{nowhere}"), "there is no ledger store"),
        (("describe", "{store}", "8"), "there is no ledger 8"),
        (("describe", "{store}", "L8"), "is no ledger id"),
        (("read", "{store}", "7", "--first", "30"), "entries up to 29"),
        (("read", "{store}", "7", "--first", "3", "--last", "2"), "before --first"),
        (("ls", "{store}", "--orphans"), "known only with the data folder"),
        (("gc", "{store}"), "known only with the data folder"),
        (("delete", "{store}", "7"), "known only with the data folder"),
        (("delete", "{store}", "8", "--force"), "there is no ledger 8"),
        (("verify", "{store}", "--ledger", "7"), "--ledger is for bookies"),
        (("ls", "bookkeeper:"), "does not say in which metadata store"),
        (("gc", "bookkeeper:zk:127.0.0.1:1"), "somebody may be creating a ledger"),
        (("ls", "bookkeeper:zk:127.0.0.1:1?acks=2"), "unknown option 'acks'"),
        (("describe", "bookkeeper:embedded:{nowhere}", "7"), "there is no metadata store"),
    ],
)
def test_wrong_words_are_refused(
    ledgers: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    places = {"store": str(ledgers), "nowhere": str(tmp_path / "nowhere")}
    refused = anabranch(*(word.format(**places) for word in words))
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert not (tmp_path / "nowhere").exists()


async def serve_and_orphan(data: Path) -> tuple[Position, int]:
    runtime = real_runtime()
    (await claim(runtime, str(data))).lock.release()
    metadata = await open_store(f"embedded:{data}/metadata", runtime)
    await tie(runtime.disk, f"{data}/ledgers", metadata, "here")
    ledgers = await EmbeddedLedgerStore.open_folder(runtime.disk, f"{data}/ledgers")
    topics = ManagedLedgers(metadata=metadata, ledgers=ledgers, runtime=runtime)
    topic = await topics.open("public/default/persistent/orders")
    stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
    topic.append(b"entry", lambda position, _error: stored.set_result(position))
    position = await stored
    orphan = await topics.ids.next()
    await ledgers.create(orphan)
    await topics.close()
    await ledgers.close()
    await metadata.close()
    return position, orphan


def test_orphans_are_those_that_nothing_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    position, orphan = asyncio.run(serve_and_orphan(data))
    before = fingerprint(data)
    every = json.loads(anabranch("ls", str(data), "--output", "json").stdout)
    assert {position.ledger_id, orphan} <= {row["ledger"] for row in every}
    found = json.loads(anabranch("ls", str(data), "--orphans", "--output", "json").stdout)
    assert [row["ledger"] for row in found] == [orphan]
    assert fingerprint(data) == before
    lock = real_runtime().disk.lock_folder(str(data))
    try:
        refused = anabranch("ls", str(data / "ledgers"))
        assert refused.exit_code == 2
        assert "is in use by another process" in refused.stderr
    finally:
        lock.release()


def test_gc_removes_orphans_and_nothing_else(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    position, orphan = asyncio.run(serve_and_orphan(data))
    before = fingerprint(data)
    said = anabranch("gc", str(data), "--dry-run", "--output", "json")
    assert [row["ledger"] for row in json.loads(said.stdout)] == [orphan]
    assert fingerprint(data) == before
    done = anabranch("gc", str(data))
    assert done.exit_code == 0
    assert done.stderr == "1 ledgers were removed\n"
    left = json.loads(anabranch("ls", str(data), "--output", "json").stdout)
    assert position.ledger_id in {row["ledger"] for row in left}
    assert orphan not in {row["ledger"] for row in left}
    assert json.loads(anabranch("gc", str(data), "--output", "json").stdout) == []


@pytest.mark.parametrize("tied", [b"", encode("elsewhere")])
def test_gc_trusts_no_metadata_that_the_ledgers_do_not_belong_to(
    tmp_path: Path, tied: bytes
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    asyncio.run(serve_and_orphan(data))
    note = data / "ledgers" / TIE_FILE
    note.unlink()
    if tied:
        note.write_bytes(tied)
    before = fingerprint(data)
    refused = anabranch("gc", str(data))
    assert refused.exit_code == 2
    assert "belong to cluster elsewhere" in refused.stderr or "nothing says" in refused.stderr
    assert fingerprint(data) == before


def test_gc_trusts_no_metadata_that_are_older_than_the_ledgers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    asyncio.run(serve_and_orphan(data))

    async def go_on_with_metadata_elsewhere() -> None:
        ledgers = await EmbeddedLedgerStore.open_folder(real_runtime().disk, f"{data}/ledgers")
        await ledgers.create(101)
        await ledgers.close()

    asyncio.run(go_on_with_metadata_elsewhere())
    before = fingerprint(data)
    for command in (("gc",), ("ls", "--orphans")):
        refused = anabranch(*command, str(data))
        assert refused.exit_code == 2
        assert "ledger 101 is newer than the metadata" in refused.stderr
    assert fingerprint(data) == before


def test_gc_is_refused_while_a_server_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    asyncio.run(serve_and_orphan(data))
    lock = real_runtime().disk.lock_folder(str(data))
    try:
        assert "is in use by another process" in anabranch("gc", str(data)).stderr
    finally:
        lock.release()


def test_delete_removes_what_nothing_needs_and_refuses_what_something_does(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    position, orphan = asyncio.run(serve_and_orphan(data))
    needed = str(position.ledger_id)
    before = fingerprint(data)
    refused = anabranch("delete", str(data), needed)
    assert refused.exit_code == 2
    assert "is needed by managed ledger public/default/persistent/orders" in refused.stderr
    said = anabranch("delete", str(data), str(orphan), "--dry-run")
    assert (said.exit_code, said.stderr) == (0, f"ledger {orphan} would be removed\n")
    said = anabranch("delete", str(data), needed, "--dry-run", "--force")
    assert said.exit_code == 0
    assert fingerprint(data) == before
    assert anabranch("delete", str(data), str(orphan)).stderr == f"ledger {orphan} was removed\n"
    listed = json.loads(anabranch("ls", str(data), "--output", "json").stdout)
    assert position.ledger_id in [row["ledger"] for row in listed]
    assert orphan not in [row["ledger"] for row in listed]
    assert anabranch("delete", str(data), needed, "--force").exit_code == 0
    listed = json.loads(anabranch("ls", str(data), "--output", "json").stdout)
    assert position.ledger_id not in [row["ledger"] for row in listed]
    assert anabranch("delete", str(data), needed, "--force").exit_code == 2
