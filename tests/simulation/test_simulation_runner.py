"""The runner of scenarios: repeatable over processes, and one command to replay a failure."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from anabranch.testing.sim_long import unreached
from anabranch.testing.simulation.scenario import load_scenarios, missing_marks, run_seed

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(400)  # each starts processes, which takes long on a busy machine


def simulate(
    *arguments: str, hash_seed: str | None = None, program: str = "simulate"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    environment.pop("PYTHONHASHSEED", None)
    if hash_seed is not None:
        environment["PYTHONHASHSEED"] = hash_seed
    return subprocess.run(
        [
            sys.executable,
            "-m",
            f"anabranch.testing.{program}",
            "--load",
            "toy_scenarios",
            *arguments,
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_seed_gives_one_digest_in_every_process_and_other_seeds_others() -> None:
    runs = [
        simulate("--scenario", "kept-numbers", "--seeds", "5", "--verbose", hash_seed=hash_seed)
        for hash_seed in ("1", "2", None)
    ]
    for run in runs:
        assert run.returncode == 0, run.stdout + run.stderr
    digests = [re.findall(r"^kept-numbers (\d) ([0-9a-f]{64})$", r.stdout, re.M) for r in runs]
    assert digests[0] == digests[1] == digests[2]
    assert [seed for seed, _ in digests[0]] == list("01234")
    assert len({digest for _, digest in digests[0]}) == 5


def test_the_whole_server_gives_one_digest_in_two_processes() -> None:
    runs = [
        simulate("--scenario", "standalone", "--seed", "7", "--verbose", hash_seed=hash_seed)
        for hash_seed in ("1", "2")
    ]
    digests = [re.findall(r"^standalone 7 ([0-9a-f]{64})$", run.stdout, re.M) for run in runs]
    assert len(digests[0]) == 1, runs[0].stdout + runs[0].stderr
    assert digests[0] == digests[1]


def test_a_failure_prints_the_command_that_replays_it(tmp_path: Path) -> None:
    found = simulate("--scenario", "forgetful-numbers", "--seeds", "500")
    assert found.returncode == 1, found.stdout + found.stderr
    command = re.search(
        r"^replay with: make sim SCENARIO=forgetful-numbers SEED=(\d+)$", found.stdout, re.M
    )
    assert command is not None, found.stdout
    assert "acknowledged numbers are lost" in found.stdout
    assert "last lines of the trace" in found.stdout
    assert "power cut server" in found.stdout
    trace = tmp_path / "trace"
    again = simulate("--scenario", "forgetful-numbers", "--seed", command[1], "--trace", str(trace))
    assert again.returncode == 1
    assert _digest(again.stdout) == _digest(found.stdout)
    assert trace.read_text().splitlines()[-1].strip() in again.stdout


def _digest(output: str) -> str:
    (digest,) = re.findall(r"^digest ([0-9a-f]{64})$", output, re.M)
    return str(digest)


def test_a_set_of_seeds_must_reach_its_marks_together() -> None:
    run = simulate("--scenario", "kept-numbers", "--seeds", "50")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"50 seeds passed, [\d.]+ seeds/s", run.stdout)
    assert re.search(r"^ +22500 operations$", run.stdout, re.M)
    empty = simulate("--scenario", "empty", "--seeds", "50")
    assert empty.returncode == 1
    assert "empty FAILED: no seed reached the moon, the stars" in empty.stdout


def test_a_scenario_says_how_many_seeds_make_its_set() -> None:
    played = load_scenarios("toy_scenarios")["small-set"]
    reached: Counter[str] = Counter()
    for seed in range(played.set_seeds):
        assert missing_marks(played, reached) == ["the third"]
        reached += run_seed(played, seed).reached
    assert missing_marks(played, reached) == []
    assert missing_marks(played, reached, seldom=True) == ["the comet"]


def test_a_set_of_seeds_must_take_every_transition_of_its_tables() -> None:
    run = simulate("--scenario", "two-doors", "--seeds", "50")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "transition of door: closed -> open" in run.stdout
    lame = simulate("--scenario", "one-door", "--seeds", "50")
    assert lame.returncode == 1
    assert "no seed reached transition of door: open -> closed" in lame.stdout
    unknown = simulate("--scenario", "strange-door", "--seeds", "1")
    assert unknown.returncode == 1
    assert "door has no transition 'open -> ajar'" in unknown.stdout


def test_a_long_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    record = tmp_path / "record.tsv"
    options = ("--record", str(record), "--jobs", "1", "--batch", "30", "--minutes", "0.001")
    for _ in range(2):
        run = simulate("--scenario", "two-doors", *options, program="sim_long")
        assert run.returncode == 0, run.stdout + run.stderr
    (line,) = record.read_text().splitlines()[1:]
    name, _, first, seeds, result, _ = line.split("\t")
    assert (name, first, seeds, result) == ("two-doors", "0", "60", "passed")
    total = simulate("--total", "--record", str(record), program="sim_long")
    assert (
        total.stdout == "two-doors: 60 seeds passed, 60 of them with the present code, 0 failed\n"
    )


def test_a_long_run_records_a_failing_seed_alone(tmp_path: Path) -> None:
    record = tmp_path / "record.tsv"
    options = ("--record", str(record), "--jobs", "1", "--batch", "10", "--minutes", "1")
    run = simulate("--scenario", "shy-door", *options, program="sim_long")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "replay with: make sim SCENARIO=shy-door SEED=7" in run.stdout
    (line,) = record.read_text().splitlines()[1:]
    name, _, first, seeds, result, _ = line.split("\t")
    assert (name, first, seeds, result) == ("shy-door", "7", "1", "failed")


def test_a_long_run_must_reach_its_marks(tmp_path: Path) -> None:
    options = ("--record", str(tmp_path / "record.tsv"), "--jobs", "1", "--minutes", "0.001")
    many = simulate("--scenario", "empty", *options, "--batch", "200", program="sim_long")
    assert many.returncode == 1, many.stdout + many.stderr
    assert "empty FAILED: none of 200 seeds reached the moon, the stars\n" in many.stdout


def test_what_a_long_run_must_reach() -> None:
    scenarios = load_scenarios("toy_scenarios")
    assert unreached(scenarios["empty"], 199, Counter()) == "", "too few seeds to say"
    wanted = scenarios["small-set"]
    assert unreached(wanted, 200, Counter({"the third": 20, "the comet": 1})) == ""
    assert unreached(wanted, 200, Counter({"the third": 20})) == (
        "small-set FAILED: none of 200 seeds reached the comet"
    )


def test_an_unknown_scenario_is_refused_with_the_known_names() -> None:
    run = simulate("--scenario", "nonsense")
    assert run.returncode == 2
    assert "no scenario nonsense; there are: " in run.stdout
    assert "kept-numbers" in run.stdout


def test_scenarios_are_listed() -> None:
    run = simulate("--list")
    assert run.returncode == 0
    assert {"forgetful-numbers", "kept-numbers"} <= set(run.stdout.split())
