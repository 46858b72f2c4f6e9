"""What is told as a difference, and how fast trees are read: options of `anabranch metadata`."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_metadata_commands import metadata, refused

from anabranch.metadata.store import Record
from anabranch.metadata.transfer.export_file import write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each

NODES = 6
NODES_PER_S = 10.0
VALUE_BYTES = 100
ROOT = Record("/", b"", 0, 0, 0)
OLD = Record("/a", b"x", 3, 1, 1)


def exported(folder: Path, name: str, records: Sequence[Record]) -> str:
    """An export with these nodes."""
    file = folder / name
    header = ExportHeader("memory:", "/", 1)
    asyncio.run(write_export(real_runtime().disk, str(file), header, each(records)))
    return f"file:{file}"


def told(left: str, right: str, *options: str) -> str:
    done = metadata("diff", left, right, *options)
    assert done.exit_code == (1 if done.stdout else 0), done.output
    return done.stdout


def test_a_difference_counts_only_if_it_was_asked_for(tmp_path: Path) -> None:
    left = exported(tmp_path, "left", [ROOT, OLD])
    newer = exported(tmp_path, "newer", [ROOT, OLD._replace(native_version=4, modified_ms=2)])
    assert told(left, newer) == "differs     /a  (version)\n"
    assert told(left, newer, "--content-only") == ""
    assert told(left, newer, "--times") == "differs     /a  (version, times)\n"
    other = exported(tmp_path, "other", [ROOT, OLD._replace(value=b"y")])
    assert told(left, other, "--content-only") == "differs     /a  (value)\n"
    owned = exported(tmp_path, "owned", [ROOT, OLD, Record("/e", b"", 0, 1, 1, session=7)])
    assert told(left, owned) == ""
    assert told(left, owned, "--ephemerals") == "only right  /e\n"


@pytest.mark.parametrize(
    "limit",
    [("--rate", NODES_PER_S), ("--bytes-rate", NODES_PER_S * VALUE_BYTES)],
    ids=["nodes", "bytes"],
)
@pytest.mark.parametrize("command", ["export", "restore", "copy"])
def test_a_limit_is_kept(tmp_path: Path, command: str, limit: tuple[str, float]) -> None:
    value = b"x" * VALUE_BYTES
    nodes = [Record(f"/{number}", value, 0, 1, 1) for number in range(NODES)]
    source = exported(tmp_path, "source", [ROOT, *nodes])
    target = f"embedded:{tmp_path}/target"
    words = {
        "export": ("export", f"{tmp_path}/again", "--url", target),
        "restore": ("restore", source.removeprefix("file:"), "--url", target),
        "copy": ("copy", source, target),
    }
    if command == "export":
        assert metadata(*words["copy"]).exit_code == 0
    begun_s = time.monotonic()
    done = metadata(*words[command], limit[0], str(limit[1]))
    assert done.exit_code == 0, done.output
    assert time.monotonic() - begun_s >= NODES / NODES_PER_S * 0.9


@pytest.mark.parametrize("option", ["--rate", "--bytes-rate"])
@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "many"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, option: str, wrong: str) -> None:
    source = exported(tmp_path, "source", [ROOT, OLD])
    done = metadata("copy", source, f"embedded:{tmp_path}/target", option, wrong)
    assert done.exit_code == 2, done.output
    assert not (tmp_path / "target").exists()


def test_a_comparison_with_a_damaged_file_says_where(tmp_path: Path) -> None:
    source = exported(tmp_path, "source", [ROOT, OLD])
    file = tmp_path / "source"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    assert "corrupt data" in refused(2, "diff", source, f"file:{tmp_path}/damaged")
