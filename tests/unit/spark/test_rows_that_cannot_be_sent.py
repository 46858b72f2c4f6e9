"""Rows that cannot be sent are found and named before any row beside them is sent."""

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.errors import ConfigError, InputError, InvalidName, NotFound, Unreachable
from anabranch.limits import MESSAGE_BYTES_MAX
from anabranch.testing.servers.ours import anabranch_standalone
from pyspark_anabranch.options import Options
from pyspark_anabranch.staging import Stage
from pyspark_anabranch.writers import (
    HalfWritten,
    Publishing,
    StagedBatchWriter,
    StagedStreamWriter,
    TaskIdentity,
)

pytestmark = pytest.mark.xdist_group("spark")
GOOD = [b"%03d" % number for number in range(6)]
PAIRS = pa.map_(pa.string(), pa.string())
TIMES = pa.timestamp("us", tz="UTC")
NO_TEXT = pa.Array.from_buffers(pa.string(), 6, pa.array([*GOOD[:5], b"\xff"]).buffers())
"""Spark makes text of any bytes."""
PLACES = "persistent://public/default"
BAD_COLUMNS = {
    "time": (
        {"event_time": pa.array([None] * 5 + [datetime(1969, 12, 31, tzinfo=UTC)], TIMES)},
        "row 5 of the task: its event_time, 1969-12-31 .*, is before 1970",
    ),
    "key": ({"key": NO_TEXT}, r"row 5 of the task: its key is no valid text: b'\\xff'"),
    "null property": (
        {"properties": pa.array([[("a", "b")]] * 5 + [[("shop", None)]], PAIRS)},
        "row 5 of the task: its property b'shop' is null",
    ),
    "property": (
        {
            "properties": pa.MapArray.from_arrays(
                pa.array(range(7), pa.int32()), pa.array(["shop"] * 6), NO_TEXT
            )
        },
        "row 5 of the task: a property is no valid text",
    ),
}


def rows(values=GOOD, **columns):
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def job(topics, folder, **options):
    wishes = topics.options(stagingFolder=str(folder), **options)
    return StagedBatchWriter(Options(wishes), "job", lambda name: TaskIdentity(name, 0, 0, 0))


@pytest.fixture(scope="module")
def once(topics):
    """A namespace whose brokers remove duplicates."""
    topics.ask("PUT", "namespaces/public/looked", b"{}")
    topics.ask("POST", "namespaces/public/looked/deduplication", b"true")
    return topics


@pytest.mark.goal("spark.C17", part="rows", broken_by="spark_looks_at_no_rows")
@pytest.mark.parametrize("what", BAD_COLUMNS)
def test_a_task_of_a_job_refuses_a_row_that_cannot_be_sent(topics, tmp_path, what):
    column, words = BAD_COLUMNS[what]
    with pytest.raises(InputError, match=words):
        job(topics, tmp_path, topic="never-made").write(iter([rows(**column)]))


@pytest.mark.goal("spark.C17", part="rows", broken_by="spark_looks_at_no_rows")
@pytest.mark.parametrize("what", BAD_COLUMNS)
def test_of_an_arrow_batch_with_such_a_row_nothing_is_sent_at_once(topics, monkeypatch, what):
    column, words = BAD_COLUMNS[what]
    topic = f"at-once-{what.replace(' ', '-')}"
    topics.fill(topic, [b"before"])
    monkeypatch.setattr("pyspark_anabranch.publishing.SINK_BATCH_MESSAGES", 2)
    writing = Publishing(Options(topics.options(topic=topic, guarantee="at_least_once")))
    with pytest.raises(InputError, match=words.replace("row 5", "row 7")):
        writing.send("job", 0, 0, iter([rows(GOOD[:2]), rows(**column)]))
    assert set(topics.values(topic=topic)) <= {b"before", *GOOD[:2]}
    assert len(topics.values(topic=topic)) <= 3


@pytest.mark.parametrize(
    ("named", "error", "words"),
    [
        ([*["looked-at"] * 5, None], InputError, "row 5 of the task: it names no topic"),
        ([*["looked-at"] * 5, ""], InputError, "row 5 of the task: it names no topic"),
        ([*["looked-at"] * 5, "a//b"], InvalidName, "a row for topic 'a//b': "),
        ([*["looked-at"] * 5, "nowhere"], NotFound, "nowhere"),
    ],
)
def test_rows_that_name_no_topic_are_found_whoever_sends(topics, tmp_path, named, error, words):
    topics.fill("looked-at", [b"before"])
    batch = rows(topic=pa.array(named))
    with pytest.raises(error, match=words):
        job(topics, tmp_path).commit([job(topics, tmp_path).write(iter([batch]))])
    writing = Publishing(Options(topics.options(guarantee="at_least_once")))
    with pytest.raises(error, match=words):
        writing.send("job", 0, 0, iter([batch]))
    assert set(topics.values(topic="looked-at")) == {b"before"}


@pytest.mark.goal("spark.C17", part="rows", broken_by="spark_takes_rows_of_any_size")
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_a_row_that_is_too_large_is_found_before_the_others_are_sent(topics, tmp_path, compression):
    topic = f"large-{compression}"
    topics.fill(topic, [b"before"])
    large = random.Random(4).randbytes(MESSAGE_BYTES_MAX + 1)
    batches = [rows(), rows([b"006", large])]
    writer = job(topics, tmp_path, topic=topic, compression=compression)
    staged = writer.write(iter(batches))
    words = r"row 7 of the task: a message of \d+ bytes is too large; the broker takes at most"
    with pytest.raises(InputError, match=words):
        writer.commit([staged])
    direct = Publishing(Options(topics.options(topic=topic, compression=compression)))
    with pytest.raises(InputError, match=words.replace("7", "1")):
        direct.send("job", 0, 0, iter(batches[1:]))
    assert topics.values(topic=topic) == [b"before"]


def test_what_a_broker_just_takes_is_sent(topics, tmp_path):
    topics.fill("just", [b"before"])
    zeros, room = bytes(MESSAGE_BYTES_MAX + 1), bytes(MESSAGE_BYTES_MAX - 200)
    writer = job(topics, tmp_path, topic="just")
    writer.commit([writer.write(iter([rows([b"000", room])]))])
    packed = job(topics, tmp_path, topic="just", compression="zlib")
    packed.commit([packed.write(iter([rows([zeros])]))])
    assert topics.values(topic="just") == [b"before", b"000", room, zeros]


@pytest.mark.goal("spark.C17", part="rows", broken_by="spark_decides_before_it_looks")
def test_a_stream_goes_on_with_other_rows_after_some_that_cannot_be_sent(once, tmp_path):
    topic = "public/looked/stream"
    once.ask("PUT", f"persistent/{topic}/partitions", b"2")
    place = b'{"ledgerId": -1, "entryId": -1}'
    for part in range(2):
        once.ask("PUT", f"persistent/{topic}-partition-{part}/subscription/keeps", place)

    def sink(attempt=0):
        given = once.options(topic=topic, checkpointLocation=str(tmp_path))
        return StagedStreamWriter(Options(given), lambda: TaskIdentity("q", 0, 0, attempt))

    wrong = sink().write(iter([rows(partition=pa.array([0, 1, 0, 1, 0, 2], pa.int32()))]))
    for _ in range(2):
        with pytest.raises(InputError, match=r"a row for partition 2 of .*, which has 2"):
            sink().commit([wrong], 0)
    sink().abort([wrong], 0)
    assert once.values(topic=topic) == []
    assert Stage(str(tmp_path), "q").decided(0) is None
    right = sink(1).write(iter([rows(partition=pa.array([0, 1] * 3, pa.int32()))]))
    sink(1).commit([right], 0)
    assert sorted(once.values(topic=topic)) == GOOD
    assert not list(Path(tmp_path).rglob("*.arrow"))


def test_values_are_bytes_whatever_spark_calls_them(topics, tmp_path):
    topics.fill("bytes", [b"before"])
    text = pa.RecordBatch.from_arrays([NO_TEXT], ["value"])
    by_row = pa.RecordBatch.from_arrays(
        [NO_TEXT, pa.array([[("a", "b")]] * 6, PAIRS)], ["value", "properties"]
    )
    for batch in (text, by_row):
        writer = job(topics, tmp_path, topic="bytes")
        writer.commit([writer.write(iter([batch]))])
    assert topics.values(topic="bytes") == [b"before", *[*GOOD[:5], b"\xff"] * 2]


@pytest.mark.goal("spark.C16", part="columns", broken_by="spark_keeps_large_offsets")
@pytest.mark.parametrize("guarantee", ["once", "at_least_once"])
def test_columns_with_large_offsets_are_written_as_others_are(topics, tmp_path, guarantee):
    topic = f"offsets-{guarantee.replace('_', '-')}"
    topics.fill(topic, [b"before"])
    text, octets = pa.large_string(), pa.large_binary()
    columns = {"value": pa.array(GOOD, octets), "key": pa.array(["k"] * 6, text)}
    pairs = pa.array([[("a", "b")]] * 6, pa.map_(text, text))
    places = pa.array([topic] * 6, text)
    for number, batch in enumerate(
        (
            pa.RecordBatch.from_pydict(columns),
            pa.RecordBatch.from_pydict(columns | {"properties": pairs, "topic": places}),
        )
    ):
        named = {} if number else {"topic": topic}
        if guarantee == "once":
            writer = job(topics, tmp_path, **named)
            writer.commit([writer.write(iter([batch]))])
        else:
            Publishing(Options(topics.options(**named))).send("job", number, 0, iter([batch]))
    found = topics.rows(topic=topic)[1:]
    assert [row["value"] for row in found] == GOOD * 2
    assert {row["key"] for row in found} == {b"k"}
    assert [dict(row["properties"]) for row in found] == [{}] * 6 + [{"a": "b"}] * 6


def test_rows_that_a_stream_has_kept_and_are_gone_are_named(once, tmp_path):
    topic = "public/looked/gone"
    once.ask("PUT", f"persistent/{topic}")
    given = once.options(topic=topic, checkpointLocation=str(tmp_path))
    sink = StagedStreamWriter(Options(given), lambda: TaskIdentity("q", 0, 3, 0))
    staged = sink.write(iter([rows()]))
    (file,) = tmp_path.rglob("*.arrow")
    file.unlink()
    with pytest.raises(ConfigError, match=r"rows of task 3 are not in .* of the driver: the check"):
        sink.commit([staged], 0)


def test_a_broker_that_is_gone_when_rows_are_published_is_named(topics_on, tmp_path, monkeypatch):
    with anabranch_standalone() as server:
        lost = topics_on(server)
        lost.fill("lost", [b"before"])
        writer = job(lost, tmp_path, topic="lost")
        staged = writer.write(iter([rows()]))
        plain = Publishing.targets

        def gone(self, *arguments):
            found = plain(self, *arguments)
            server.kill()
            return found

        monkeypatch.setattr(Publishing, "targets", gone)
        with pytest.raises(HalfWritten, match="0 of 6 rows are in the topic, and some of task 0"):
            writer.commit([staged])
        with pytest.raises(Unreachable, match="which should be the admin interface"):
            job(lost, tmp_path, topic="lost").commit([staged])
