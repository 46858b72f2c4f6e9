"""Tasks within limits of rows and bytes, and what a query went on without."""

import json

import pytest

from anabranch.client import Batching
from anabranch.errors import ConfigError
from pyspark_anabranch.admission import EntrySize, Waiting
from pyspark_anabranch.places import Place
from pyspark_anabranch.task_sizes import parts_of

pytestmark = pytest.mark.xdist_group("spark")


def numbers(*bounds):
    return [b"%03d" % number for number in range(*bounds)]


@pytest.fixture(scope="module")
def skewed(topics):
    """Entries of a hundred messages, and entries of one."""
    topics.fill("skewed", numbers(300), batching=Batching(100, 1 << 20, delay_s=5))
    topics.roll("skewed")
    topics.fill("skewed", numbers(300, 340), batching=None)
    topics.fill("skewed", numbers(340, 500), batching=Batching(100, 1 << 20, delay_s=5))
    return topics


def tasks_of(topics, **options):
    reader = topics.source(topic="skewed", **options).reader(None)
    return [
        [row["value"] for batch in reader.read(each) for row in batch.to_pylist()]
        for each in reader.partitions()
    ]


@pytest.mark.goal("spark.C7", part="rows", broken_by="spark_counts_an_entry_as_a_row")
def test_tasks_have_no_more_rows_than_they_may_and_nearly_the_same(skewed):
    for limit in (30, 77, 499, 500, 1000):
        found = tasks_of(skewed, maxRowsPerTask=str(limit))
        sizes = sorted(map(len, found))
        assert [value for task in found for value in task] == numbers(500)
        assert sizes[-1] <= limit
        assert len(sizes) == -(-500 // limit), "as few as will do"
        assert sizes[-1] <= 1.5 * sizes[len(sizes) // 2]


@pytest.mark.goal("spark.C7", part="rows", broken_by="spark_counts_an_entry_as_a_row")
def test_limits_of_a_part_of_a_topic(skewed):
    places = [
        "{ledger}:{entry}:{batch}".format(**row["position"])
        for row in skewed.rows(topic="skewed", columns="position")
    ]
    found = tasks_of(skewed, maxRowsPerTask="20", start=places[17], end=places[233])
    assert [value for task in found for value in task] == numbers(17, 233)
    assert [len(task) for task in found] == [20] * 10 + [16]
    found = tasks_of(skewed, maxRowsPerTask="50", maxEntriesPerTask="1")
    assert [value for task in found for value in task] == numbers(500)


def test_tasks_have_no_more_bytes_than_they_may(skewed):
    found = tasks_of(skewed, maxBytesPerTask="1")
    assert [value for task in found for value in task] == numbers(500)
    assert len(found) == 45, "every entry goes alone"
    whole = Waiting("t", Place(1, 0), [EntrySize(1, each, 10, 100) for each in range(10)], 10)
    assert list(parts_of(whole, Place(1, 10), None, 350)) == [
        (Place(1, 0), Place(1, 3)), (Place(1, 3), Place(1, 6)), (Place(1, 6), Place(1, 9)),
        (Place(1, 9), Place(1, 10)),
    ]  # fmt: skip
    assert next(parts_of(whole, Place(1, 2), 15, 1000)) == (Place(1, 0), Place(1, 1, 5))
    assert list(parts_of(Waiting("t", Place(1, 0), [], 0), Place(1, 0), 5, 5)) == []


@pytest.mark.goal("spark.C4", part="listed", broken_by="spark_lists_no_losses")
def test_what_a_query_went_on_without_is_a_table(topics, tmp_path):
    for part in ("lossy-a", "lossy-b"):
        for number in range(3):
            topics.fill(part, numbers(number * 5, number * 5 + 5))
            topics.roll(part)
    rows = topics.rows(topics="lossy-a,lossy-b", columns="topic,position")
    starts = {}
    for row in rows:
        starts.setdefault(row["topic"], "{ledger}:{entry}:{batch}".format(**row["position"]))
    for part in ("lossy-a", "lossy-b"):
        topics.ask("DELETE", f"persistent/public/default/{part}/subscription/keeps?force=true")
        topics.fill(part, [b"end"])
        topics.ask("POST", f"persistent/public/default/{part}/trim")
    wishes = {
        "topics": "lossy-a,lossy-b",
        "start": json.dumps(starts),
        "failOnDataLoss": "false",
        "lostRanges": str(tmp_path / "lost"),
    }
    left = topics.rows(**wishes)
    assert topics.rows(**wishes) == left, "planned again, the table is the same"
    first = {}
    for row in left:
        first.setdefault(row["topic"], row["position"]["ledger"])
    (file,) = (tmp_path / "lost").iterdir()
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"topic": topic, "start": starts[topic], "end": f"{first[topic]}:0:0"}
        for topic in sorted(starts)
    ]
    topics.rows(
        topic="skewed" if "skewed" in topics.sent else "lossy-a",
        failOnDataLoss="false",
        lostRanges=str(tmp_path / "none"),
    )
    assert not (tmp_path / "none").exists(), "nothing is listed if nothing is lost"
    with pytest.raises(ConfigError, match="lostRanges is of no use unless failOnDataLoss is false"):
        topics.rows(topic="lossy-a", lostRanges="somewhere")
