"""Topics read as streams, in the order in which Spark calls: offsets, limits, what is done with."""

import json
import threading

import pytest

from anabranch.client import Batching
from anabranch.errors import ConfigError
from pyspark_anabranch.admission import EntrySize, Waiting, rows_in, shares, take
from pyspark_anabranch.places import Place
from pyspark_anabranch.stream_reader import StreamReader
from pyspark_anabranch.topic_map import DataLost

pytestmark = pytest.mark.xdist_group("spark")


class Query:
    """A query as Spark drives it: the batches it has done, and the log of its offsets."""

    def __init__(self, topics, resume=None, **options):
        self.reader = topics.source(**options).streamReader(None)
        assert isinstance(self.reader, StreamReader)
        self.limit = self.reader.getDefaultReadLimit()
        # What Spark keeps between two runs of a query is JSON.
        self.offset = json.loads(json.dumps(resume or self.reader.initialOffset()))
        self.rows: list[dict] = []

    @property
    def values(self):
        return [row["value"] for row in self.rows]

    def next_offset(self):
        return json.loads(json.dumps(self.reader.latestOffset(self.offset, self.limit)))

    def read(self, end):
        rows = [
            row
            for partition in self.reader.partitions(self.offset, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]
        self.rows += rows
        self.offset = end
        return rows

    def batch(self):
        return self.read(self.next_offset())


def numbers(*bounds):
    return [b"%03d" % number for number in range(*bounds)]


def test_a_stream_begins_at_the_end_and_goes_on_where_it_was(topics):
    topics.fill("going", numbers(7))
    query = Query(topics, topic="going")
    assert query.batch() == []
    topics.fill("going", numbers(7, 20))
    assert [row["value"] for row in query.batch()] == numbers(7, 20)
    topics.roll("going")
    topics.fill("going", numbers(20, 24))
    later = Query(topics, resume=query.offset, topic="going")
    later.batch()
    assert later.values == numbers(20, 24)


@pytest.mark.goal("spark.C3", part="logged batch", broken_by="spark_plans_a_restart_anew")
@pytest.mark.goal("spark.C23", part="broker", broken_by="spark_plans_from_memory")
def test_a_logged_batch_is_read_again_from_its_offsets_alone(topics):
    topics.fill("logged", numbers(11))
    query = Query(topics, topic="logged", start="earliest")
    begin, end = query.offset, query.next_offset()
    first = query.read(end)
    topics.roll("logged")
    topics.fill("logged", numbers(11, 30))
    again = Query(topics, resume=begin, topic="logged")
    assert again.read(end) == first
    assert again.values == numbers(11)


@pytest.mark.goal("spark.C8", part="stream", broken_by="spark_moves_the_frozen_target")
def test_available_now_ends_at_the_target_while_producers_go_on(topics):
    topics.ask("PUT", "persistent/public/default/frozen/partitions", b"2")
    topics.fill("frozen-partition-0", numbers(9))
    topics.fill("frozen-partition-1", numbers(100, 104))
    query = Query(topics, topic="frozen", maxRowsPerTrigger="5", start="earliest")
    query.reader.prepareForTriggerAvailableNow()
    target = query.reader._target
    topics.ask("POST", "persistent/public/default/frozen/partitions", b"3")
    batches = 0
    while (end := query.next_offset()) != query.offset:
        query.read(end)
        batches += 1
        topics.fill(f"frozen-partition-{batches % 3}", numbers(500, 503))
        assert batches < 10
    assert batches >= 3
    assert sorted(query.values) == numbers(9) + numbers(100, 104)
    assert query.offset == {name: str(place) for name, place in sorted(target.items())}


@pytest.mark.goal("spark.C5", part="rows", broken_by="spark_takes_whole_entries")
@pytest.mark.parametrize(("rows", "size"), [("3", None), ("7", None), (None, "200"), ("4", "200")])
def test_no_batch_is_larger_than_its_limits(topics, rows, size):
    if "limited" not in topics.sent:
        topics.fill("limited", numbers(23))
    limits = {"maxRowsPerTrigger": rows, "maxBytesPerTrigger": size}
    given = {name: text for name, text in limits.items() if text}
    query = Query(topics, topic="limited", start="earliest", **given)
    sizes = []
    while query.values != numbers(23):
        sizes.append(len(query.batch()))
        assert sizes[-1] > 0
    if rows:
        assert max(sizes) <= int(rows)
    if size:
        assert max(sizes) <= 5, "an entry of five messages has more than half of the bytes"
    assert sum(sizes) == 23


@pytest.mark.goal("spark.C5", part="least", broken_by="spark_never_puts_off")
def test_a_batch_is_put_off_until_it_is_large_enough_or_late(topics, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("pyspark_anabranch.stream_reader._now_s", lambda: clock[0])
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: None)
    topics.fill("late", numbers(3))
    options = {"minRowsPerTrigger": "10", "maxTriggerDelay": "60s", "start": "earliest"}
    query = Query(topics, topic="late", **options)
    assert query.next_offset() == query.offset
    clock[0] = 59
    assert query.next_offset() == query.offset
    clock[0] = 61
    query.batch()
    assert query.values == numbers(3)
    topics.fill("late", numbers(3, 20))
    query.batch()
    assert query.values == numbers(20), "enough at once"


@pytest.mark.goal("spark.C9", part="stream", broken_by="spark_asks_without_pause")
def test_an_idle_query_asks_less_than_five_times_a_second(topics, monkeypatch):
    topics.fill("idle", numbers(3))
    query = Query(topics, topic="idle", subscription="idler")
    query.batch()
    waited = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: waited.append(timeout))
    query.reader._view.requests = 0
    for _ in range(20):
        query.next_offset()
    assert query.reader._view.requests <= 5 * sum(waited)


@pytest.mark.goal("spark.C10", part="stream", broken_by="spark_waits_for_the_commit")
def test_a_finished_batch_moves_the_subscription_without_more_traffic(topics):
    topics.fill("followed", numbers(12))
    query = Query(topics, topic="followed", subscription="follows", start="earliest")
    stats = "persistent/public/default/followed/stats"

    def backlog():
        return json.loads(topics.ask("GET", stats))["subscriptions"]["follows"]["msgBacklog"]

    assert backlog() > 0
    query.batch()
    assert backlog() > 0, "the batch is not finished before Spark asks for the next"
    query.next_offset()
    assert backlog() == 0


@pytest.mark.goal("spark.C4", part="stream", broken_by="spark_reads_on_after_a_loss")
def test_ranges_deleted_under_a_query_are_named_and_nothing_else(topics):
    for number in range(4):
        topics.fill("shrinking", numbers(number * 5, number * 5 + 5))
        topics.roll("shrinking")
    query = Query(topics, topic="shrinking", start="earliest")
    end = query.next_offset()
    ledgers = [row["position"]["ledger"] for row in topics.rows(topic="shrinking")]
    topics.ask("DELETE", "persistent/public/default/shrinking/subscription/keeps?force=true")
    topics.fill("shrinking", [b"kept"])
    topics.ask("POST", "persistent/public/default/shrinking/trim")
    left = topics.rows(topic="shrinking")[0]["position"]["ledger"]
    assert left > ledgers[14], "three ledgers or more are gone"
    name = "persistent://public/default/shrinking"
    until = min(Place(left, 0), Place.parse(end[name]))
    with pytest.raises(DataLost) as failed:
        query.reader.partitions(query.offset, end)
    assert [str(lost) for lost in failed.value.lost] == [
        f"{name} from {ledgers[0]}:0:0 up to {until}"
    ]


@pytest.mark.goal("spark.C4", part="stream", broken_by="spark_takes_the_end_of_a_ledger_for_a_loss")
def test_the_end_of_a_ledger_that_was_read_and_deleted_is_no_loss(topics):
    topics.fill("consumed", numbers(5))
    topics.ask("DELETE", "persistent/public/default/consumed/subscription/keeps?force=true")
    query = Query(topics, topic="consumed", subscription="reads", start="earliest")
    query.batch()
    query.next_offset()
    topics.roll("consumed")
    topics.fill("consumed", numbers(5, 9))
    topics.ask("DELETE", "persistent/public/default/consumed/subscription/keeps?force=true")
    topics.ask("POST", "persistent/public/default/consumed/trim")
    first = topics.rows(topic="consumed")[0]
    assert first["value"] == b"005", "the ledger that was read is gone"
    query.batch()
    assert query.values == numbers(9)


@pytest.mark.goal("spark.C24", part="offsets", broken_by="spark_reports_what_it_read")
def test_how_far_topics_go_is_reported_beyond_the_batch(topics):
    topics.fill("lagging", numbers(20))
    query = Query(topics, topic="lagging", maxRowsPerTrigger="5", start="earliest")
    end = query.next_offset()
    assert query.reader.reportLatestOffset() != end
    (seen,) = query.reader.reportLatestOffset().values()
    assert Place.parse(seen) > Place.parse(next(iter(end.values())))
    assert [row["value"] for row in topics.rows(topic="lagging", end=seen)] == numbers(20)


@pytest.mark.goal("spark.C6", part="shares", broken_by="spark_starves_the_small")
def test_everybody_who_waits_gets_something():
    assert shares([1, 1000], 1000) == [1, 999]
    assert shares([500, 500], 10) == [5, 5]
    assert shares([0, 7], 3) == [0, 3]
    assert shares([1, 1, 1], 2) == [1, 1, 1], "not even one for each"
    small = Waiting("small", Place(1, 0), [EntrySize(1, 0, 1, 10)], 1)
    large = Waiting("large", Place(2, 0), [EntrySize(2, each, 1, 10) for each in range(1000)], 1000)
    assert take([small, large], 1000, None) == {"small": Place(1, 1), "large": Place(2, 999)}
    assert take([small, large], None, 100) == {"small": Place(1, 1), "large": Place(2, 9)}
    assert rows_in([small, large]) == 1001


def test_a_batch_that_begins_within_an_entry_is_as_large_as_it_may_be(topics):
    topics.fill("within", numbers(20), batching=Batching(messages_max=10, delay_s=5))
    query = Query(topics, topic="within", start="earliest", maxRowsPerTrigger="8")
    assert [len(query.batch()) for _ in range(3)] == [8, 8, 4]
    assert query.values == numbers(20)


def test_what_is_little_is_read_by_one_task_and_else_each_topic_by_its_own(topics):
    topics.ask("PUT", "persistent/public/default/little/partitions", b"3")
    for part in range(3):
        topics.fill(f"little-partition-{part}", [b"%d" % part] * 4)
    read = [b"0"] * 4 + [b"1"] * 4 + [b"2"] * 4
    for options, tasks in (
        ({}, 1),
        ({"maxEntriesPerTask": "2"}, 2),
        ({"maxRowsPerTask": "100"}, 3),
    ):
        query = Query(topics, topic="little", start="earliest", **options)
        end = query.next_offset()
        assert len(query.reader.partitions(query.offset, end)) == tasks
        assert [row["value"] for row in query.read(end)] == read
    for part in (1, 2):
        topics.fill(f"little-partition-{part}", [bytes(600_000)])
    query = Query(topics, topic="little", start="earliest")
    found = query.reader.partitions(query.offset, query.next_offset())
    assert len(found) == 2, "a megabyte is enough for a task"


def test_an_entry_above_the_limit_goes_alone_and_a_cut_one_goes_on():
    whole = [EntrySize(1, 0, 10, 500), EntrySize(1, 1, 10, 500)]
    assert take([Waiting("t", Place(1, 0), whole, 2)], None, 100) == {"t": Place(1, 1)}
    assert take([Waiting("t", Place(1, 0, 8), whole, 2)], 5, None) == {"t": Place(1, 1, 3)}


def test_options_of_other_uses_are_refused(topics):
    with pytest.raises(ConfigError, match="option end is for read, not for stream"):
        topics.source(topic="going", end="latest").streamReader(None)
    with pytest.raises(ConfigError, match="option maxRowsPerTrigger is for stream, not for read"):
        topics.source(topic="going", maxRowsPerTrigger="1").reader(None)
