"""What is refused when a query is made: what is no address, schemas, contradictions."""

import json
import threading

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StringType, StructType

from anabranch.errors import ConfigError, InputError
from pyspark_anabranch.options import Options
from pyspark_anabranch.stream_reader import StreamReader

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
BRACKETS = r"an IPv6 address stands in brackets, as in \[::1\]"


@pytest.mark.parametrize(
    ("brokers", "admin"),
    [
        ("pulsar://one:6650", "http://one:8080"),
        ("pulsar://one", "http://one:8080"),
        (" pulsar+ssl://one:6651,two:6651/ ", "http://one:8080"),
        ("pulsar://127.0.0.1:6650,[::1]:6650", "http://127.0.0.1:8080"),
        ("pulsar://[::1]:6650", "http://[::1]:8080"),
        ("pulsar://[fe80::2]", "http://[fe80::2]:8080"),
    ],
)
def test_the_admin_interface_is_beside_the_first_broker(brokers, admin):
    assert Options({"serviceUrl": brokers}).access.admin_url == admin
    chosen = {"serviceUrl": brokers, "adminUrl": "https://[::2]:8443/behind/a/proxy"}
    assert Options(chosen).access.admin_url == chosen["adminUrl"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one:6650", "is wanted, not 'one:6650'"),
        ("http://one:8080", "is wanted, not"),
        ("pulsar://", "is wanted, not"),
        ("pulsar:/one", "is wanted, not"),
        ("pulsar://one,", "is wanted, not"),
        ("pulsar://one:x", "is wanted, not .*'x'"),
        ("pulsar://one:0", "is wanted, not"),
        ("pulsar://one:70000", "out of range"),
        ("pulsar://one two:6650", "is wanted, not"),
        ("pulsar://one:6650/there", "and nothing else"),
        ("pulsar://one:6650?a=b", "and nothing else"),
        ("pulsar://one:6650,pulsar://two:6650", "and nothing else"),
        ("pulsar://::1:6650", BRACKETS),
        ("pulsar://fe80::1", BRACKETS),
        ("pulsar://[::1:6650", "is wanted, not"),
        ("pulsar://[one]:6650", "is wanted, not"),
        ("pulsar://[::1]x:6650", "is wanted, not"),
    ],
)
def test_brokers_at_no_address_are_refused(topics, text, words):
    with pytest.raises(ConfigError, match=f"option serviceUrl: .*{words}"):
        topics.source(topic="t", serviceUrl=text).schema()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one:8080", "is wanted, not"),
        ("pulsar://one:6650", "is wanted, not"),
        ("http://", "is wanted, not"),
        ("http://::1:8080", BRACKETS),
        ("http://[::1", "is wanted, not"),
        ("http://one:8080,two:8080", "is wanted, not"),
        ("http://one:80 80", "is wanted, not"),
        ("http://one?a=b", "and nothing else"),
    ],
)
def test_an_admin_interface_at_no_address_is_refused(topics, text, words):
    with pytest.raises(ConfigError, match=f"option adminUrl: .*{words}"):
        topics.source(topic="t", adminUrl=text).schema()


def test_what_may_be_a_password_is_not_shown():
    for name, text in (("serviceUrl", "pulsar://me:hidden@one"), ("adminUrl", "http://hidden@one")):
        with pytest.raises(ConfigError, match=f"option {name}: .*without the name") as refused:
            Options({"serviceUrl": "pulsar://one", name: text})
        assert "hidden" not in str(refused.value)


@pytest.mark.goal("spark.C13", part="broker", broken_by="spark_takes_any_schema")
def test_other_columns_than_those_of_topics_are_refused(topics):
    own = topics.source(topic="t", columns="key,publish_time,position")
    for wished in (
        StructType().add("key", StringType()).add("publish_time", StringType()),
        StructType().add("key", BinaryType()),
        StructType().add("price", BinaryType()),
    ):
        for make in (own.reader, own.streamReader):
            with pytest.raises(ConfigError, match="topics have columns of their own, key binary, "):
                make(wished)


def test_a_schema_within_spark(spark, topics):
    topics.fill("schemed", [b"1", b"2"])
    given = topics.options(topic="schemed", columns="value,publish_time")
    source = spark.read.format("anabranch").options(**given)
    wished = source.schema("value string, price int").load()
    with pytest.raises(PySparkException, match="topics have columns of their own, value binary"):
        wished.count()
    stream = spark.readStream.format("anabranch").options(**given).schema("value string").load()
    query = stream.writeStream.format("memory").queryName("schemed").start()
    with pytest.raises(PySparkException, match="topics have columns of their own, value binary"):
        query.awaitTermination(120)
    assert source.schema("value binary, publish_time timestamp").load().count() == 2
    everything = topics.options(topic="schemed", cryptoFailureAction="consume")
    plain = spark.read.format("anabranch").options(**everything).load()
    again = spark.read.format("anabranch").options(**everything).schema(plain.schema).load()
    assert again.count() == 2
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        there = spark.read.format("anabranch").options(**given).load()
        assert [field.dataType.simpleString() for field in there.schema] == ["binary", "timestamp"]
        assert there.where("publish_time is null").count() == 0
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_an_address_that_is_none_within_spark(spark, topics):
    given = topics.options(topic="t", serviceUrl="localhost:6650")
    with pytest.raises(PySparkException, match="option serviceUrl: pulsar://host:port or"):
        spark.read.format("anabranch").options(**given).load()
    rows = spark.range(1).selectExpr("cast(id as string) value")
    with pytest.raises(PySparkException, match="option serviceUrl: pulsar://host:port or"):
        rows.write.format("anabranch").options(**given).mode("append").save()


@pytest.mark.goal("spark.C2", part="ranges", broken_by="spark_reads_backwards")
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("latest", "earliest"),
        ("7:3:1", "7:3:0"),
        ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("20", "19"),
    ],
)
def test_a_range_that_ends_before_it_begins_is_refused(topics, start, end):
    topics.fill("backwards", [b"1"])
    name = "persistent://public/default/backwards"
    with pytest.raises(InputError, match=r"option end, .*, is before option start, "):
        topics.rows(topic="backwards", start=start, end=end)
    with pytest.raises(InputError, match=r"option end, .*, is before option start, "):
        topics.rows(topic="backwards", start=json.dumps({name: start}), end=end)


@pytest.mark.goal("spark.C5", part="least", broken_by="spark_takes_contradicting_limits")
def test_limits_that_contradict_each_other_or_do_nothing_are_refused(topics):
    limits = {"minRowsPerTrigger": "10", "maxRowsPerTrigger": "9"}
    with pytest.raises(ConfigError, match=r"minRowsPerTrigger, 10, is more than maxRows.*, 9"):
        topics.source(topic="t", **limits).streamReader(None)
    with pytest.raises(ConfigError, match="maxTriggerDelay is of no use without minRowsPerTrigger"):
        topics.source(topic="t", maxTriggerDelay="1s").streamReader(None)
    equal = topics.source(topic="t", minRowsPerTrigger="9", maxRowsPerTrigger="9")
    assert isinstance(equal.streamReader(None), StreamReader)


@pytest.mark.goal("spark.C5", part="least", broken_by="spark_waits_though_a_batch_is_full")
def test_a_batch_that_is_full_is_not_put_off(topics, monkeypatch):
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: None)
    topics.fill("full", [b"%03d" % number for number in range(20)])
    limits = {"minRowsPerTrigger": "1000", "maxBytesPerTrigger": "300"}
    reader = topics.source(topic="full", start="earliest", **limits).streamReader(None)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end != start, "it could not become larger"
