"""The drills of replacing the metadata store under brokers, in small."""

import json
import subprocess
from typing import Any

import pytest

from anabranch.testing.planted import child_command

pytestmark = [pytest.mark.peer, pytest.mark.timeout(820)]
WAIT_S_MAX = 800


def verdict_of(module: str, *arguments: str) -> dict[str, Any]:
    """Run a drill, in which nothing may be wrong."""
    done = subprocess.run(
        child_command(module, *arguments),
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert (verdict["violations"], verdict["noticed"]) == ([], [])
    assert verdict["counts"]["acknowledged"] > 300
    assert verdict["counts"]["unknown"] == 0
    assert verdict["metadata_writes"] > 100
    assert verdict["metadata_writes_wrong"] == 0
    assert 0 < verdict["metadata_write_longest_s"] <= verdict["metadata_write_longest_whole_s"]
    return verdict


@pytest.mark.goal("trap.U2", part="real")
@pytest.mark.goal("454.A26", part="real")
def test_target_and_driver_are_killed_while_writes_wait_and_nothing_is_lost() -> None:
    verdict = verdict_of(
        "anabranch.testing.replace_metadata_drill", "--kills", "2", "--phases", "freezing"
    )
    assert (verdict["hit_freezing_target"], verdict["hit_freezing_driver"]) == (1, 1)
    # A target that is back in time is still turned to; who takes over from a driver gives up.
    assert verdict["ends"] in ({"failed": 2}, {"failed": 1, "switched": 1})


def test_nobody_is_killed_and_no_request_is_sent_again() -> None:
    verdict = verdict_of("anabranch.testing.replace_metadata_story", "--rounds", "1")
    assert verdict["held_there_ms_max"] > 0
    assert verdict["held_back_ms_max"] > 0


@pytest.mark.goal("rel.X1", part="processes")
def test_everybody_is_restarted_in_turn_and_nothing_is_lost() -> None:
    verdict = verdict_of("anabranch.testing.replace_metadata_story", "--rounds", "0", "--restarts")
    everybody = 3 + 3 + 2
    under_way = sum(
        verdict.get(f"restarted_{phase}", 0)
        for phase in ("preparing", "copying", "tailing", "verifying")
    )
    assert (under_way, verdict["restarted_switched"]) == (everybody, everybody)


@pytest.mark.goal("454.A36", part="bookies")
def test_a_bookie_that_is_led_is_killed_and_nothing_is_lost() -> None:
    verdict = verdict_of(
        "anabranch.testing.replace_metadata_drill",
        *("--led", "--kills", "1", "--phases", "halting"),
    )
    assert verdict["hit_halting_bookie"] == 1
