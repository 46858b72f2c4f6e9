"""The size drill in small: all of a large tree comes through a server in bounded memory."""

import json
import subprocess

import pytest

from anabranch.testing.planted import child_command

EXTRA_MIB_MAX = 36
"""Twice what it takes. All nodes at once would take three times as much."""


@pytest.mark.timeout(300)
@pytest.mark.goal("core.M7", part="a million nodes", broken_by="scan_takes_all_at_once")
def test_hundred_thousand_nodes() -> None:
    """In a process of its own, since memory once used is not given back."""
    done = subprocess.run(
        child_command(
            "anabranch.testing.metadata_size_drill",
            *("--nodes", "100000", "--extra-mib", str(EXTRA_MIB_MAX)),
        ),
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["violations"] == []
    assert verdict["nodes"] == 100_000
