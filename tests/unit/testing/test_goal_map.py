"""The goal map: where a row stands, what counts as falling back, how runs are merged."""

import pytest

from anabranch.testing.goal_results import Claim, Outcome, load_results, merge, save_results
from anabranch.testing.goals import (
    Goal,
    fallen_back,
    load_goals,
    state_to_keep,
    status_of,
    status_with_figures,
    unproven_tests,
)
from anabranch.testing.measured import Measured

NOW, LATER = Goal("now", ""), Goal("later", "")
TWO_PARTS = Goal("now", "", frozenset({"memory", "zookeeper"}))
PASSED, FAILED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN


def claim(test="tests/test_a.py::test_x", *, broken_by="", peer=False, part="", goal="core.M1"):
    return Claim(goal, part, test, broken_by, peer)


@pytest.mark.parametrize(
    ("goal", "shown", "status"),
    [
        (NOW, [], "open"),
        (LATER, [], "later"),
        (LATER, [(claim(), FAILED)], "open"),
        (LATER, [(claim(), PASSED)], "claimed"),
        (NOW, [(claim(), PASSED)], "claimed"),
        (NOW, [(claim(), PASSED), (claim("b"), FAILED)], "open"),
        (NOW, [(claim(), NOT_RUN)], "open"),
        (NOW, [(claim(), PASSED), (claim("b", peer=True), NOT_RUN)], "claimed"),
        (NOW, [(claim(peer=True), PASSED)], "proven"),
        (NOW, [(claim(broken_by="found"), PASSED)], "proven"),
        (NOW, [(claim(broken_by="not_found"), PASSED)], "claimed"),
        (NOW, [(claim(broken_by="found"), PASSED), (claim("b"), PASSED)], "claimed"),
        (NOW, [(claim(broken_by="found"), PASSED), (claim("b", peer=True), NOT_RUN)], "claimed"),
        (TWO_PARTS, [(claim(part="memory"), PASSED)], "open"),
        (TWO_PARTS, [(claim(part=p), PASSED) for p in ("memory", "zookeeper", "x")], "claimed"),
        (TWO_PARTS, [(claim(part=p, peer=True), PASSED) for p in TWO_PARTS.parts], "proven"),
    ],
)
def test_status(goal, shown, status):
    assert status_of(goal, shown, {("found", "tests/test_a.py::test_x")}) == status


def test_a_row_with_a_part_of_speed_needs_its_tests_and_its_figures():
    goal = Goal("now", "", frozenset({"numbers", "speed"}))
    shown = [(claim(part="numbers", peer=True), PASSED)]
    fast, slow = Measured(True, ()), Measured(False, ())
    assert status_with_figures(goal, shown, (), None) == "open", "no benchmark is about it"
    assert status_with_figures(goal, shown, (), slow) == "open"
    assert status_with_figures(goal, shown, (), fast) == "proven"
    assert status_with_figures(goal, [(shown[0][0], FAILED)], (), fast) == "open"
    assert status_with_figures(goal, [], (), fast) == "open"
    assert status_with_figures(NOW, [], (), fast) == "measured"


def test_a_proof_is_of_one_test_and_covers_all_its_cases():
    cases = [(claim(f"a.py::test[{n}]", broken_by="found"), PASSED) for n in range(3)]
    assert status_of(NOW, cases, {("found", "a.py::test")}) == "proven"
    assert status_of(NOW, cases, {("found", "a.py::test_other")}) == "claimed"


def test_what_keeps_a_row_from_being_proven_is_said():
    shown = [
        (claim("a.py::good", broken_by="found"), PASSED),
        (claim("a.py::peer", peer=True), PASSED),
        (claim("a.py::old[1]", broken_by="found"), PASSED),
        (claim("a.py::old[2]", broken_by="found"), PASSED),
        (claim("a.py::new", broken_by="found"), PASSED),
        (claim("a.py::bare"), PASSED),
        (claim("a.py::red"), FAILED),
    ]
    assert unproven_tests(shown, {("found", "a.py::good")}, {("found", "a.py::old")}) == [
        "failed: a.py::red",
        "no planted bug: a.py::bare",
        "not proven: a.py::new (found)",
        "stale proof: a.py::old (found)",
    ]


@pytest.mark.parametrize(
    ("before", "now", "shown", "fell"),
    [
        ("claimed", "open", [(claim(), FAILED)], ["core.M1: was claimed, is open"]),
        ("claimed", "open", [], ["core.M1: was claimed, is open"]),
        ("proven", "open", [(claim(), FAILED)], ["core.M1: was proven, is open"]),
        ("proven", "claimed", [(claim(), PASSED)], ["core.M1: was proven, is claimed"]),
        ("proven", "claimed", [(claim(broken_by="stale"), PASSED)], []),
        ("proven", "claimed", [(claim(), NOT_RUN), (claim("b"), PASSED)], []),
        ("claimed", "open", [(claim(), NOT_RUN)], []),
        (
            *("claimed", "open", [(claim(), NOT_RUN), (claim("b"), FAILED)]),
            ["core.M1: was claimed, is open"],
        ),
        ("claimed", "proven", [(claim(peer=True), PASSED)], []),
    ],
)
def test_fallen_back(before, now, shown, fell):
    assert fallen_back({"core.M1": before}, {"core.M1": now}, {"core.M1": shown}) == fell


def test_tests_that_were_not_run_take_nothing_from_the_committed_state():
    committed = {"a": "proven", "b": "claimed", "c": "claimed", "e": "proven"}
    statuses = {"a": "open", "b": "open", "c": "proven", "d": "claimed", "e": "open"}
    shown = {
        "a": [(claim(), NOT_RUN)],
        "b": [(claim(), FAILED)],
        "c": [(claim(), PASSED)],
        "e": [(claim(), NOT_RUN), (claim("b"), FAILED)],
    }
    kept = state_to_keep(committed, statuses, shown)
    assert kept == {"a": "proven", "b": "open", "c": "proven", "d": "claimed", "e": "open"}


def test_a_committed_row_that_is_gone_has_fallen_back():
    assert fallen_back({"core.M1": "claimed"}, {}, {}) == ["core.M1: was claimed, is gone"]


def test_a_partial_run_changes_only_what_it_ran():
    first, second = claim("f.py::test_1"), claim("f.py::test_2")
    known = {first: PASSED, second: PASSED}
    merged = merge(known, [first], {"f.py::test_1": False}, ())
    assert merged == {first: FAILED, second: PASSED}


def test_a_test_left_out_keeps_its_last_outcome():
    peer = claim("f.py::test_1", peer=True)
    assert merge({}, [peer], {}, {"f.py"}) == {peer: NOT_RUN}
    assert merge({peer: PASSED}, [peer], {}, {"f.py"}) == {peer: PASSED}


def test_a_test_that_is_gone_from_a_whole_file_is_forgotten():
    gone, elsewhere = claim("f.py::test_gone"), claim("g.py::test")
    assert merge({gone: PASSED, elsewhere: PASSED}, [], {}, {"f.py"}) == {elsewhere: PASSED}


def test_a_changed_marker_replaces_the_old_one():
    old, new = claim("f.py::test_1"), claim("f.py::test_1", part="memory")
    assert merge({old: PASSED}, [new], {"f.py::test_1": True}, ()) == {new: PASSED}


def test_results_are_read_back_unless_their_file_is_gone(tmp_path):
    here, gone = claim("here.py::test", broken_by="b", part="p", peer=True), claim("gone.py::test")
    (tmp_path / "here.py").touch()
    save_results(tmp_path, {here: PASSED, gone: FAILED})
    assert load_results(tmp_path) == {here: PASSED}


def test_the_map_is_well_formed():
    goals = load_goals()
    assert {goal.when for goal in goals.values()} == {"now", "later"}
    assert goals["core.B4"].parts >= {"exclusive", "shared", "failover", "key_shared"}
