"""DataFrames written to topics without Spark: rows as messages, each stored once whatever fails."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from anabranch.errors import AnabranchError, ConfigError, InputError
from pyspark_anabranch import publishing
from pyspark_anabranch.options import Options
from pyspark_anabranch.publishing import Partitions, check_deduplication
from pyspark_anabranch.sink_rows import partition_of_key
from pyspark_anabranch.staging import Stage
from pyspark_anabranch.writers import Publishing, StagedStreamWriter, TaskIdentity

pytestmark = pytest.mark.xdist_group("spark")
QUERY = "0b2f"


def batch(numbers, **columns):
    table = {"value": [b"%03d" % number for number in numbers], **columns}
    return pa.RecordBatch.from_pydict(table, schema=_schema(table))


def _schema(table):
    kinds = {
        "value": pa.binary(), "key": pa.binary(), "topic": pa.string(), "partition": pa.int32(),
        "event_time": pa.timestamp("us", tz="UTC"), "properties": pa.map_(pa.string(), pa.string()),
    }  # fmt: skip
    return pa.schema([(name, kinds[name]) for name in table])


@pytest.fixture(scope="module")
def once(topics):
    """A namespace whose brokers remove duplicates."""
    topics.ask("PUT", "namespaces/public/once", b"{}")
    topics.ask("POST", "namespaces/public/once/deduplication", b"true")
    return topics


def sink(topics, checkpoint, task=0, attempt=0, batch_id=0, **options):
    given = topics.options(checkpointLocation=str(checkpoint), **options)
    return StagedStreamWriter(Options(given), lambda: TaskIdentity(QUERY, batch_id, task, attempt))


def stored(topics, topic):
    return topics.values(topic=topic)


def spark_schema(text):
    kinds = {"string": StringType(), "int": IntegerType(), "binary": BinaryType()}
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        schema.add(name, kinds[kind])
    return schema


def keep(topics, topic):
    place = b'{"ledgerId": -1, "entryId": -1}'
    topics.ask("PUT", f"persistent/public/once/{topic}/subscription/keeps", place)
    return f"public/once/{topic}"


def create(topics, topic):
    topics.ask("PUT", f"persistent/public/once/{topic}")
    return keep(topics, topic)


@pytest.mark.goal("spark.C16", part="columns", broken_by="spark_forgets_event_times")
def test_every_column_comes_back_as_it_was_written(once):
    topic = create(once, "columns")
    moment = datetime(2026, 3, 4, 5, 6, 7, 89_000, UTC)
    rows = pa.RecordBatch.from_pydict(
        {
            "value": [b"one", None, b""],
            "key": [b"k\xff", b"plain", None],
            "event_time": [moment, None, moment],
            "properties": [[("a", "1")], None, []],
        },
        schema=_schema(["value", "key", "event_time", "properties"]),
    )
    writing = Publishing(Options(once.options(topic=topic, compression="zlib")))
    assert writing.send("job", 3, 0, publishing_rows(rows)) == 3
    found = once.rows(topic=topic)
    assert [row["value"] for row in found] == [b"one", None, b""]
    assert [row["key"] for row in found] == [b"k\xff", b"plain", None]
    assert [row["event_time"] for row in found] == [moment, None, moment]
    assert [dict(row["properties"]) for row in found] == [{"a": "1"}, {}, {}]
    assert {row["producer"] for row in found} == {"spark-job-3"}


def publishing_rows(*batches):
    return iter(batches)


@pytest.mark.goal("spark.C16", part="topics", broken_by="spark_writes_to_the_first_partition")
def test_rows_go_where_they_say_or_where_their_key_belongs(once):
    once.ask("PUT", "persistent/public/once/parted/partitions", b"3")
    parted = "public/once/parted"
    keys = [b"%d" % number for number in range(20)]
    for part in range(3):
        keep(once, f"parted-partition-{part}")
    other = create(once, "other")
    writing = Publishing(Options(once.options()))
    rows = batch(range(20), key=keys, topic=[parted] * 20, partition=[None] * 20)
    writing.send("keys", 0, 0, publishing_rows(rows))
    rows = batch([100, 101], key=[b"0"] * 2, topic=[parted, other], partition=[2, None])
    writing.send("said", 0, 0, publishing_rows(rows))
    found = {part: once.values(topic=f"{parted}-partition-{part}") for part in range(3)}
    for number, key in enumerate(keys):
        assert b"%03d" % number in found[partition_of_key(key, 3)]
    assert b"100" in found[2]
    assert stored(once, other) == [b"101"]
    assert sum(map(len, found.values())) == 21
    wrong = publishing_rows(batch([1], topic=[parted], partition=[7]))
    with pytest.raises(ConfigError, match="partition 7 of public/once/parted, which has 3"):
        writing.send("wrong", 0, 0, wrong)


def test_keys_go_where_the_java_client_sends_them():
    # "Aa" and "BB" have one hash in Java, 2112; bytes are hashed as their base64 text.
    assert partition_of_key("Aa", 1000) == partition_of_key("BB", 1000) == 112
    assert partition_of_key("", 7) == 0
    assert partition_of_key(b"\0\1", 5) == partition_of_key("AAE=", 5)
    assert partition_of_key("polygenelubricants", 10) == 0, "the smallest of all hashes"


@pytest.mark.goal("spark.C17", part="once", broken_by="spark_shows_rows_before_the_commit")
def test_nothing_is_seen_before_the_commit_and_everything_once_after_it(once, tmp_path):
    topic = create(once, "seen")
    staged = [
        sink(once, tmp_path, task, topic=topic).write(iter([batch(numbers)]))
        for task, numbers in enumerate((range(5), range(5, 8), ()))
    ]
    sink(once, tmp_path, 0, attempt=9, topic=topic).write(iter([batch(range(5))]))
    assert stored(once, topic) == [], "nor of a second attempt at the same task"
    writer = sink(once, tmp_path, topic=topic)
    writer.commit(staged, 0)
    assert sorted(stored(once, topic)) == [b"%03d" % number for number in range(8)]
    writer.commit(staged, 0)
    assert len(stored(once, topic)) == 8, "Spark may commit a batch again"
    assert not list(tmp_path.rglob("*.arrow")), "what is out is not kept"


STEPS = 11
"""Of a commit of two tasks: deciding and writing that down, looking where the rows of each go, then
for each reading and waiting for the answers; ending it, writing that down, forgetting the rows."""


@pytest.mark.goal("spark.C17", part="once", broken_by="spark_numbers_rows_anew")
@pytest.mark.goal("spark.C17", part="once", broken_by="spark_decides_anew_what_is_out")
@pytest.mark.parametrize("step", range(STEPS))
def test_a_commit_killed_at_any_step_stores_each_row_once(once, tmp_path, monkeypatch, step):
    topic = create(once, f"killed-{step}")

    class Killed(BaseException):
        """The process ends here."""

    def stage_all(attempt, batch_id, first, cut=4):
        parts = range(first, first + cut), range(first + cut, first + 8)
        return [
            sink(once, tmp_path, task, attempt, batch_id, topic=topic).write(iter([batch(part)]))
            for task, part in enumerate(parts)
        ]

    calls = [0]

    def dying(plain):
        def call(*arguments, **named):
            calls[0] += 1
            if calls[0] == step + 1:
                raise Killed
            return plain(*arguments, **named)

        return call

    steps = [
        *((Stage, name) for name in ("decide", "_keep", "read", "finish", "forget")),
        (publishing._Sender, "finish"),
    ]
    whole = stage_all(0, 0, 0)
    first = stage_all(1, 1, 8)
    with monkeypatch.context() as patch:
        for owner, name in steps:
            patch.setattr(owner, name, dying(getattr(owner, name)))
        calls[0] = -STEPS
        sink(once, tmp_path, topic=topic).commit(whole, 0)
        assert calls[0] == 0, "a commit has these steps and no others"
        with pytest.raises(Killed):
            sink(once, tmp_path, topic=topic).commit(first, 1)
    sink(once, tmp_path, topic=topic).abort(first, 1)
    if step >= STEPS - 3:
        assert len(stored(once, topic)) == 16, "killed when all is out, and nobody knows it yet"
    # The batch runs again, and its rows are of other tasks, which come the other way round.
    again = list(reversed(stage_all(2, 1, 8, cut=7)))
    sink(once, tmp_path, topic=topic).commit(again, 1)
    sink(once, tmp_path, topic=topic).commit(stage_all(3, 2, 16), 2)
    assert sorted(stored(once, topic)) == [b"%03d" % number for number in range(24)]


@pytest.mark.goal("spark.C17", part="once", broken_by="spark_attempts_have_no_token")
def test_what_was_decided_is_not_written_over_by_the_next_run(once, tmp_path, monkeypatch):
    topic = create(once, "renumbered")

    def stage_all(*parts):
        return [
            sink(once, tmp_path, task, attempt=task, topic=topic).write(iter([batch(part)]))
            for task, part in enumerate(parts)
        ]

    class Killed(BaseException):
        """The process ends here."""

    plain, calls = Publishing.send, []

    def end_at_the_second(self, *arguments):
        # Before it has sent anything: what it sent would be known by its number, right or wrong.
        calls.append(self)
        if len(calls) == 2:
            raise Killed
        return plain(self, *arguments)

    first = stage_all(range(4), range(4, 8))
    with monkeypatch.context() as patch:
        patch.setattr(Publishing, "send", end_at_the_second)
        with pytest.raises(Killed):
            sink(once, tmp_path, topic=topic).commit(first, 0)
    # A new process numbers its attempts from zero, and its tasks have other rows.
    again = stage_all(range(4, 8), range(4))
    sink(once, tmp_path, topic=topic).commit(again, 0)
    assert sorted(stored(once, topic)) == [b"%03d" % number for number in range(8)]


def test_an_attempt_that_failed_is_thrown_away(once, tmp_path):
    topic = create(once, "aborted")
    writer = sink(once, tmp_path, topic=topic)
    staged = writer.write(iter([batch(range(3))]))
    writer.abort([staged, None], 0)
    assert not list(tmp_path.rglob("*.arrow"))
    assert stored(once, topic) == []


@pytest.mark.goal("spark.C18", part="numbers", broken_by="spark_numbers_rows_anew")
@pytest.mark.goal("spark.C18", part="numbers", broken_by="spark_sends_known_rows_again")
def test_a_task_that_is_tried_again_goes_on_behind_what_is_stored(once):
    topic = create(once, "tried")
    writing = Publishing(Options(once.options(topic=topic, guarantee="at_least_once")))
    assert writing.send("q", 0, 0, publishing_rows(batch(range(6)))) == 6
    assert writing.send("q", 0, 0, publishing_rows(batch(range(10)))) == 4
    assert writing.send("q", 0, 1, publishing_rows(batch(range(10, 12)))) == 2
    assert stored(once, topic) == [b"%03d" % number for number in range(12)]


def test_rows_of_any_size_go_out_together_and_in_order(once, monkeypatch):
    monkeypatch.setattr(publishing, "SINK_BATCH_BYTES", 2000)
    monkeypatch.setattr(publishing, "SINK_BATCH_MESSAGES", 7)
    monkeypatch.setattr(publishing, "SINK_GATHERED_BYTES", 3000)
    once.ask("PUT", "persistent/public/once/sizes/partitions", b"3")
    for part in range(3):
        keep(once, f"sizes-partition-{part}")
    sizes = [1, 5000, 10, 10, 1900, 300] + [20] * 60 + [4000]
    values = [b"%03d" % number + bytes(size) for number, size in enumerate(sizes)]
    rows = pa.RecordBatch.from_pydict(
        {"value": values, "partition": [min(number % 5, 2) for number in range(len(values))]},
        schema=_schema(["value", "partition"]),
    )
    writing = Publishing(Options(once.options(topic="public/once/sizes")))
    assert writing.send("sizes", 0, 0, publishing_rows(rows)) == len(values)
    for part in range(3):
        wanted = [value for number, value in enumerate(values) if min(number % 5, 2) == part]
        assert once.values(topic=f"public/once/sizes-partition-{part}") == wanted
    found = once.rows(topic="public/once/sizes-partition-2")
    assert max(row["position"]["batch"] for row in found) == 6


def test_packed_rows_go_out_in_order_with_rows_that_cannot_be_packed(once, monkeypatch):
    monkeypatch.setattr(publishing, "SINK_BATCH_BYTES", 2000)
    monkeypatch.setattr(publishing, "SINK_BATCH_MESSAGES", 7)
    monkeypatch.setattr(publishing, "SINK_GATHERED_BYTES", 3000)
    once.ask("PUT", "persistent/public/once/mixed/partitions", b"3")
    for part in range(3):
        keep(once, f"mixed-partition-{part}")
    writing = Publishing(Options(once.options(topic="public/once/mixed")))
    keys = [None if number % 9 == 0 else b"k%d" % (number % 5) for number in range(100)]
    parts = [
        (batch(range(40), key=keys[:40])),
        (batch(range(40, 50), key=keys[40:50], properties=[[("a", "b")]] * 10)),
        (batch(range(50, 60), key=keys[50:60], topic=[None] * 10, properties=[[]] * 10)),
        batch([]),
        batch([60]),
        (batch(range(61, 100), key=keys[61:])),
    ]
    large = pa.RecordBatch.from_pydict({"value": [b"100" + bytes(5000), b"101"]})
    keys[60] = None
    assert writing.send("mixed", 0, 0, iter([*parts, large])) == 102
    for part in range(3):
        rows = once.rows(topic=f"public/once/mixed-partition-{part}")
        wanted = [
            number
            for number, key in enumerate([*keys, None, None])
            if (number % 3 if key is None else partition_of_key(key, 3)) == part
        ]
        assert [int(row["value"][:3]) for row in rows] == wanted
        assert [row["sequence_id"] for row in rows] == wanted
        assert [row["key"] for row in rows] == [([*keys, None, None])[n] for n in wanted]
        assert max(row["position"]["batch"] for row in rows) == 6
    assert writing.send("mixed", 0, 0, iter([*parts, large])) == 0, "all of them are known"


def test_a_topic_that_keeps_duplicates_is_refused_before_anything_is_sent(once, tmp_path):
    once.fill("doubles", [b"first"])
    writer = sink(once, tmp_path, topic="doubles")
    staged = writer.write(iter([batch(range(3))]))
    with pytest.raises(ConfigError, match="does not remove duplicates from persistent://public/d"):
        writer.commit([staged], 0)
    assert stored(once, "doubles") == [b"first"]


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ("key string", {"topic": "t"}, "no column 'value'"),
        ("value int", {"topic": "t"}, "column 'value' has to be binary or string, not int"),
        ("value string, price int", {"topic": "t"}, "column 'price' cannot be written"),
        ("value string", {}, "no option topic and no column 'topic'"),
        ("value string, topic string", {"topic": "t"}, "which one should count"),
        ("value string", {"topic": "t,u"}, "one topic is wanted, not 2"),
        ("value string", {"topic": "t", "guarantee": "twice"}, "option guarantee: once or"),
        ("value string", {"topic": "t", "compression": "rar"}, "no compression 'rar'"),
        ("value string", {"topic": "t", "start": "latest"}, "option start is for read, stream"),
    ],
)
def test_what_cannot_be_written_is_named(topics, schema, options, words):
    with pytest.raises((InputError, AnabranchError), match=words):
        topics.source(**options).writer(spark_schema(schema), False)


def test_topics_are_not_overwritten_and_streams_need_a_checkpoint(topics):
    schema = spark_schema("value string")
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        topics.source(topic="t").writer(schema, True)
    with pytest.raises(ConfigError, match="checkpointLocation is missing"):
        topics.source(topic="t").streamWriter(schema, False)


def test_a_stage_of_an_unknown_version_is_refused(tmp_path):
    stage = Stage(str(tmp_path), QUERY)
    stage.finish(4)
    stage.finish(3)  # by a driver that was taken for dead, and comes to its end late
    assert stage.is_published(4)
    assert not stage.is_published(5)
    (file,) = tmp_path.rglob("published.json")
    file.write_text(json.dumps({"format": "anabranch-sink", "version": 9, "batch_id": 4}))
    with pytest.raises(AnabranchError, match="of a version not known here"):
        stage.is_published(4)


def test_partitions_are_asked_for_once(topics):
    view = Publishing(Options(topics.options(topic="columns"))).view
    partitions = Partitions(view)
    topics.fill("plainly", [b"x"])
    assert partitions.of("plainly") == partitions.of("plainly")
    assert view.requests == 1
    with pytest.raises(ConfigError, match="does not remove duplicates"):
        check_deduplication(view, partitions.of("plainly"))
