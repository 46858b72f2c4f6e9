"""Batch writes: a job that fails leaves nothing in the topic, or says what it left."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, IntegerType, StructType

from anabranch.errors import ConfigError, NotFound, Unreachable
from pyspark_anabranch.key_order import in_key_order
from pyspark_anabranch.options import Options
from pyspark_anabranch.writers import (
    DirectBatchWriter,
    HalfWritten,
    Publishing,
    StagedBatchWriter,
    TaskIdentity,
)

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


def values(*bounds):
    return [b"%03d" % number for number in range(*bounds)]


def batch(numbers, **columns):
    table = {"value": pa.array(numbers, pa.binary()), **columns}
    return pa.RecordBatch.from_pydict(table)


def job(topics, folder, topic, task=0, **options):
    wishes = topics.options(topic=topic, stagingFolder=str(folder), **options)
    return StagedBatchWriter(Options(wishes), "job", lambda name: TaskIdentity(name, 0, task, 0))


@pytest.mark.goal("spark.C17", part="batch", broken_by="spark_batch_tasks_send_at_once")
def test_nothing_is_seen_of_a_job_before_all_its_tasks_are_done(topics, tmp_path):
    topics.fill("whole", [b"before"])
    staged = [
        job(topics, tmp_path, "whole", task).write(iter([batch(values(task * 4, task * 4 + 4))]))
        for task in range(3)
    ]
    assert topics.values(topic="whole") == [b"before"]
    job(topics, tmp_path, "whole").commit(staged)
    assert topics.values(topic="whole") == [b"before", *values(12)]
    assert not list(tmp_path.rglob("*.arrow"))


@pytest.mark.goal("spark.C17", part="batch", broken_by="spark_batch_tasks_send_at_once")
def test_a_job_that_fails_leaves_nothing(topics, tmp_path):
    topics.fill("spared", [b"before"])
    staged = job(topics, tmp_path, "spared").write(iter([batch(values(4))]))

    def damaged():
        yield batch(values(4, 8))
        raise Unreachable("the source is gone")

    with pytest.raises(Unreachable):
        job(topics, tmp_path, "spared", 1).write(damaged())
    job(topics, tmp_path, "spared").abort([staged, None])
    assert topics.values(topic="spared") == [b"before"]
    assert not list(tmp_path.rglob("*.arrow"))


@pytest.mark.goal("spark.C17", part="batch", broken_by="spark_sends_before_it_looks")
def test_a_row_that_goes_nowhere_is_found_before_anything_is_sent(topics, tmp_path):
    topics.ask("PUT", "persistent/public/default/two/partitions", b"2")
    topics.fill("two-partition-0", [b"before"])
    for number, (column, error, words) in enumerate(
        (
            ({"partition": pa.array([0, 0, 9], pa.int32())}, ConfigError, "partition 9 of .*/two"),
            ({"topic": pa.array(["two", "two", "nowhere"])}, NotFound, "nowhere"),
        )
    ):
        options = {} if "topic" in column else {"topic": "two"}
        wishes = topics.options(stagingFolder=str(tmp_path), **options)
        writer = StagedBatchWriter(
            Options(wishes), f"job-{number}", lambda name: TaskIdentity(name, 0, 0, 0)
        )
        staged = writer.write(iter([batch(values(3), **column)]))
        with pytest.raises(error, match=words):
            writer.commit([staged])
    assert topics.values(topic="two") == [b"before"]


def test_a_commit_that_breaks_off_says_what_it_sent(topics, tmp_path, monkeypatch):
    topics.fill("broken", [b"before"])
    staged = [
        job(topics, tmp_path, "broken", task).write(iter([batch(values(task * 4, task * 4 + 4))]))
        for task in range(2)
    ]
    plain, calls = Publishing.send, []

    def gone_at_the_second(self, *arguments):
        calls.append(self)
        if len(calls) == 2:
            raise Unreachable("the broker is gone")
        return plain(self, *arguments)

    monkeypatch.setattr(Publishing, "send", gone_at_the_second)
    with pytest.raises(HalfWritten, match=r"4 of 8 rows are in the topic, .* the broker is gone"):
        job(topics, tmp_path, "broken").commit(staged)
    assert topics.values(topic="broken") == [b"before", *values(4)]


def test_a_driver_that_does_not_see_the_rows_says_so(topics, tmp_path):
    topics.fill("unseen", [b"before"])
    staged = job(topics, tmp_path / "of a task", "unseen").write(iter([batch(values(4))]))
    with pytest.raises(ConfigError, match=r"task 0 are not in .* stagingFolder to a folder"):
        job(topics, tmp_path / "of the driver", "unseen").commit([staged])
    assert topics.values(topic="unseen") == [b"before"]


def test_a_folder_that_nobody_would_use_is_refused(topics):
    schema = StructType().add("value", BinaryType())
    given = {"topic": "t", "stagingFolder": "somewhere"}
    with pytest.raises(ConfigError, match="stagingFolder is of no use with guarantee at_least"):
        topics.source(**given, guarantee="at_least_once").writer(schema, False)
    with pytest.raises(ConfigError, match="stagingFolder is for batch writes"):
        topics.source(**given, checkpointLocation="c").streamWriter(schema, False)
    direct = topics.source(topic="t", guarantee="at_least_once").writer(schema, False)
    assert isinstance(direct, DirectBatchWriter)
    wrong = StructType().add("value", BinaryType()).add("price", IntegerType())
    with pytest.raises(Exception, match="column 'price' cannot be written"):
        topics.source(topic="t").writer(wrong, False)


@pytest.mark.goal("spark.C19", part="tasks", broken_by="spark_spreads_keys_over_tasks")
@pytest.mark.goal("spark.C19", part="sorted", broken_by="spark_sorts_nothing")
def test_the_order_of_each_key_is_kept_though_many_tasks_write(spark, topics):
    topics.ask("PUT", "persistent/public/default/ordered/partitions", b"3")
    for part in range(3):
        topics.fill(f"ordered-partition-{part}", [b"-"])
    rows = spark.range(0, 600, 1, 6).selectExpr(
        "cast(id % 7 as string) key",
        "cast(id as string) value",
        "-id backwards",
    )
    ordered = in_key_order(rows, "backwards", tasks=4)
    assert ordered.columns == ["key", "value"]
    wishes = topics.options(topic="ordered", guarantee="at_least_once")
    ordered.write.format("anabranch").options(**wishes).mode("append").save()
    found = [row for row in topics.rows(topic="ordered") if row["value"] != b"-"]
    assert len(found) == 600
    by_key = {}
    for row in found:
        by_key.setdefault(row["key"], []).append(int(row["value"]))
    assert len(by_key) == 7
    for sequence in by_key.values():
        assert sequence == sorted(sequence, reverse=True)


def test_a_query_that_fails_while_it_writes_leaves_nothing(spark, topics, tmp_path):
    topics.fill("source", values(20))
    topics.fill("copied-whole", [b"before"])
    rows = spark.read.format("anabranch").options(**topics.options(topic="source")).load()
    bad = rows.selectExpr(
        "if(cast(value as string) = '019', raise_error('a bad row'), value) value"
    ).repartition(3)
    saving = bad.write.format("anabranch").options(
        **topics.options(topic="copied-whole"), stagingFolder=str(tmp_path)
    )
    with pytest.raises(PySparkException, match="a bad row"):
        saving.mode("append").save()
    assert topics.values(topic="copied-whole") == [b"before"]
    assert not list(tmp_path.rglob("*.arrow"))
