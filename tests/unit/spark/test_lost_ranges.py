"""What was deleted before a query read it: named, or left out and listed, and never passed over."""

import json

import pytest

from pyspark_anabranch.places import BEGINNING, Place, Range
from pyspark_anabranch.stream_reader import StreamReader
from pyspark_anabranch.topic_map import DataLost, LedgerSize, TopicMap

pytestmark = pytest.mark.xdist_group("spark")


def numbers(*bounds):
    return [b"%03d" % number for number in range(*bounds)]


def stats(last_confirmed, *ledgers):
    listed = [{"ledgerId": ledger, "entries": count, "size": count} for ledger, count in ledgers]
    return {"lastConfirmedEntry": last_confirmed, "ledgers": listed}


def empty(topics, topic):
    """Delete every entry of a topic, and the subscriptions that would keep them."""
    place = f"persistent/public/default/{topic}"
    found = json.loads(topics.ask("GET", f"{place}/stats"))["subscriptions"]
    for name in found:
        topics.ask("DELETE", f"{place}/subscription/{name}?force=true")
    topics.ask("DELETE", f"{place}/truncate")
    assert json.loads(topics.ask("GET", f"{place}/internalStats"))["numberOfEntries"] == 0


def stream_of(topics, **options):
    reader = topics.source(**options).streamReader(None)
    assert isinstance(reader, StreamReader)
    return reader


def news(reader, offset):
    return json.loads(json.dumps(reader.latestOffset(offset, reader.getDefaultReadLimit())))


def rows(reader, offset, end):
    return [
        row["value"]
        for partition in reader.partitions(offset, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


@pytest.mark.goal("spark.C4", part="emptied", broken_by="spark_forgets_an_empty_ledger")
@pytest.mark.parametrize("last_confirmed", ["3:4", "4:-1"])
def test_a_topic_without_entries_still_says_where_they_ended(last_confirmed):
    """Pulsar goes on to name the last entry there was, we do not."""
    known = TopicMap.of_stats("t", stats(last_confirmed, (4, 0)))
    assert known.start == known.end == Place(4, 0)
    assert known.entries == 0
    assert known.lost(Place(1, 0), Place(3, 5)) == Range("t", Place(1, 0), Place(3, 5))
    assert known.lost(Place(3, 5), known.end) == Range("t", Place(3, 5), Place(4, 0))
    assert known.lost(BEGINNING, Place(3, 5)) == Range("t", BEGINNING, Place(3, 5))
    assert known.lost(BEGINNING, known.end) is None
    assert known.lost(known.end, known.end) is None
    assert known.before(known.end) is None


def test_only_the_last_ledger_may_be_empty():
    known = TopicMap.of_stats("t", stats("3:4", (1, 2), (2, 0), (3, 0), (4, 0)))
    assert known.ledgers == (LedgerSize(1, 2, 2), LedgerSize(3, 5, 0), LedgerSize(4, 0, 0))
    assert known.end == Place(4, 0)
    assert known.before(Place(4, 0)) == (3, 4)
    assert known.spans(known.start, known.end) == known.spans(known.start, Place(3, 5))
    ended = TopicMap.of_stats("t", stats("3:4", (1, 2), (3, 5)))
    assert ended.end == Place(3, 5)
    assert ended.lost(Place(1, 0), Place(3, 7)) == Range("t", Place(3, 5), Place(3, 7))
    assert TopicMap("t", ()).lost(Place(1, 0), Place(3, 7)) == Range("t", Place(1, 0), Place(3, 7))


@pytest.mark.goal("spark.C4", part="emptied", broken_by="spark_reads_on_after_a_loss")
@pytest.mark.goal("spark.C23", part="trimmed", broken_by="spark_reads_on_after_a_loss")
def test_a_logged_batch_of_which_nothing_is_left_is_named(topics):
    topics.fill("emptied", numbers(12))
    reader = stream_of(topics, topic="emptied", start="earliest")
    start = reader.initialOffset()
    end = news(reader, start)
    empty(topics, "emptied")
    again = stream_of(topics, topic="emptied")
    with pytest.raises(DataLost) as failed:
        again.partitions(start, end)
    ((name, first),) = start.items()
    assert [str(each) for each in failed.value.lost] == [f"{name} from {first} up to {end[name]}"]


@pytest.mark.goal("spark.C4", part="emptied", broken_by="spark_forgets_an_empty_ledger")
@pytest.mark.parametrize(
    "limits",
    [{}, {"maxRowsPerTrigger": "5"}, {"maxBytesPerTrigger": "50"}, {"minRowsPerTrigger": "5"}],
)
@pytest.mark.parametrize("begin", ["latest", "earliest"])
def test_what_is_deleted_before_the_first_batch_is_named(topics, tmp_path, begin, limits):
    topic = f"unread-{begin}-{''.join(limits)}"
    topics.ask("PUT", f"persistent/public/default/{topic}")
    reader = stream_of(topics, topic=topic, start=begin, **limits)
    start = reader.initialOffset()
    topics.fill(topic, numbers(7))
    empty(topics, topic)
    end = news(reader, start)
    ((name, first),) = start.items()
    lost = f"{name} from {first} up to {end[name]}"
    with pytest.raises(DataLost, match=lost):
        reader.partitions(start, end)
    folder = tmp_path / "lost"
    more = {"failOnDataLoss": "false", "lostRanges": str(folder), **limits}
    lenient = stream_of(topics, topic=topic, **more)
    assert rows(lenient, start, news(lenient, start)) == []
    (file,) = folder.iterdir()
    assert json.loads(file.read_text()) == {"topic": name, "start": first, "end": end[name]}
    topics.fill(topic, numbers(20, 26))
    assert rows(lenient, end, news(lenient, end)) == numbers(20, 26)[: 5 if "max" in topic else 6]


def test_a_batch_goes_to_the_end_of_an_emptied_topic_and_then_waits(topics):
    topics.fill("rolled-on", numbers(5))
    reader = stream_of(topics, topic="rolled-on", start="earliest", maxRowsPerTrigger="3")
    offset = reader.initialOffset()
    topics.roll("rolled-on")
    read = []
    for _ in range(2):
        end = news(reader, offset)
        read += rows(reader, offset, end)
        offset = end
    assert read == numbers(5)
    assert news(reader, offset) == offset
    empty(topics, "rolled-on")
    topics.fill("rolled-on", numbers(5, 7))
    assert rows(reader, offset, news(reader, offset)) == numbers(5, 7), "nothing was lost"


def test_a_subscription_tells_that_nothing_was_lost_of_an_empty_topic(topics):
    topics.ask("PUT", "persistent/public/default/nothing-yet")
    reader = stream_of(topics, topic="nothing-yet", subscription="reads")
    offset = reader.initialOffset()
    topics.roll("nothing-yet")
    end = news(reader, offset)
    assert end != offset, "the empty ledger has another number by now"
    assert rows(reader, offset, end) == []
    topics.fill("nothing-yet", numbers(4))
    assert rows(reader, end, news(reader, end)) == numbers(4)
