"""What was left half done is told whatever ends a command: Ctrl-C, a bug, or somebody's refusal."""

import subprocess
import sys

import pytest

from anabranch.cli.metadata_places import run
from anabranch.metadata.access_rights import tell_open
from anabranch.runtime import Runtime

NOTE = "nodes at and below / that were written are open still"
PROGRAM = """
import asyncio, os, signal
from anabranch.cli.metadata_places import run
from anabranch.metadata.access_rights import tell_open

async def work(runtime):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
    except asyncio.CancelledError as error:
        tell_open(error, "/", "the same copy goes on")
        raise

try:
    run(work)
except RuntimeError as ended:
    raise SystemExit(ended.exit_code)
"""


@pytest.mark.goal("core.M13", part="refused", broken_by="commands_keep_notes_to_themselves")
def test_bug_does_not_hide_what_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(_: Runtime) -> None:
        error = ValueError("a bug")
        tell_open(error, "/", "the same copy goes on")
        raise error

    with pytest.raises(ValueError, match="a bug"):
        run(work)
    said = capsys.readouterr().err
    assert said.startswith(f"warning: {NOTE}")
    assert said.endswith("the same copy goes on\n")


def test_interrupted_command_says_what_is_open() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130, done.stderr
    first, last = done.stderr.splitlines()
    assert first.startswith(f"warning: {NOTE}")
    assert last == "error: interrupted"
