"""The job that checks histories says what the local check says, of the rules that it judges."""

from random import Random

import pytest

from anabranch.errors import Corruption, InputError, NotFound
from anabranch.testing.made_histories import (
    ORDERED,
    RUN,
    SHARED,
    correct_run,
    delivered,
    outcome,
    receipt,
    sent,
    subscribed,
    write_history,
)
from anabranch.testing.made_spark_history import PRODUCERS, spread
from anabranch.testing.spark_history_drill import checked, checked_beside, misjudged
from anabranch.verify.check import check_folder
from anabranch.verify.history import Header
from anabranch.verify.records import Delivery, Drained, End, Outcome
from pyspark_anabranch.jobs import history_check
from pyspark_anabranch.jobs.contract import run_job
from pyspark_anabranch.jobs.history_check import JUDGED, HistoryCheck

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

RULES = {rule.id for rule in JUDGED}


def judged_here(verdict):
    """What both checks must agree on."""
    rules = [rule for rule in verdict["rules"] if rule["id"] in RULES]
    found = sorted(
        (one["rule"], one["producer"], one["epoch"], one["seq"], one["subscription"] or "",
         one["detail"], tuple(one["positions"]))
        for one in verdict["violations"] if one["rule"] in RULES
    )  # fmt: skip
    names = (
        "sends",
        "acknowledged",
        "failed",
        "unknown",
        "deliveries",
        "redeliveries",
        "producers",
    )
    return rules, found, {name: verdict["counts"][name] for name in names}


def both(spark, folder):
    job = run_job(HistoryCheck(folder), spark)
    local = check_folder(folder).as_json()
    assert judged_here(job.result) == judged_here(local)
    return job


def plain(count, **more):
    """A run without a fault."""
    records = [subscribed()]
    for seq in range(count):
        records += [sent(seq, key=f"k{seq % 5}"), receipt(seq)]
    return [*records, *(delivered(seq, key=f"k{seq % 5}") for seq in range(count))]


DONE = [Drained(ORDERED, "made"), End()]


def test_a_clean_run_is_clean_and_nothing_of_it_is_looked_at_twice(spark, tmp_path):
    write_history(tmp_path, "one", [*plain(300), *DONE])
    job = both(spark, tmp_path)
    assert (job.exit_code, job.result["status"]) == (0, "clean")
    assert job.result["counts"]["doubtful_blocks"] == 0
    assert job.result["counts"]["sends"] == 300


@pytest.mark.goal("spark.B7", part="blocks", broken_by="history_blocks_are_believed")
@pytest.mark.goal("spark.B7", part="keys", broken_by="history_keys_are_believed")
def test_every_kind_of_damage_is_found_as_the_local_check_finds_it(spark, tmp_path):
    records = plain(9000)
    damage = {
        10: (),  # lost
        4990: (),
        20: (delivered(20, key="k0"), delivered(20, key="k0", entry=50_000)),  # stored twice
        31: (delivered(31, key="k1"), delivered(31, key="k1")),  # delivered again: no fault
    }
    found = []
    for record in records:
        is_damaged = isinstance(record, Delivery) and record.seq in damage
        found += damage[record.seq] if is_damaged else [record]
    swap = [index for index, one in enumerate(found) if isinstance(one, Delivery)]
    found[swap[100]], found[swap[105]] = found[swap[105]], found[swap[100]]  # disorder
    found += [delivered(99_999, key="k1")]  # never sent
    found += [sent(9100), outcome(9100, Outcome.FAIL), delivered(9100)]  # failed, and yet there
    write_history(tmp_path, "one", [*found, *DONE])
    job = both(spark, tmp_path)
    assert (job.exit_code, job.result["status"]) == (1, "violated")
    assert {one["rule"] for one in job.result["violations"]} == RULES


def test_random_runs_with_everything_that_is_allowed_get_the_same_verdict(spark, tmp_path):
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        records = correct_run(Random(seed), sends=150)
        write_history(folder, "one", [record for record in records if record.t >= 0])
        both(spark, folder)


def test_a_run_of_two_files_of_which_one_is_torn(spark, tmp_path):
    clients = Header(RUN, "one", "made", "made", clients=("one", "two", "three"))
    write_history(tmp_path, "one", [*plain(20), *DONE], header=clients)
    path = write_history(tmp_path, "two", [subscribed(SHARED)])
    with path.open("ab") as file:
        file.write(b'{"k":"send","t":1')
    job = both(spark, tmp_path)
    assert (job.exit_code, job.result["status"]) == (2, "incomplete") or job.exit_code == 1
    assert any("'three' left no history" in reason for reason in job.result["reasons"])


def test_what_is_no_history_is_refused_before_anything_else(spark, tmp_path):
    with pytest.raises(NotFound):
        run_job(HistoryCheck(tmp_path / "nowhere"), spark)
    with pytest.raises(InputError, match="no histories"):
        run_job(HistoryCheck(tmp_path), spark)
    path = write_history(tmp_path, "one", [*plain(2), *DONE])
    path.write_bytes(path.read_bytes().replace(b'"k":"recv"', b'"k":"rec', 1))
    with pytest.raises(Corruption, match=r"one\.history\.jsonl"):
        run_job(HistoryCheck(tmp_path), spark)


@pytest.mark.goal("spark.B16", part="resume", broken_by="job_tables_are_made_again")
def test_a_check_that_was_ended_goes_on_with_the_tables_it_has(spark, tmp_path, monkeypatch):
    folder, state = tmp_path / "run", tmp_path / "state"
    write_history(folder, "one", [*plain(50), delivered(999), *DONE])
    wanted = run_job(HistoryCheck(folder), spark).result

    def ended(*_):
        raise RuntimeError("ended")

    with monkeypatch.context() as patch:
        patch.setattr(history_check, "_picked", ended)
        with pytest.raises(RuntimeError, match="ended"):
            run_job(HistoryCheck(folder, keep=state), spark)
    assert sorted(path.name for path in state.iterdir()) == [
        "blocks.table", "job.json", "order.table"
    ]  # fmt: skip
    monkeypatch.setattr(history_check, "blocks", ended)
    monkeypatch.setattr(history_check, "doubtful_groups", ended)
    assert run_job(HistoryCheck(folder, keep=state), spark).result == wanted
    assert not state.exists()


LONG = "hundred million messages"
"""The drill `check-history` has so many; what it looks for and how is the same in small."""


@pytest.mark.goal("spark.B7", part=LONG, broken_by="history_blocks_are_believed")
@pytest.mark.goal("spark.B7", part=LONG, broken_by="history_keys_are_believed")
@pytest.mark.goal("spark.B7", part=LONG, broken_by="history_rows_come_by_line")
def test_exactly_what_is_hidden_in_a_long_history_is_found(spark):
    messages = 60_000
    verdict, wrong = checked(spark, messages)
    assert wrong == []
    found = {}
    for one in verdict.result["violations"]:
        found.setdefault(one["rule"], []).append(one)
    assert {rule: len(ones) for rule, ones in found.items()} == {"C1": 7, "C4": 5, "C6": 3}
    stored = [*found["C4"], *found["C6"]]
    assert all(one["positions"] for one in stored), "each with its places in the topic"
    counts = verdict.result["counts"]
    assert counts["sends"] == counts["acknowledged"] == messages
    assert counts["deliveries"] == messages - 7 + 5


def test_of_a_long_history_one_process_says_the_same(spark):
    disagreements, _ = checked_beside(spark, 30_000)
    assert disagreements == []


def test_a_check_that_misses_a_fault_or_names_another_message_is_not_believed():
    faults = spread(30_000)

    def said(rule, number):
        return {"rule": rule, "seq": number // PRODUCERS, "producer": number % PRODUCERS}

    named = {"C1": faults.lost, "C2": (), "C4": faults.doubled, "C6": faults.late}
    right = {
        "rules": [{"id": rule, "violations": len(all_)} for rule, all_ in named.items()],
        "violations": [said(rule, number) for rule, all_ in named.items() for number in all_],
    }
    assert misjudged(right, faults) == []
    other = right | {"violations": [said("C1", 5), *right["violations"][1:]]}
    assert misjudged(other, faults) == [
        f"C1: {faults.lost[0]} was not found",
        "C1: 5 has no fault",
    ]
    more = right | {"rules": [{"id": "C2", "violations": 1}, *right["rules"]]}
    assert misjudged(more, faults) == ["C2: 0 are there, 1 were found"]
