"""The data source within Spark itself: found by its name, read, streamed, written, refused."""

import pytest
from pyspark.errors import PySparkException

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def filled(topics):
    topics.ask("PUT", "persistent/public/default/shown/partitions", b"2")
    topics.fill("shown-partition-0", [b"%03d" % number for number in range(30)], compression="lz4")
    topics.fill("shown-partition-1", [b"%03d" % number for number in range(30, 50)], batching=None)
    return topics


def test_a_topic_is_a_table_without_registration(spark, filled):
    table = spark.read.format("anabranch").options(**filled.options(topic="shown")).load()
    assert [field.simpleString() for field in table.schema.fields] == [
        "key:binary", "value:binary", "topic:string", "partition:int",
        "position:struct<ledger:bigint,entry:bigint,batch:int>", "sequence_id:bigint",
        "producer:string", "publish_time:timestamp", "event_time:timestamp",
        "properties:map<string,string>", "key_hash:int", "schema_version:binary",
    ]  # fmt: skip
    found = table.selectExpr("partition", "cast(value as string) value").collect()
    assert sorted((row.partition, row.value) for row in found) == [
        (int(number >= 30), f"{number:03}") for number in range(50)
    ]
    assert table.where("partition = 1 and position.entry < 5").count() == 5
    few = filled.options(topic="shown", columns="partition,key_hash", maxEntriesPerTask="3")
    counted = spark.read.format("anabranch").options(**few).load().groupBy("partition").count()
    assert dict(map(tuple, counted.collect())) == {0: 30, 1: 20}
    nothing = filled.options(topic="shown", start="latest")
    assert spark.read.format("anabranch").options(**nothing).load().count() == 0


def test_a_stream_stops_and_goes_on_and_each_row_is_stored_once(spark, filled, tmp_path):
    filled.ask("PUT", "namespaces/public/copies", b"{}")
    filled.ask("POST", "namespaces/public/copies/deduplication", b"true")
    filled.ask("PUT", "persistent/public/copies/copy")
    place = b'{"ledgerId": -1, "entryId": -1}'
    filled.ask("PUT", "persistent/public/copies/copy/subscription/keeps", place)
    copy = "public/copies/copy"

    def run_available():
        options = filled.options(
            topic="shown", start="earliest", maxRowsPerTrigger="20", subscription="copies"
        )
        rows = spark.readStream.format("anabranch").options(**options).load()
        query = (
            rows.select("key", "value", "properties")
            .writeStream.format("anabranch")
            .options(**filled.options(topic=copy))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        return [progress.numInputRows for progress in query.recentProgress]

    sizes = run_available()
    assert sum(sizes) == 50
    assert max(sizes) <= 20
    filled.fill("shown-partition-0", [b"later"])
    assert sum(run_available()) == 1
    assert sorted(filled.values(topic=copy)) == sorted(filled.values(topic="shown"))


def test_a_table_is_written_and_comes_back(spark, filled):
    filled.fill("written", [b"before"])
    rows = spark.range(100).selectExpr(
        "cast(id as string) value", "cast(id % 7 as string) key",
        "timestamp_millis(1700000000000 + id) event_time",
        "map('n', cast(id as string)) properties",
    )  # fmt: skip
    saving = rows.write.format("anabranch").options(**filled.options(topic="written"))
    saving.mode("append").save()
    found = filled.rows(topic="written")[1:]
    assert sorted(int(row["value"]) for row in found) == list(range(100))
    for row in found:
        number = int(row["value"])
        assert row["key"] == b"%d" % (number % 7)
        assert dict(row["properties"]) == {"n": str(number)}
        assert round(row["event_time"].timestamp() * 1000) == 1_700_000_000_000 + number


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "shown", "topics": "other"}, "exactly one of the options topic, topics"),
        ({"topic": "absent"}, "public/default/absent not found"),
        ({"topic": "shown", "adminUrl": "http://127.0.0.1:1"}, "nobody answers at http://127.0.0"),
        ({"topic": "shown", "serviceUrl": "pulsar://127.0.0.1:1"}, "is the server running"),
    ],
)
def test_errors_reach_the_user_by_name(spark, filled, options, words):
    loading = spark.read.format("anabranch").options(**(filled.options() | options))
    with pytest.raises(PySparkException, match=words):
        loading.load().count()
