"""A drill that is told to stop, or killed, leaves none of its processes behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing import drills
from anabranch.testing.run_records import load_rows
from anabranch.testing.stopping import INTERRUPTED

PROCESSES = 5
"""The drill, its server and three clients."""
PATIENCE_S = 60.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def _parent(pid: int) -> int | None:
    """None if there is no such process, or only what is left of it for its parent."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(parent)


def _below(pid: int) -> list[int]:
    parents = {int(entry.name): _parent(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found[1:]


def _wait_for(condition: str, holds: object) -> None:
    assert callable(holds)
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, condition
        time.sleep(0.05)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = ["kill-metadata", "--size", "1000", "--record", str(tmp_path / "record.tsv")]
    process = subprocess.Popen(
        [sys.executable, "-m", drills.__name__, *command],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in [process.pid, *_below(process.pid)]:
            if _parent(pid) is not None:
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("whom", "number", "code"),
    [
        pytest.param("drills", signal.SIGTERM, INTERRUPTED, id="terminated"),
        pytest.param("drills", signal.SIGKILL, -signal.SIGKILL, id="killed"),
        pytest.param("drill", signal.SIGTERM, INTERRUPTED, id="the-drill-itself-terminated"),
    ],
)
def test_nothing_is_left(
    running: subprocess.Popen[bytes], tmp_path: Path, whom: str, number: int, code: int
) -> None:
    started: list[int] = []

    def all_run() -> bool:
        started[:] = _below(running.pid)
        return len(started) >= PROCESSES

    _wait_for("the drill did not start", all_run)
    os.kill(running.pid if whom == "drills" else started[0], number)
    assert running.wait(PATIENCE_S) == code
    _wait_for(
        "some processes go on",
        lambda: not [pid for pid in started if _parent(pid) is not None],
    )
    assert load_rows(tmp_path / "record.tsv", drills.COLUMNS) == [], "it was neither passed nor not"
