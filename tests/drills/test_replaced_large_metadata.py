"""The drill of replacing a large metadata store, in small."""

import json
import subprocess

import pytest

from anabranch.testing.large_replacement import Replacement
from anabranch.testing.planted import child_command
from anabranch.testing.replace_large_metadata_drill import violations_of

NODES = 10_000
BUSY_FREEZE_S_MAX = 4.0
"""On a machine that does much else; each phase of a freeze would give up after 5 s."""


@pytest.mark.peer
@pytest.mark.timeout(300)
def test_writes_wait_for_a_moment_and_none_is_lost() -> None:
    done = subprocess.run(
        child_command(
            "anabranch.testing.replace_large_metadata_drill",
            *("--nodes", str(NODES), "--brokers", "1", "--freeze-s", str(BUSY_FREEZE_S_MAX)),
        ),
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["violations"] == []
    assert verdict["nodes"] == NODES
    assert verdict["acknowledged"] > 20
    phases = verdict["phases_ms"]
    before_ms = phases["copying"] + phases["tailing"] + phases["verifying"]
    assert verdict["freeze_s"] * 1000 < before_ms / 2, "what grows with the tree is done before"


def test_a_long_hold_a_lost_write_and_a_refusal_are_found() -> None:
    good = Replacement(10, 1.0, 0.5, 0.1, 0.5, 5, [])
    assert violations_of(good, 1.0) == []
    bad = Replacement(10, 9.0, 1.5, 0.1, 0.5, 5, ["load-0 is not there"], {503: 2})
    assert violations_of(bad, 1.0) == [
        "lost: load-0 is not there",
        "writes were held for 1.500 s",
        "writes were refused: {503: 2}",
    ]
