"""Filters that Spark hands down: less is read, and the rows are the same."""

from datetime import timedelta

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from anabranch.errors import ConfigError
from pyspark_anabranch.direct.sealed_entries import SealedEntries
from pyspark_anabranch.entry_feed import EntryFeed
from pyspark_anabranch.row_filters import RowFilters

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
SWITCH = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def filtered(stored_topics):
    """Two partitions; the first has three ledgers, of which two are sealed."""
    stored_topics.ask("PUT", "persistent/public/default/filtered/partitions", b"2")
    for number in range(3):
        first = number * 12
        stored_topics.fill(
            "filtered-partition-0", [b"%03d" % each for each in range(first, first + 12)]
        )
        if number < 2:
            stored_topics.roll("filtered-partition-0")
    stored_topics.fill("filtered-partition-1", [b"%03d" % each for each in range(100, 107)])
    return stored_topics


@pytest.fixture
def asked(monkeypatch):
    """The spans that are read, through the broker or where they are stored."""
    found = []
    plain_feed, plain_sealed = EntryFeed.__init__, SealedEntries.__init__

    def noted_feed(self, client, topic, spans, **named):
        found.extend((topic.partition, span) for span in spans)
        plain_feed(self, client, topic, spans, **named)

    def noted_sealed(self, stored, topic, spans, sealed):
        found.extend((topic.partition, span) for span in spans)
        plain_sealed(self, stored, topic, spans, sealed)

    monkeypatch.setattr(EntryFeed, "__init__", noted_feed)
    monkeypatch.setattr(SealedEntries, "__init__", noted_sealed)
    return found


def pushed(topics, filters, **options):
    """What a query reads with filters, in the order in which Spark calls."""
    wishes = {"topic": "filtered", "filterPushdown": "always", **options}
    reader = topics.source(**wishes).reader(None)
    assert list(reader.pushFilters(filters)) == filters, "Spark looks at the rows again"
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def matching(rows, filters):
    compare = {
        EqualTo: lambda a, b: a == b, EqualNullSafe: lambda a, b: a == b,
        GreaterThan: lambda a, b: a > b, GreaterThanOrEqual: lambda a, b: a >= b,
        LessThan: lambda a, b: a < b, LessThanOrEqual: lambda a, b: a <= b,
        In: lambda a, b: a in b,
    }  # fmt: skip
    found = rows
    for each in filters:
        kept = []
        for row in found:
            value = row
            for name in each.attribute:
                value = value[name]
            if value is not None and compare[type(each)](value, each.value):
                kept.append(row)
        found = kept
    return found


@pytest.mark.goal("spark.C12", part="result", broken_by="spark_takes_greater_for_less")
def test_every_filter_gives_the_rows_that_it_would_leave(filtered):
    rows = filtered.rows(topic="filtered")
    middle = rows[20]
    topic, time = middle["topic"], middle["publish_time"]
    where = middle["position"]
    for filters in (
        [EqualTo(("topic",), topic)],
        [EqualTo(("partition",), 1)],
        [In(("partition",), (0, 7))],
        [EqualTo(("position", "ledger"), where["ledger"])],
        [GreaterThan(("position", "ledger"), where["ledger"])],
        [LessThanOrEqual(("position", "entry"), 1), GreaterThan(("position", "entry"), 0)],
        [GreaterThanOrEqual(("publish_time",), time)],
        [LessThan(("publish_time",), time)],
        [EqualTo(("key",), b"005")],
        [EqualNullSafe(("key",), b"105")],
        [In(("key",), (b"005", b"017", None))],
        [GreaterThan(("key_hash",), 20_000), LessThan(("key_hash",), 50_000)],
        [EqualTo(("sequence_id",), 3)],
        [EqualTo(("event_time",), time)],
        [EqualTo(("partition",), 1), EqualTo(("key",), b"005")],
    ):
        assert pushed(filtered, filters) == matching(rows, filters), filters
    assert pushed(filtered, [IsNotNull(("key",))]) == rows, "what is not understood is Spark's"
    naive = [GreaterThan(("publish_time",), time.replace(tzinfo=None))]
    assert pushed(filtered, naive) == rows
    assert pushed(filtered, [EqualTo(("key",), None)]) == rows


@pytest.mark.goal("spark.C12", part="ledgers", broken_by="spark_reads_every_ledger")
def test_only_ledgers_that_can_have_such_rows_are_read(filtered, asked, tmp_path):
    rows = filtered.rows(topic="filtered")
    ledgers = sorted({row["position"]["ledger"] for row in rows if row["partition"] == 0})
    asked.clear()
    pushed(filtered, [EqualTo(("partition",), 1)])
    assert {partition for partition, _ in asked} == {1}
    asked.clear()
    pushed(filtered, [EqualTo(("partition",), 0), EqualTo(("position", "ledger"), ledgers[1])])
    assert {span.ledger_id for _, span in asked} == {ledgers[1]}
    # What is in an index is known without a look at the ledger.
    kept = {"ledgersUrl": f"embedded:{filtered.folder}", "indexFolder": str(tmp_path)}
    filtered.rows(topic="filtered", columns="key", **kept)
    asked.clear()
    found = pushed(filtered, [EqualTo(("key",), b"005"), EqualTo(("partition",), 0)], **kept)
    assert [row["value"] for row in found] == [b"005"]
    assert {span.ledger_id for _, span in asked} == {ledgers[0], ledgers[2]}, "and the open one"
    asked.clear()
    late = rows[0]["publish_time"] + timedelta(days=1)
    assert pushed(filtered, [GreaterThan(("publish_time",), late)], **kept) == []
    assert not {span.ledger_id for _, span in asked} & set(ledgers[:2])


@pytest.mark.goal("spark.C12", part="switch", broken_by="spark_overrides_push_filters")
def test_filters_are_taken_where_spark_hands_them_down_and_only_there(filtered):
    reader = filtered.source(topic="filtered").reader(None)
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    assert not reader.filters
    assert not RowFilters([EqualTo(("value",), b"x"), EqualTo(("position",), 1)])
    assert not RowFilters([EqualTo(("position", "nothing"), 1), EqualTo(("partition",), "x")])


def test_a_query_is_the_same_whether_spark_hands_filters_down_or_not(spark, filtered):
    found, tasks = {}, {}
    before = spark.conf.get(SWITCH)
    assert before == "true", "the session builder sees to it"
    try:
        for switch in ("true", "false"):
            spark.conf.set(SWITCH, switch)
            wishes = filtered.options(topic="filtered", filterPushdown="always")
            reading = spark.read.format("anabranch").options(**wishes)
            table = reading.load().where(
                "partition = 0 and position.entry >= 1 and key > X'303230'"
            )
            found[switch] = sorted(row["value"] for row in table.select("value").collect())
            tasks[switch] = table.rdd.getNumPartitions()
    finally:
        spark.conf.set(SWITCH, before)
    assert tasks == {"true": 1, "false": 2}, "the other partition is not read"
    assert found["true"] == found["false"]
    assert found["true"] == [b"%03d" % each for each in range(21, 36) if each >= 29 or each < 24]


@pytest.mark.goal("spark.C12", part="result", broken_by="spark_takes_filters_that_leak")
def test_filters_are_left_to_a_spark_that_would_use_them_for_other_queries(filtered, monkeypatch):
    def taken(**options):
        reader = filtered.source(topic="filtered", **options).reader(None)
        return bool(reader.pushFilters([EqualTo(("partition",), 1)]) and reader.filters)

    monkeypatch.delattr(DataSourceReader, "pushLimit", raising=False)
    assert not taken()
    assert not taken(filterPushdown="auto")
    assert taken(filterPushdown="always")
    monkeypatch.setattr(DataSourceReader, "pushLimit", lambda self, limit: False, raising=False)
    assert taken()
    with pytest.raises(ConfigError, match="filterPushdown: auto or always is wanted, not 'never'"):
        taken(filterPushdown="never")


def test_queries_over_one_dataframe_do_not_share_their_filters(spark, filtered):
    assert spark.conf.get(SWITCH) == "true"
    table = spark.read.format("anabranch").options(**filtered.options(topic="filtered")).load()
    first, second = table.where("partition = 0"), table.where("partition = 1")
    assert (first.count(), table.count(), second.count()) == (36, 43, 7)
    assert (table.count(), first.union(second).count(), table.join(first, "key").count()) == (
        43, 43, 36
    )  # fmt: skip
