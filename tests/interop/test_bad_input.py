"""Wrong settings, unknown formats, damage and clocks that jump, given to real processes.

Whatever is wrong is named, with what to do, and every byte stays as it was.
"""

import asyncio
import json
import os
import re
import select
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from anabranch.consensus.log import HEADER_BYTES as LOG_HEADER_BYTES
from anabranch.consensus.log import RecordKind
from anabranch.errors import FormatError
from anabranch.journal.format import (
    HEADER_BYTES,
    MARK_BYTES,
    MARK_WORD,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    seed_of,
)
from anabranch.ledgers import catalog, ledger_ids
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.factory import open_store
from anabranch.metadata.features import FEATURES_PATH
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_tie import PATH as CLUSTER_PATH
from anabranch.testing.planted import child_command

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
START_S_MAX = 60
METADATA_LOG = "metadata/log/000000000001.journal"
LEDGER_JOURNAL = "ledgers/journal/000000000001.journal"
UNKNOWN = 99


def start(*words: str | Path, command: list[str] | None = None) -> subprocess.Popen:
    words = ("standalone", "--port", "0", "--web-port", "0", *words)
    return subprocess.Popen(
        [*(command or child_command("anabranch")), *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip


def refusal(*words: str | Path) -> str:
    """What a server says that does not start."""
    process = start(*words)
    try:
        readable, _, _ = select.select([process.stdout], [], [], START_S_MAX)
        assert readable, "neither started nor refused"
        assert process.stdout.readline() == "", "it started"
        assert process.wait(timeout=START_S_MAX) == 2
        return process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen) -> str:
    announcement = process.stdout.readline()
    assert announcement, process.stderr.read()
    return re.search(r"pulsar://\S+", announcement)[0]


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", *words],
        capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_unchanged(before: dict[str, bytes], data: Path) -> None:
    after = bytes_in(data)
    assert after.keys() == before.keys()
    changed = [name for name, content in before.items() if after[name] != content]
    # The ledgers are opened after the metadata, whose log then has the record of one more term.
    assert changed in ([], [METADATA_LOG])
    assert all(after[name].startswith(before[name]) for name in changed)


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A data folder in which a server has kept a message."""
    data = tmp_path_factory.mktemp("bad-input") / "data"
    process = start("--data", data)
    try:
        run("produce", "t", "-m", "hello", "--url", address_of(process))
    finally:
        process.terminate()
        process.communicate()
    return data


@pytest.fixture
def data(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / "data"))


# --- changing versions on the disk ------------------------------------------------------------


def change_bytes(file: Path, offset: int, new: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[offset : offset + len(new)] = new
    file.write_bytes(content)


def change_first_record(file: Path, offset: int, kind: RecordKind | None = None) -> None:
    """Put an unknown version into a record as a later build would: checksums are right."""
    content = bytearray(file.read_bytes())
    at = HEADER_BYTES
    while True:
        (word,) = struct.unpack_from(">I", content, at)
        if word == MARK_WORD:
            at += MARK_BYTES
            continue
        start_at, end = at + RECORD_HEADER_BYTES, at + RECORD_HEADER_BYTES + word
        if kind is None or content[start_at + 1] == kind:
            break
        at = end
    content[start_at + offset] = UNKNOWN
    crc = crc32c(bytes(content[start_at:end]), seed_of(1) ^ word)
    RECORD_HEADER.pack_into(content, at, word, crc)
    file.write_bytes(content)


def change_identity(data: Path, name: str = "anabranch.json") -> None:
    file = data / name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": UNKNOWN}))


def change_kind(data: Path) -> None:
    file = data / LEDGER_JOURNAL
    header = bytearray(file.read_bytes()[:HEADER_BYTES])
    header[10:14] = b"LDG9"
    header[-4:] = crc32c(bytes(header[:-4])).to_bytes(4, "big")
    change_bytes(file, 0, bytes(header))


JOURNAL_VERSION = UNKNOWN.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param(
            change_identity,
            f"anabranch.json has format version {UNKNOWN}",
            marks=pytest.mark.goal(
                "core.U1", part="data folder", broken_by="data_folder_of_any_version"
            ),
            id="data folder",
        ),
        pytest.param(
            lambda data: change_identity(data, "ledgers/cluster.json"),
            f"ledgers/cluster.json has version {UNKNOWN}",
            id="whose ledgers",
        ),
        pytest.param(
            lambda data: change_bytes(data / METADATA_LOG, 8, JOURNAL_VERSION),
            f"{METADATA_LOG} has journal format version {UNKNOWN}",
            marks=pytest.mark.goal("core.U1", part="journal", broken_by="journal_of_any_version"),
            id="journal of the metadata",
        ),
        pytest.param(
            lambda data: change_bytes(data / LEDGER_JOURNAL, 8, JOURNAL_VERSION),
            f"{LEDGER_JOURNAL} has journal format version {UNKNOWN}",
            marks=pytest.mark.goal("core.U1", part="journal", broken_by="journal_of_any_version"),
            id="journal of the ledgers",
        ),
        pytest.param(
            change_kind, f"{LEDGER_JOURNAL} holds records of kind b'LDG9'", id="ledger records"
        ),
        pytest.param(
            lambda data: change_first_record(data / METADATA_LOG, 0),
            rf"metadata/log, segment 1, byte \d+: log record of format {UNKNOWN}",
            marks=pytest.mark.goal(
                "core.U1", part="log records", broken_by="log_record_of_any_version"
            ),
            id="log record",
        ),
        pytest.param(
            lambda data: change_first_record(
                data / METADATA_LOG, LOG_HEADER_BYTES, RecordKind.COMMAND
            ),
            rf"metadata/log, segment 1, byte \d+: metadata command of format {UNKNOWN:02x}",
            marks=pytest.mark.goal("core.U1", part="commands", broken_by="command_of_any_version"),
            id="command",
        ),
    ],
)
def test_unknown_version_is_refused_and_named(
    data: Path, change: Callable[[Path], None], named: str
) -> None:
    change(data)
    before = bytes_in(data)
    said = refusal("--data", data)
    assert re.search(f"error: .*{named}", said), said
    assert said.count("error: ") == 1
    assert_unchanged(before, data)


@pytest.mark.goal("core.U1", part="enumerated", broken_by="document_without_a_test")
async def test_every_file_and_document_is_one_of_those_above(data: Path) -> None:
    """Whoever adds a file or document adds its version, its row in the docs, and its test here."""
    files = {re.sub(r"\d{12}", "N", name) for name in bytes_in(data)}
    assert files == {
        "anabranch.json",
        "lock",
        "metadata/lock",
        "metadata/log/N.journal",
        "ledgers/cluster.json",
        "ledgers/journal/N.journal",
    }
    store = await EmbeddedStore.open(real_runtime(), str(data / "metadata"))
    documents = await store.children("/anabranch")
    await store.close()
    assert documents == ["cluster", "features", "ledger-ids", "storage-catalog"]


async def with_snapshot(data: Path) -> Path:
    """Let the metadata be stored as a snapshot, which else takes megabytes of changes."""
    folder = data / "metadata"
    store = await EmbeddedStore.open(real_runtime(), str(folder), snapshot_after_bytes=1)
    await store.put("/anabranch/test", b"")
    assert store._backing._snapshot_task is not None
    await asyncio.wait([store._backing._snapshot_task])
    await store.close()
    return folder / "snapshot"


@pytest.mark.goal("core.U1", part="snapshot", broken_by="snapshot_of_any_version")
async def test_snapshot_of_an_unknown_version_is_refused_and_named(data: Path) -> None:
    snapshot = await with_snapshot(data)
    change_bytes(snapshot, 8, UNKNOWN.to_bytes(4, "big"))
    before = bytes_in(data)
    assert f"metadata/snapshot has format {UNKNOWN}: this build knows" in refusal("--data", data)
    assert_unchanged(before, data)


async def test_damaged_snapshot_is_refused_with_its_place(data: Path) -> None:
    snapshot = await with_snapshot(data)
    at = snapshot.stat().st_size // 2
    change_bytes(snapshot, at, bytes([snapshot.read_bytes()[at] ^ 1]))
    before = bytes_in(data)
    said = refusal("--data", data)
    assert re.search(r"metadata/snapshot.* \d+.*checksum of the block is wrong", said), said
    assert_unchanged(before, data)


async def change_document(data: Path, path: str, change: dict[str, object]) -> None:
    store = await EmbeddedStore.open(real_runtime(), str(data / "metadata"))
    node = await store.get(path)
    await store.put(path, json.dumps(json.loads(node.value) | change).encode())
    await store.close()


@pytest.mark.parametrize(
    ("path", "change", "named"),
    [
        pytest.param(
            FEATURES_PATH,
            {"format": UNKNOWN},
            f"/anabranch/features has format {UNKNOWN}: this build knows 1",
            marks=pytest.mark.goal("core.U1", part="features", broken_by="features_of_any_version"),
            id="format",
        ),
        pytest.param(
            CLUSTER_PATH,
            {"version": UNKNOWN},
            f"/anabranch/cluster has version {UNKNOWN}; this build knows 1",
            id="cluster",
        ),
        pytest.param(
            FEATURES_PATH,
            {"features": {"metadata-layout": 1, "ledger-layout": UNKNOWN}},
            f"ledger-layout is at {UNKNOWN}, this build knows 1 to 1",
            marks=pytest.mark.goal("core.U2", part="above", broken_by="feature_levels_unchecked"),
            id="level above",
        ),
        pytest.param(
            FEATURES_PATH,
            {"features": {"metadata-layout": 0, "ledger-layout": 1}},
            "metadata-layout is at 0, this build knows 1 to 1",
            marks=pytest.mark.goal("core.U2", part="below", broken_by="feature_levels_unchecked"),
            id="level below",
        ),
        pytest.param(
            FEATURES_PATH,
            {"features": {"metadata-layout": 1, "ledger-layout": 1, "time-travel": 1}},
            "time-travel is at 1, this build knows 0 to 0",
            marks=pytest.mark.goal("core.U2", part="unknown", broken_by="feature_levels_unchecked"),
            id="unknown feature",
        ),
        pytest.param(
            catalog.PATH,
            {"version": UNKNOWN},
            f"/anabranch/storage-catalog has version {UNKNOWN}; this build knows 1",
            marks=pytest.mark.goal("core.U1", part="catalog", broken_by="catalog_of_any_version"),
            id="catalog",
        ),
    ],
)
async def test_document_of_another_build_refuses_the_start(
    data: Path, path: str, change: dict[str, object], named: str
) -> None:
    await change_document(data, path, change)
    assert named in refusal("--data", data)
    store = await EmbeddedStore.open(real_runtime(), str(data / "metadata"))
    found = await store.get(path)
    assert json.loads(found.value).items() >= change.items(), "a refused start changes nothing"
    await store.close()


@pytest.mark.goal("core.U1", part="ledger ids", broken_by="counter_of_any_version")
async def test_counter_of_an_unknown_version_gives_no_ledger_id() -> None:
    store = await open_store("memory:", real_runtime())
    document = {"format": "anabranch.ledger-ids", "version": UNKNOWN, "next": 7}
    await store.put(ledger_ids.PATH, json.dumps(document).encode())
    ids = ledger_ids.LedgerIds(store, real_runtime())
    with pytest.raises(FormatError, match=f"/anabranch/ledger-ids has version {UNKNOWN}"):
        await ids.next()
    assert json.loads((await store.get(ledger_ids.PATH)).value) == document


# --- settings ---------------------------------------------------------------------------------


def test_wrong_settings_are_all_named_and_nothing_is_made(tmp_path: Path) -> None:
    file = tmp_path / "anabranch.toml"
    file.write_text('prot = 6650\nmax_message_bytes = "5 MB"\nkeep_alive_interval_s = 0\n')
    said = refusal("--config", file, "--data", tmp_path / "data").splitlines()
    assert said == [
        f"error: {file}:1: prot is no setting; did you mean port?",
        f"error: {file}:2: max_message_bytes: '5 MB' is not a whole number from 1024 to 8388608",
        f"error: {file}:3: keep_alive_interval_s: 0.0 is not a number from 1 to 3600",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["anabranch.toml"]


# --- the clock --------------------------------------------------------------------------------

JUMPING_CLOCK = """
import itertools
from anabranch.runtime.real import RealClock
right, calls = RealClock.wall_ms, itertools.count()
jumps = (0, -86_400_000, 3_600_000, -30_000)
RealClock.wall_ms = lambda self: right(self) + jumps[next(calls) // 5 % len(jumps)]
from anabranch.cli.main import run
run()
"""


def test_clock_that_jumps_hurts_nothing(data: Path) -> None:
    for _ in range(2):
        process = start("--data", data, command=[sys.executable, "-c", JUMPING_CLOCK])
        try:
            url = address_of(process)
            run(
                "produce", "t", *(word for n in range(20) for word in ("-m", f"m{n}")), "--url", url
            )
        finally:
            process.terminate()
            _, log = process.communicate()
        assert process.returncode == 0, log
    process = start("--data", data, command=[sys.executable, "-m", "anabranch"])
    try:
        url = address_of(process)
        options = ("-n", "41", "--position", "earliest", "--timeout", "20", "--url", url)
        received = run("consume", "t", "-s", "s", *options).splitlines()
    finally:
        process.terminate()
        process.communicate()
    assert received == ["hello", *(f"m{n}" for n in range(20)), *(f"m{n}" for n in range(20))]
