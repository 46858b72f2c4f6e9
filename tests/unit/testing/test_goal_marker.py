"""The hooks of `tests/conftest.py`, run on small test files in a folder of their own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.testing.claims import collect_claims
from anabranch.testing.goal_results import Claim, Outcome, load_results

pytestmark = pytest.mark.timeout(300)  # each starts pytest, which takes long on a busy machine
CONFTEST = Path(__file__).parents[2] / "conftest.py"
HEAD = "import pytest\n"
INI = "[pytest]\nmarkers =\n  goal: a row\n  broken_by: a bug\n  peer: a peer\n"


BAD_MARKERS = {
    "'core.M999'": "unknown goal 'core.M999'",
    "'core.M1', broken_by='no_such_bug'": "unknown planted bug 'no_such_bug'",
    "'core.M1', prat='x'": "unexpected keyword argument 'prat'",
    "": "missing 1 required positional argument: 'goal'",
}
WAYS_TO_SKIP = [
    "@pytest.mark.skip(reason='tired')\ndef test_x(): pass\n",
    "def test_x(): pytest.skip('tired')\n",
    "pytest.skip('tired', allow_module_level=True)\n",
]


@pytest.fixture
def run(tmp_path):
    """Run pytest on files with the given texts; returns exit code and output."""
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text(INI)

    def call(texts: Iterable[str], *options: str, ci: str = "") -> tuple[int, str]:
        for number, text in enumerate(texts):
            (tmp_path / f"test_{number}.py").write_text(HEAD + text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
            env={**os.environ, "CI": ci},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return call


def test_a_bug_that_is_not_there_cannot_be_noticed(run):
    code, output = run(["@pytest.mark.broken_by('no_such_bug')\ndef test_x(): pass\n"])
    assert code == 2
    assert "unknown planted bug 'no_such_bug'" in output


def test_a_bad_marker_is_a_collection_error(run):
    code, output = run(f"@pytest.mark.goal({words})\ndef test_x(): pass\n" for words in BAD_MARKERS)
    assert code == 2
    for number, words in enumerate(BAD_MARKERS.values()):
        assert f"ERROR collecting test_{number}.py" in output
        assert words in output


@pytest.mark.parametrize("parallel", [(), ("-n", "2")])
def test_outcomes_and_left_out_peers_are_the_same_in_parallel(run, tmp_path, parallel):
    text = """
@pytest.mark.goal("core.M1", part="good")
def test_good(): pass

@pytest.mark.goal("core.M2")
def test_bad(): assert False

@pytest.fixture
def broken_end():
    yield
    raise RuntimeError

@pytest.mark.goal("core.M3")
def test_breaks_at_the_end(broken_end): pass

@pytest.mark.peer
@pytest.mark.goal("core.M1")
def test_peer(): pass
"""
    code, output = run([text], "-m", "not peer", *parallel)
    assert code == 1
    assert output.count("1 peer tests left out") == 1
    assert load_results(tmp_path) == {
        Claim("core.M1", "good", "test_0.py::test_good", "", False): Outcome.PASSED,
        Claim("core.M2", "", "test_0.py::test_bad", "", False): Outcome.FAILED,
        Claim("core.M3", "", "test_0.py::test_breaks_at_the_end", "", False): Outcome.FAILED,
        Claim("core.M1", "", "test_0.py::test_peer", "", True): Outcome.NOT_RUN,
    }


def test_nothing_may_be_skipped_in_ci(run):
    code, output = run(WAYS_TO_SKIP)
    assert code == 0
    assert "3 skipped" in output
    code, output = run(WAYS_TO_SKIP, "--continue-on-collection-errors", ci="true")
    assert code == 1
    assert output.count("nothing may be skipped in CI") >= len(WAYS_TO_SKIP)
    assert not re.search(r"\d skipped", output)


def test_claims_are_collected_without_running_anything(tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text(INI + "addopts = -p anabranch.testing.planted_run\n")
    path = tmp_path / "test_0.py"
    text = """
@pytest.mark.goal("core.M1", part="p", broken_by="journal_skips_sync")
@pytest.mark.parametrize("n", [1, 2])
def test_x(n): assert False

@pytest.mark.broken_by("journal_skips_sync")
def test_y(): assert False

@pytest.mark.peer
@pytest.mark.goal("core.M2")
def test_peer(): assert False
"""
    path.write_text(HEAD + text)
    assert sorted(collect_claims(tmp_path)) == [
        Claim("-", "", "test_0.py::test_y", "journal_skips_sync", False),
        Claim("core.M1", "p", "test_0.py::test_x[1]", "journal_skips_sync", False),
        Claim("core.M1", "p", "test_0.py::test_x[2]", "journal_skips_sync", False),
        Claim("core.M2", "", "test_0.py::test_peer", "", True),
    ]
    assert load_results(tmp_path) == {}
    path.write_text(HEAD + text.replace("core.M2", "core.M999"))
    with pytest.raises(InputError, match=r"(?s)cannot be collected.*unknown goal 'core.M999'"):
        collect_claims(tmp_path)


def test_a_run_with_a_planted_bug_leaves_no_results(run, tmp_path):
    text = "@pytest.mark.goal('core.M1')\ndef test_x(): pass\n"
    plugin = ("-p", "anabranch.testing.planted_run")
    assert run([text], *plugin, "--planted", "journal_skips_sync")[0] == 0
    assert run([text], *plugin, "--no-results")[0] == 0
    assert load_results(tmp_path) == {}
    assert run([text], *plugin)[0] == 0
    assert len(load_results(tmp_path)) == 1
