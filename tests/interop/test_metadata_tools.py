"""The metadata commands as processes against a served store: watching, copying, being killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.metadata.store import Record
from anabranch.metadata.transfer.export_file import write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
METADATA = (sys.executable, "-m", "anabranch", "metadata")


def started(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*METADATA, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def ended(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


def done(*words: str | Path) -> str:
    result = subprocess.run(
        [*METADATA, *map(str, words)],
        check=False, capture_output=True, text=True, timeout=60, env=ENVIRONMENT,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    server = started("serve", "--data", tmp_path / "data", "--port", "0")
    assert server.stdout is not None
    try:
        yield server.stdout.readline().split()[-1]
    finally:
        ended(server)


def test_watch_tells_until_it_is_interrupted(url: str) -> None:
    watching = started("watch", "/w", "--url", url, "--output", "json")
    assert watching.stdout is not None
    assert watching.stderr is not None
    try:
        assert "watching /w" in watching.stderr.readline()
        done("put", "/elsewhere", "--value", "", "--url", url)
        done("put", "/w/a", "--value", "1", "--url", url)
        done("put", "/w/a", "--value", "2", "--url", url)
        done("delete", "/w/a", "--url", url)
        events = [json.loads(watching.stdout.readline()) for _ in range(4)]
        assert [(event["kind"], event["path"]) for event in events] == [
            ("created", "/w"),
            ("created", "/w/a"),
            ("modified", "/w/a"),
            ("deleted", "/w/a"),
        ]
        watching.send_signal(signal.SIGINT)
        rest, said = watching.communicate(timeout=30)
        assert (watching.returncode, rest, said) == (0, "", "")
    finally:
        ended(watching)


def test_watch_ends_after_so_many(url: str) -> None:
    watching = started("watch", "--count", "1", "--url", url)
    assert watching.stderr is not None
    try:
        assert "watching /" in watching.stderr.readline()
        done("put", "/a", "--value", "", "--url", url)
        shown, _ = watching.communicate(timeout=30)
        assert shown.split()[:2] == ["created", "/a"]
        assert watching.returncode == 0
    finally:
        ended(watching)


def test_killed_copy_goes_on(url: str, tmp_path: Path) -> None:
    source = f"embedded:{tmp_path}/source"
    export_of_many(tmp_path / "many", 300)
    done("restore", tmp_path / "many", "--url", source)
    checkpoint = tmp_path / "checkpoint"
    command = ("copy", source, url, "--checkpoint", str(checkpoint), "--output", "json")
    copying = subprocess.Popen(
        [*METADATA, *command, "--rate", "40"], stdout=subprocess.DEVNULL, env=ENVIRONMENT
    )
    try:
        deadline = time.monotonic() + 60
        while not nodes_noted(checkpoint) and time.monotonic() < deadline:
            time.sleep(0.05)
        # Not directly after a checkpoint: the next span is on its way, or there.
        time.sleep(0.5)
    finally:
        copying.kill()
        copying.wait()
    noted = nodes_noted(checkpoint)
    assert 0 < noted < 300
    report = json.loads(done(*command))
    assert report["resumed_after"] == noted
    assert report["nodes"] == 302
    assert report["verified"] is True
    assert not checkpoint.exists()
    done("diff", source, url, "--prefix", "/many")


def nodes_noted(checkpoint: Path) -> int:
    return int(json.loads(checkpoint.read_text())["digest"][0]) if checkpoint.exists() else 0


def export_of_many(file: Path, count: int) -> None:
    records = [Record("/", b"", 0, 1, 1), Record("/many", b"", 0, 1, 1, next_sequence=7)]
    records += [Record(f"/many/{i:05}", b"x", i, 1, 1) for i in range(count)]
    header = ExportHeader("memory:", "/", 1)
    asyncio.run(write_export(real_runtime().disk, str(file), header, each(records)))
