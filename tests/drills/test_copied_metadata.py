"""The copy drill in small: a tree goes from ZooKeeper to Oxia and back."""

import json
import subprocess

import pytest

from anabranch.testing.planted import child_command

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


def test_ten_thousand_nodes_there_and_back() -> None:
    """In a process of its own, since memory once used is not given back."""
    done = subprocess.run(
        child_command("anabranch.testing.metadata_copy_drill", "--nodes", "10000"),
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["violations"] == []
    assert verdict["nodes"] == 10_000
    assert verdict["peak_mib"] < 150
