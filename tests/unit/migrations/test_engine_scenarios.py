"""The engine's pure half, as transcripts: `tests/scenarios/*.txt` hold what commands lead to.

`REWRITE_SCENARIOS=1 pytest tests/unit/migrations/test_engine_scenarios.py` writes them anew; what
has changed is then read in the difference.
"""

import os
from pathlib import Path

import pytest

from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing.engine_transcripts import Transcript

FOLDER = Path(__file__).parents[2] / "scenarios"
NAMES = sorted(path.name for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_commands_lead_to_what_is_written(name: str) -> None:
    path = FOLDER / name
    text = path.read_text()
    played = Transcript(TABLE).play(text)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(played)
    assert played == path.read_text()


def test_a_transcript_that_says_something_else_is_noticed() -> None:
    wrong = "> start alice\ntry-1 is finalized · epoch 1\n"
    assert (
        Transcript(TABLE).play(wrong)
        == "> start alice\ntry-1 is preparing · epoch 1 · run the step\n"
    )
