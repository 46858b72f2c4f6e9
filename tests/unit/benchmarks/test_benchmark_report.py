"""Figures become medians, ratios within pairs, one table and a JSON that can be read back."""

import json
import pstats
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.testing.servers import Interval, PerfResult
from benchmarks.__main__ import main
from benchmarks.perf_loads import _rate_of_drain
from benchmarks.report import Figure, Measure, Report, SideRun

RATE = Measure("rate", "publish", "msg/s", True)
READY = Measure("ready", "ready after", "s", False)


def report(*runs: SideRun, sides: tuple[str, ...] = ("ours", "peer")) -> Report:
    return Report("demo", (RATE, READY), sides, {"cpus": "2"}, list(runs))


def run(side: str, rate: float, *, load: float = 1.0, at_least: bool = False) -> SideRun:
    return SideRun(side, {"rate": Figure(rate, at_least)}, [load])


def test_the_ratio_is_taken_within_each_pair() -> None:
    found = report(run("ours", 300), run("peer", 100), run("ours", 20), run("peer", 10))
    assert found.ratios("rate") == [3.0, 2.0]
    assert found.ratios("ready") == []


def test_a_pair_that_lacks_a_side_does_not_count() -> None:
    found = report(run("ours", 300), run("peer", 100), run("ours", 1))
    assert found.ratios("rate") == [3.0]
    assert "300" in found.table()
    assert "1 pair(s)" in found.table()


def test_the_table_shows_median_spread_load_and_remarks() -> None:
    runs = [run("ours", 4000, load=0.5), run("peer", 1000), run("ours", 2000), run("peer", 1000)]
    runs += [run("ours", 3000), run("peer", 1000, load=7.25)]
    runs[0].remarks.append("some sends failed")
    head, titles, rate, ready, remark = report(*runs).table().splitlines()
    assert head == "demo: ours beside peer, 3 pair(s), 1-minute load 0.5 to 7.2"
    assert titles.split() == ["median", "(min-max)", "ours", "peer", "ratio", "better"]
    assert "3,000 (2,000-4,000)" in rate
    assert "1,000 (1,000-1,000)" in rate
    assert "3.00x (2.00-4.00)" in rate
    assert rate.endswith("higher")
    assert ready.split() == ["ready", "after,", "s", "-", "-", "-", "lower"]
    assert remark == "remark: ours: some sends failed"


def test_each_peer_has_a_ratio_of_its_own() -> None:
    found = report(
        run("ours", 300), run("raw", 600), run("peer", 100), sides=("ours", "raw", "peer")
    )
    assert found.ratios("rate", 1) == [0.5]
    assert found.ratios("rate", 2) == [3.0]
    _, titles, rate, _ = found.table().splitlines()
    assert titles.split()[-5:] == ["to", "raw", "to", "peer", "better"]
    assert rate.split()[-3:] == ["0.50x", "3.00x", "higher"]


def test_one_side_alone_has_no_ratio() -> None:
    found = report(run("ours", 300), sides=("ours",))
    assert "ratio" not in found.table()
    assert "300" in found.table()


def test_a_lower_bound_is_shown_as_one() -> None:
    found = report(run("ours", 300, at_least=True), run("peer", 100))
    assert ">= 300" in found.table()


def test_the_saved_file_names_its_format_and_holds_every_figure(tmp_path: Path) -> None:
    path = tmp_path / "new" / "demo.json"
    report(run("ours", 300, at_least=True), run("peer", 100)).save(path)
    document = json.loads(path.read_text())
    assert (document["format"], document["version"]) == ("anabranch-benchmark", 1)
    assert [one["side"] for one in document["runs"]] == ["ours", "peer"]
    assert document["runs"][0]["figures"]["rate"] == {"value": 300, "at_least": True}


@pytest.mark.parametrize(("available", "at_least"), [(900, True), (901, False)])
def test_a_drain_that_ran_dry_in_its_best_interval_is_a_lower_bound(
    available: int, at_least: bool
) -> None:
    intervals = (Interval(400, 40, 1, 0), Interval(900, 50, 1, 0), Interval(900, 0, 0, 0))
    assert _rate_of_drain(PerfResult(intervals, 900, None), available) == Figure(50, at_least)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "no benchmark 'nonsense'"),
        (["--seconds", "5"], "at least 15"),
        (["--pairs", "0"], "at least 1"),
        (["--sides", "anabranch,kafka"], "unknown 'kafka'"),
        (["--loads", "heavy"], "unknown 'heavy'"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert complaint in capsys.readouterr().err


def test_the_profile_of_a_command_is_kept(tmp_path: Path) -> None:
    wrapper = Path(__file__).parents[3] / "benchmarks" / "profiled.py"
    stats = tmp_path / "stats"
    done = subprocess.run(
        [sys.executable, "-P", str(wrapper), str(stats), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("anabranch ")
    assert "run_module" in pstats.Stats(str(stats)).get_stats_profile().func_profiles
