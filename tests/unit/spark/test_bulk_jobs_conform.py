"""What every bulk job of Spark has in common, one test over all of them."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from test_history_check_job import DONE, plain
from test_ledger_inventory import put_all, stock
from test_spark_bulk_engine import ServedStore

from anabranch.errors import AnabranchError
from anabranch.metadata.factory import open_store
from anabranch.migrations.engine.bulk import CompareWishes, CopyWishes, StorePlace
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.bulk_engine import fill, tree
from anabranch.testing.made_histories import delivered, write_history
from pyspark_anabranch.jobs import history_check
from pyspark_anabranch.jobs.contract import Outcome, Progress, run_job
from pyspark_anabranch.jobs.history_check import HistoryCheck
from pyspark_anabranch.jobs.inventory import LedgerInventory
from pyspark_anabranch.jobs.metadata_jobs import MetadataCopy, MetadataVerification

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
STEPS_OF_MANY = {
    "check-history": ["rules"],
    "copy-metadata": ["copy", "verify"],
    "verify-metadata": ["compare"],
    "inventory": ["names"],
}
"""Of each job the steps that have many parts here, or many records."""
JOBS = tuple(STEPS_OF_MANY)


@dataclass
class Surroundings:
    """What the jobs work on."""

    folder: object
    left: ServedStore = field(default_factory=ServedStore)
    right: ServedStore = field(default_factory=ServedStore)
    spare: ServedStore = field(default_factory=ServedStore)

    def job(self, name, *, broken=False):
        left = StorePlace("anabranch://127.0.0.1:1" if broken else self.left.url)
        right = StorePlace(self.right.url)
        return {
            "check-history": HistoryCheck(self.folder / ("nowhere" if broken else "history")),
            "copy-metadata": MetadataCopy(left, right),
            "verify-metadata": MetadataVerification(left, right),
            "inventory": LedgerInventory(f"bookkeeper:{left.url}"),
        }[name]

    def nodes(self, side="right", *prefixes):
        """How many nodes a store has."""

        async def count():
            store = await open_store(getattr(self, side).url, real_runtime())
            try:
                trees = [store.export(prefix) for prefix in prefixes or ("/",)]
                return len([record for records in trees async for record in records])
            finally:
                await store.close()

        return asyncio.run(count())


@pytest.fixture
def surroundings(tmp_path):
    write_history(tmp_path / "history", "one", [*plain(50), *DONE])
    made = Surroundings(tmp_path)
    asyncio.run(fill(made.left.url, tree()[:40]))
    yield made
    for store in (made.left, made.right, made.spare):
        store.close()


@pytest.mark.goal("spark.B16", part="contract", broken_by="spark_dry_run_is_wet")
@pytest.mark.parametrize("name", JOBS)
def test_every_job_plans_tells_and_ends_with_one_verdict(spark, surroundings, name):
    before = surroundings.nodes()
    planned = run_job(surroundings.job(name), spark, dry_run=True)
    assert (planned.outcome, planned.exit_code) == (Outcome.PLANNED, 0)
    assert [step.writes for step in planned.plan if step.writes] == [True] * (name[:4] == "copy")
    assert all(step.step and step.what and step.unit for step in planned.plan)
    assert surroundings.nodes() == before, "a dry run changes nothing"
    told = []
    verdicts = [
        run_job(surroundings.job(name), spark, on_progress=told.append).as_json() for _ in range(2)
    ]
    wanted = "found" if name == "verify-metadata" else "clean"
    for verdict in verdicts:
        assert verdict["format"] == "anabranch-job"
        assert (verdict["job"], verdict["outcome"]) == (name, wanted)
        assert verdict["exit_code"] == (wanted == "found")
        json.dumps(verdict)
    if name == "copy-metadata":
        assert told, "it was told how far the job is"
        assert verdicts[0]["result"]["copied"] >= 40
        assert verdicts[1]["result"]["copied"] == 0, "a second run does nothing more"
    else:
        assert verdicts[0]["result"] == verdicts[1]["result"]
    with pytest.raises(AnabranchError):
        run_job(surroundings.job(name, broken=True), spark)


@pytest.mark.goal("spark.B16", part="contract", broken_by="jobs_take_what_is_done_for_all")
@pytest.mark.parametrize("name", JOBS)
def test_every_job_tells_of_how_much_it_has_done_how_much(spark, surroundings, monkeypatch, name):
    monkeypatch.setattr(history_check, "RULES_TOLD_RECORDS", 7)
    write_history(surroundings.folder / "history", "one", [*plain(50), delivered(999), *DONE])
    asyncio.run(fill(surroundings.left.url, tree()[40:]))
    told = []
    run_job(surroundings.job(name), spark, on_progress=told.append)
    for step in STEPS_OF_MANY[name]:
        here = [one for one in told if one.step == step and one.unit != "tasks"]
        on_its_way = [one for one in here if 0 < one.done < one.total]
        assert on_its_way, f"{step}: nobody was told anything before its end"
        assert all(one.remaining_s > 0 for one in on_its_way)
        assert [one.done for one in here] == sorted(one.done for one in here)
        assert len({one.total for one in here}) == 1, "the end stays where it is"
        assert here[-1].done > here[-1].total - 7


def test_progress_says_how_long_it_will_take():
    assert Progress("copy", 25, 100, "tasks", 10.0).remaining_s == 30.0
    assert "25 of 100 tasks, about 30 s more" in Progress("copy", 25, 100, "tasks", 10.0).text
    assert Progress("copy", 0, 100, "tasks", 10.0).remaining_s is None
    unknown = Progress("rules", 25, 0, "records", 10.0)
    assert unknown.remaining_s is None
    assert unknown.text == "rules: 25 records", "nobody says that this is all"


RATED = {
    "copy-metadata": lambda left, right, rate: MetadataCopy(
        left, right, wishes=CopyWishes(nodes_per_s=rate), verify=False
    ),
    "verify-metadata": lambda left, _, rate: MetadataVerification(
        left, left, wishes=CompareWishes(nodes_per_s=rate)
    ),
    "verify-metadata by digest": lambda left, _, rate: MetadataVerification(
        left, left, wishes=CompareWishes(by_digest=True, nodes_per_s=rate)
    ),
    "inventory": lambda left, _, rate: LedgerInventory(f"bookkeeper:{left.url}", nodes_per_s=rate),
}
"""Jobs that reach a live cluster. A store is compared with itself: nothing is looked at again."""
READ_ONE_AFTER_THE_OTHER = {"verify-metadata by digest": 2}
"""How many trees are."""
PACED_S = 6.0
"""How long the nodes take at the rate that is asked for."""


@pytest.mark.goal("spark.B16", part="rate", broken_by="jobs_know_no_rate")
@pytest.mark.goal("spark.B16", part="rate", broken_by="jobs_allow_each_task_what_all_may")
@pytest.mark.goal("spark.B16", part="rate", broken_by="jobs_share_a_rate_with_tasks_that_wait")
@pytest.mark.parametrize("name", RATED)
def test_all_tasks_together_go_as_fast_as_they_may_and_no_faster(spark, surroundings, name):
    asyncio.run(fill(surroundings.left.url, tree()[40:]))
    nodes = surroundings.nodes("left")
    if name == "inventory":
        asyncio.run(put_all(surroundings.left.url, stock(orphans=0, traps=170)[0]))
        nodes = surroundings.nodes("left", "/ledgers", "/managed-ledgers")
    right = StorePlace(surroundings.right.url)

    def seconds(rate, target=right):
        job = RATED[name](StorePlace(surroundings.left.url), target, rate)
        return run_job(job, spark).seconds

    paced = seconds(nodes / PACED_S)
    freely = seconds(None, StorePlace(surroundings.spare.url))
    wanted = PACED_S * READ_ONE_AFTER_THE_OTHER.get(name, 1)
    assert paced >= wanted, "never faster, whatever the machine does"
    # Parts are of several sizes, and a task may wait for the longest that runs beside it.
    assert paced <= 2 * wanted + 3 * freely
