"""`anabranch spark`, and the guide about it: what they print, and how they end."""

import json
import re
from pathlib import Path

import pytest
from test_history_check_job import DONE, plain
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.testing.made_histories import delivered, write_history

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "bulk-jobs.md"


@pytest.fixture
def command(spark, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # The session is that of all tests: no command may stop it.
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr("pyspark_anabranch.session.spark_session", lambda *_: spark)
    return lambda *arguments: CliRunner().invoke(app, ["spark", *arguments])


def test_a_history_is_checked_from_the_terminal(command, tmp_path):
    folder = tmp_path / "verify-run"
    write_history(folder, "one", [*plain(30), delivered(999), *DONE])
    done = command("check-history", str(folder), "--output", "json")
    verdict = json.loads(done.stdout)
    assert (done.exit_code, verdict["outcome"]) == (1, "found")
    assert [one["rule"] for one in verdict["result"]["violations"]] == ["C2"]
    dry = command("check-history", str(folder), "--dry-run")
    assert dry.exit_code == 0
    assert "check-history: planned" in dry.stdout
    assert "counts and hashes over 1 histories" in dry.stdout


def test_what_cannot_be_done_is_one_line_and_code_2(command):
    done = command("check-history", "nowhere")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("error: there is no folder")
    done = command("verify-metadata", "memory:", "memory:")
    assert done.exit_code == 2
    assert "workers of Spark cannot see it" in done.stderr
    done = command("check-history", "nowhere", "--setting", "nonsense")
    assert done.exit_code == 2
    assert "NAME=VALUE" in done.stderr


def test_the_program_of_the_guide_runs(command, tmp_path, capsys):
    write_history(tmp_path / "verify-run", "one", [*plain(30), *DONE])
    program = "\n".join(re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    exec(compile(program, str(GUIDE), "exec"), {})  # noqa: S102 - the guide itself
    assert "clean" in capsys.readouterr().out
