"""Shell completion, asked for as bash does it; and the line that shows how far work is."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.cli.metadata_copy_reports import CopyProgress
from anabranch.cli.progress import Progress, bar
from anabranch.metadata.transfer.digest import Digest

SCRIPTS = Path(sys.executable).parent
ASK_BASH = """
eval "$(anabranch --show-completion)"
COMP_WORDS=({words}) COMP_CWORD={at}
_anabranch_completion anabranch
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def in_shell(*command: str, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60,
        env=environment | {"PATH": path} | variables,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("anabranch con", ["consume", "config"]),
        ("anabranch config ''", ["init", "check", "docs"]),
        ("anabranch standalone --log-f", ["--log-format"]),
        ("anabranch standalone --log-level ''", ["debug", "info", "warning", "error"]),
        ("anabranch produce t --compression z", ["zlib", "zstd"]),
        ("anabranch metadata d", ["delete", "diff"]),
        ("anabranch metadata restore f --dr", ["--drop-acls", "--dry-run"]),
        ("anabranch metadata ls --output ''", ["text", "json"]),
        ("anabranch topics t", ["terminate", "truncate"]),
        ("anabranch namespaces set-policy a/b schema-a", ["schema-auto-update"]),
    ],
)
def test_bash_offers_commands_flags_and_values(words: str, offered: list[str]) -> None:
    script = ASK_BASH.format(words=words, at=len(words.split()) - 1)
    assert sorted(in_shell("bash", "--norc", "-c", script).split()) == sorted(offered)


@pytest.mark.goal("core.B26", part="completion", broken_by="policies_are_not_offered")
def test_names_of_policies_are_offered() -> None:
    for verb in ("get-policy", "set-policy", "clear-policy"):
        asked = f"anabranch namespaces {verb} public/default max-p"
        offered = CliRunner().invoke(
            app,
            prog_name="anabranch",
            env={
                "_ANABRANCH_COMPLETE": "complete_bash",
                "COMP_WORDS": asked,
                "COMP_CWORD": "4",
            },
        )
        assert offered.stdout.split() == ["max-producers-per-topic"]


@pytest.mark.parametrize(
    ("shell", "said"),
    [("zsh", "#compdef anabranch"), ("fish", "complete --command anabranch"), ("bash", "complete")],
)
def test_every_shell_gets_a_script(shell: str, said: str) -> None:
    # What the flag prints from inside that shell, whichever this test runs in.
    assert said in in_shell("anabranch", _ANABRANCH_COMPLETE=f"source_{shell}")


@pytest.mark.goal("core.B26", part="progress", broken_by="progress_stays_on_the_screen")
def test_progress_is_one_line_that_goes_away() -> None:
    now_s = 0.0
    out = io.StringIO()
    progress = Progress(out, now_s=lambda: now_s, shown=True)
    progress.tell(1, 0)
    assert out.getvalue() == "", "short work says nothing"
    now_s = 2.0
    progress.tell(1000, 900)
    progress.tell(1001, 900)
    assert out.getvalue() == "\r1000 sent, 900 acknowledged, 450 per second"
    progress.end()
    assert out.getvalue().endswith(f"\r{'':<43}\r")
    assert progress.seconds == 2.0


def test_progress_is_for_terminals_only() -> None:
    now_s = 0.0
    out = io.StringIO()
    progress = Progress(out, now_s=lambda: now_s)
    now_s = 9.0
    progress.tell(5, 5)
    progress.end()
    assert out.getvalue() == ""


def test_bars_are_as_long_as_what_is_done() -> None:
    assert bar(0, 400) == "[....................]   0%"
    assert bar(100, 400) == "[#####...............]  25%"
    assert bar(399, 400) == "[###################.]  99%"
    assert bar(500, 400) == "[####################] 100%", "a source may have grown"


def test_a_copy_shows_a_bar_where_the_end_is_known_and_the_rate_of_its_phase() -> None:
    now_s = 0.0
    out = io.StringIO()
    progress = CopyProgress(Progress(out, now_s=lambda: now_s, shown=True))
    progress.tell("look", Digest(256, 0))
    now_s = 2.0
    progress.tell("look", Digest(4000, 3 * 2**20))
    assert out.getvalue() == "\rlook: 4,000 nodes, 3.0 MiB, 2,000/s"
    now_s = 4.0
    progress.tell("copy", Digest(256, 0), 4000)
    now_s = 5.0
    progress.tell("copy", Digest(1000, 2**20), 4000)
    last = out.getvalue().rpartition("\r")[2].rstrip()
    assert last == "copy: [#####...............]  25% 1,000 nodes, 1.0 MiB, 1,000/s"
