"""Jobs that were ended go on behind what is done: which parts are run again, and which are not."""

import json
from dataclasses import dataclass

import pytest

from anabranch.errors import ConflictError, FormatError, InputError
from anabranch.migrations.engine.bulk import (
    CompareResult,
    Mismatch,
    TreeMismatch,
    compare_result_of,
)
from pyspark_anabranch.jobs.bulk_tasks import Failure
from pyspark_anabranch.jobs.job_state import kept_state
from pyspark_anabranch.jobs.part_runs import Kept, each_part


@dataclass
class OneProcess:
    """As much of a Spark session as running parts takes."""

    defaultParallelism: int = 1  # noqa: N815 - Spark's name

    @property
    def sparkContext(self):  # noqa: N802 - Spark's name
        return self

    def parallelize(self, parts, count):
        assert len(parts) == count
        self.parts = parts
        return self

    def map(self, task):
        self.task = task
        return self

    def collect(self):
        return [self.task(part) for part in self.parts]


def squares(state, ran, *, broken=()):
    def task(part):
        ran.append(part)
        return Failure(1, f"part {part} cannot be done") if part in broken else part * part

    told = []
    kept = Kept(state, "squares", str, int)
    return each_part(OneProcess(), task, range(10), told.append, kept), told


@pytest.mark.goal("spark.B16", part="resume", broken_by="job_state_is_never_read")
async def test_only_parts_that_are_not_done_are_run_again(tmp_path):
    ran, state = [], tmp_path / "state"
    with pytest.raises(InputError, match="part 5 cannot be done"), kept_state(state, "j", {}) as on:
        await squares(on, ran, broken=[5])[0]
    assert ran == list(range(8)), "four at a time; none behind those that met the error"
    ran.clear()
    with kept_state(state, "j", {}) as on:
        work, told = squares(on, ran)
        assert await work == [part * part for part in range(10)]
    assert ran == [5, 8, 9]
    assert sorted(told) == [part * part for part in range(10)], "what was done before is told, too"
    assert not state.exists()


async def test_a_line_that_was_cut_off_counts_for_nothing(tmp_path):
    ran, state = [], tmp_path / "state"
    with pytest.raises(InputError), kept_state(state, "j", {}) as on:
        await squares(on, ran, broken=[5])[0]
    file = state / "squares.jsonl"
    file.write_bytes(file.read_bytes()[:-3])
    ran.clear()
    with pytest.raises(InputError), kept_state(state, "j", {}) as on:
        await squares(on, ran, broken=[9])[0]
    assert ran == [5, 7, 8, 9]
    ran.clear()
    with kept_state(state, "j", {}) as on:
        assert await squares(on, ran)[0] == [part * part for part in range(10)]
    assert ran == [9]


async def test_without_a_folder_nothing_is_kept():
    ran = []
    with kept_state(None, "j", {}) as on:
        assert await squares(on, ran)[0] == [part * part for part in range(10)]
        assert on.done("squares") == {}


def test_the_state_of_another_job_is_refused(tmp_path):
    with pytest.raises(RuntimeError), kept_state(tmp_path / "a", "copy", {"from": "x"}):
        raise RuntimeError
    for job, of in (("copy", {"from": "y"}), ("check", {"from": "x"})):
        with (
            pytest.raises(ConflictError, match=r"the state of copy of \{'from': 'x'\}"),
            kept_state(tmp_path / "a", job, of),
        ):
            pytest.fail("it was taken")
    (tmp_path / "a" / "job.json").write_text(json.dumps({"format": "anabranch-job-state"}))
    with pytest.raises(FormatError, match="version None"), kept_state(tmp_path / "a", "copy", {}):
        pytest.fail("it was taken")
    (tmp_path / "a" / "job.json").write_text("{}")
    with pytest.raises(FormatError, match="not of the format"), kept_state(tmp_path / "a", "c", {}):
        pytest.fail("it was taken")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").touch()
    with pytest.raises(FormatError, match="is not empty"), kept_state(tmp_path / "b", "copy", {}):
        pytest.fail("it was taken")


def test_a_comparison_is_the_same_after_it_was_kept():
    counts = {Mismatch.MISSING: 2}
    found = (TreeMismatch("/a", Mismatch.MISSING), TreeMismatch("/b", Mismatch.DIFFERS, ("value",)))
    result = CompareResult(3, 4, counts, found, 5, 6, 7)
    assert compare_result_of(json.loads(json.dumps(result.as_json()))) == result
