"""Drills and long simulations: what they record, where they go on, how they fail."""

import importlib.util
import sys
from pathlib import Path

import pytest

from anabranch.errors import FormatError
from anabranch.testing import drills, sim_long
from anabranch.testing.drill import Drill
from anabranch.testing.drills import DRILLS, done_before, figures_of
from anabranch.testing.run_records import code_digest, load_rows, save_rows
from anabranch.testing.sim_long import Row, first_free, joined, totals


def row(first: int, seeds: int, *, result: str = "passed", digest: str = "d", name: str = "s"):
    return Row(name, digest, first, seeds, result, 1.0)


def test_neighbouring_seeds_become_one_row_and_failures_stay_alone() -> None:
    rows = [row(20, 20), row(0, 20), row(40, 1, result="failed"), row(41, 9), row(0, 5, digest="e")]
    assert joined(rows) == [
        row(0, 40)._replace(seconds=2.0),
        row(40, 1, result="failed"),
        row(41, 9),
        row(0, 5, digest="e"),
    ]
    assert joined([row(0, 5), row(0, 5)]) == [row(0, 5)], "a row that two branches kept"


@pytest.mark.parametrize(
    ("rows", "seed"),
    [
        ([], 0),
        ([row(0, 20)], 20),
        ([row(0, 20), row(40, 20)], 20),
        ([row(20, 20), row(0, 20), row(40, 1, result="failed")], 41),
        ([row(0, 20, digest="other")], 0),
        ([row(0, 20, name="other")], 0),
    ],
)
def test_the_next_seed_is_the_first_not_played_with_this_code(rows: list[Row], seed: int) -> None:
    assert first_free(rows, "s", "d") == seed


def test_totals_count_all_code_and_the_present_one() -> None:
    rows = [row(0, 9000), row(0, 1500, digest="e"), row(1500, 1, digest="e", result="failed")]
    assert totals(rows, "e") == [
        "s: 10,500 seeds passed, 1,500 of them with the present code, 1 failed"
    ]


def test_a_record_with_other_columns_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "record.tsv"
    assert load_rows(path, ("a", "b")) == []
    save_rows(path, ("a", "b"), [("1", "2")])
    assert load_rows(path, ("a", "b")) == [["1", "2"]]
    with pytest.raises(FormatError, match=r"record\.tsv has the columns"):
        load_rows(path, ("a", "c"))
    path.write_text("a\tb\n1\n")
    with pytest.raises(FormatError, match="line 2 has 1 fields"):
        load_rows(path, ("a", "b"))


def test_the_digest_is_of_the_product_and_of_what_the_run_uses(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / "src" / "anabranch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def digests() -> tuple[str, str]:
        """Of a simulation, and of a drill."""
        return (
            code_digest("anabranch.testing.scenarios", root=tmp_path),
            code_digest("anabranch.testing.drill", root=tmp_path),
        )

    def changes(name: str, text: str) -> tuple[bool, bool]:
        before = digests()
        write(name, text)
        simulation, drill = (old != new for old, new in zip(before, digests(), strict=True))
        return simulation, drill

    write("broker/topic.py", "1")
    write("testing/drill.py", "import json\nfrom anabranch.testing import load\n")
    write("testing/load.py", "from anabranch.testing.servers.process import start\n")
    write("testing/servers/process.py", "1")
    write("testing/story.py", "1")
    write("testing/scenarios/x.py", "from anabranch.testing.story import play\n")
    assert changes("broker/topic.py", "2") == (True, True)
    assert changes("testing/bugs/broker.py", "1") == (False, False)
    assert changes("testing/scenarios/y.py", "1") == (True, False)
    assert changes("testing/story.py", "2") == (True, False)
    assert changes("testing/servers/process.py", "2") == (False, True)
    assert changes("testing/load.py", "") == (False, True)


def test_the_digest_of_a_drill_on_spark_is_of_the_data_source_as_well(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def digests() -> list[str]:
        drills = ("anabranch.testing.plain_drill", "anabranch.testing.spark_drill")
        return [code_digest(drill, root=tmp_path) for drill in drills]

    write("anabranch/testing/plain_drill.py", "import pyspark_anabranches\n")
    write("anabranch/testing/spark_drill.py", "from anabranch.testing import loads\n")
    write("anabranch/testing/loads.py", "def f():\n    from pyspark_anabranch import planning\n")
    write("pyspark_anabranch/jobs/copying.py", "1")
    before = digests()
    write("pyspark_anabranch/jobs/copying.py", "2")
    after = digests()
    assert [old != new for old, new in zip(before, after, strict=True)] == [False, True]


PROGRAM = """
import json, sys
size, start = int(sys.argv[1]), sys.argv[2]
print("working", file=sys.stderr)
print(json.dumps({"size": size, "counts": {"start": int(start), "name": "x"},
                  "figures": {"p99_s": 0.25}}))
sys.exit(1 if size == 13 else 0)
"""


@pytest.fixture
def made_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drill:
    """A drill that goes on; of size 13 it fails."""
    (tmp_path / "made_drill.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = Drill("made", "made up", "made_drill", ("{size}", "{start}"), full=100, small=5)
    monkeypatch.setattr(drills, "DRILLS", (made,))
    return made


def test_drills_are_recorded_and_go_on(made_drill: Drill, tmp_path: Path) -> None:
    record = tmp_path / "record.tsv"
    options = ["made", "--record", str(record)]
    assert drills.main([*options, "--size", "small"]) == 0
    assert drills.main(options) == 0
    assert drills.main([*options, "--size", "13"]) == 1
    assert drills.main([*options, "--size", "7"]) == 0
    digest = code_digest(made_drill.module)
    rows = load_rows(record, drills.COLUMNS)
    assert [
        (name, seen, size, result, figures) for name, seen, size, _, result, figures in rows
    ] == [
        ("made", digest, "5", "passed", "p99_s=0.25 start=0"),
        ("made", digest, "100", "passed", "p99_s=0.25 start=5"),
        ("made", digest, "13", "failed", "p99_s=0.25 start=105"),
        ("made", digest, "7", "passed", "p99_s=0.25 start=105"),
    ]
    assert done_before(rows, made_drill, "other code") == 0


def test_a_drill_that_ended_meanwhile_stays_in_the_record(
    made_drill: Drill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record.tsv"
    digest_of = drills.code_digest

    def another_ends(module: str) -> str:
        monkeypatch.setattr(drills, "code_digest", digest_of)
        drills.run(made_drill, 1, record)
        return digest_of(module)

    monkeypatch.setattr(drills, "code_digest", another_ends)
    drills.run(made_drill, 2, record)
    assert [row[2] for row in load_rows(record, drills.COLUMNS)] == ["1", "2"]


@pytest.mark.usefixtures("made_drill")
def test_unknown_drills_and_sizes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert drills.main(["nothing"]) == 2
    assert "no drill nothing; there are: made" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        drills.main(["made", "--size", "tiny"])
    assert "full, small, or a number above 0, not 'tiny'" in capsys.readouterr().err


def test_every_drill_has_a_program_and_a_small_form() -> None:
    for drill in DRILLS:
        command = drill.command(drill.small, 0)
        assert command[0] == sys.executable
        assert importlib.util.find_spec(drill.module) is not None
        assert str(drill.small) in command
        assert 0 < drill.small < drill.full
        assert "{size}" not in command


def test_figures_are_the_numbers_of_a_verdict() -> None:
    assert (
        figures_of({"counts": {"b": 2, "a": 1}, "figures": {"s": 0.5}, "x": 3})
        == "a=1 b=2 s=0.5 x=3"
    )
    assert figures_of({}) == ""


def test_an_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_long.main(["--scenario", "nonsense"]) == 2
    assert "no scenario nonsense; there are: " in capsys.readouterr().out
