"""The drill of replacing a large metadata store, in small."""

import json
import subprocess
from statistics import median

import pytest

from anabranch.testing.large_replacement import Replacement
from anabranch.testing.planted import child_command
from anabranch.testing.replace_large_metadata_drill import violations_of
from anabranch.testing.steady_publishing import Published

NODES = 10_000
FREEZE_S_MAX = 1.0
HELD = ["freezing", "refreezing", "freezing"]
"""The first phases of those that hold writes: there, back and there."""
BUSY_FREEZE_S_MAX = 4.0
"""On a machine that does much else; each phase of a freeze would give up after 5 s."""

STEADY_MESSAGES = 1_000
"""Of 200 a second in 20 s, on such a machine."""


@pytest.mark.peer
@pytest.mark.timeout(300)
def test_writes_wait_for_a_moment_and_none_is_lost() -> None:
    done = subprocess.run(
        child_command(
            "anabranch.testing.replace_large_metadata_drill",
            *("--nodes", str(NODES), "--brokers", "1", "--freeze-s", str(BUSY_FREEZE_S_MAX)),
            *("--rounds", "2"),
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
    there_s, _back_s, again_s = verdict["freezes_s"]
    assert there_s * 1000 < before_ms / 2, "what grows with the tree is done before"
    assert again_s > 0
    assert [next(iter(hold)) for hold in verdict["holds_ms"]] == HELD
    assert median(verdict["freezes_s"]) < FREEZE_S_MAX
    assert verdict["freeze_s"] == max(verdict["freezes_s"]) > 0
    told = verdict["figures"]
    assert told["messages_acknowledged"] > STEADY_MESSAGES
    assert told["messages_lost"] == told["messages_twice"] == 0
    for span in ("steady", "operation", "hold"):
        assert told[f"publish_{span}_messages"] > 0, span
        assert 0 < told[f"publish_{span}_p99_ms"] <= told[f"publish_{span}_max_ms"]
        assert told[f"publish_{span}_silence_ms"] > 0
    assert told["publish_steady_messages"] > STEADY_MESSAGES
    assert told["publish_p99_ratio"] > 0


def test_a_long_hold_a_lost_write_a_lost_message_and_a_refusal_are_found() -> None:
    fine = Published({"publish_p99_ratio": 9.0}, [])
    good = Replacement(10, 1.0, 0.5, 0.1, 0.5, 5, [], published=fine)
    assert violations_of(good, 1.0) == [], "how long publishing took is told only"
    bad = Replacement(10, 9.0, 1.5, 0.1, 0.5, 5, ["load-0 is not there"], {503: 2})
    bad.published = Published({}, ["1 messages: lost"])
    assert violations_of(bad, 1.0) == [
        "lost: load-0 is not there",
        "writes were held for 1.500 s",
        "1 messages: lost",
        "writes were refused: {503: 2}",
    ]
