"""What a stream promises of its past and its future: the same rows again, and how many wait."""

import hashlib
import json
import shutil

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.testing.standalone_in_thread import standalone_in_thread
from pyspark_anabranch.lag import lag_of
from pyspark_anabranch.topic_map import DataLost

pytestmark = pytest.mark.xdist_group("spark")


def numbers(*bounds):
    return [b"%03d" % number for number in range(*bounds)]


def digest(reader, start, end):
    """Of every column of a logged batch, planned by a process that never saw it."""
    sums = hashlib.sha256()
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            for row in batch.to_pylist():
                sums.update(repr(sorted(row.items())).encode())
    return sums.hexdigest()


def logged_batch(topics, topic):
    reader = topics.source(topic=topic, start="earliest").streamReader(None)
    start = reader.initialOffset()
    return start, reader.latestOffset(start, reader.getDefaultReadLimit())


@pytest.mark.goal("spark.C23", part="migration", broken_by="spark_plans_from_memory")
def test_a_logged_batch_is_the_same_after_the_metadata_moved_to_another_store(topics_on, tmp_path):
    first, second = f"embedded:{tmp_path}/first", f"embedded:{tmp_path}/second"
    usual = {
        "web": True, "delete_inactive_topics": False, "ledgers_url": f"embedded:{tmp_path}/ledgers",
    }  # fmt: skip
    with standalone_in_thread(metadata_url=first, **usual) as server:
        topics = topics_on(server)
        topics.fill("moving", numbers(11), compression="zlib")
        topics.roll("moving")
        topics.fill("moving", numbers(11, 20), batching=None)
        start, end = json.loads(json.dumps(logged_batch(topics, "moving")))
        before = digest(topics.source(topic="moving").streamReader(None), start, end)
    (tmp_path / "second").mkdir()
    shutil.copy(tmp_path / "first" / "anabranch.json", tmp_path / "second")
    copied = CliRunner().invoke(
        app, ["metadata", "copy", f"{first}/metadata", f"{second}/metadata"]
    )
    assert copied.exit_code == 0, copied.output
    with standalone_in_thread(metadata_url=second, **usual) as server:
        topics = topics_on(server)
        topics.fill("moving", numbers(20, 30))
        assert digest(topics.source(topic="moving").streamReader(None), start, end) == before
        assert topics.values(topic="moving") == numbers(30)


@pytest.mark.goal("spark.C23", part="trimmed", broken_by="spark_reads_on_after_a_loss")
def test_a_batch_is_the_same_while_what_is_before_it_is_trimmed_and_else_what_is_gone_is_named(
    topics,
):
    for number in range(3):
        topics.fill("rolled", numbers(number * 5, number * 5 + 5))
        topics.roll("rolled")
    ledgers = sorted({row["position"]["ledger"] for row in topics.rows(topic="rolled")})
    _, end = logged_batch(topics, "rolled")
    (name,) = end
    needed = {name: f"{ledgers[1]}:0:0"}
    before = digest(topics.source(topic="rolled").streamReader(None), needed, end)
    # The subscription goes behind the first ledger, which nobody needs any more, and it is trimmed.
    topics.ask(
        "POST",
        "persistent/public/default/rolled/subscription/keeps/resetcursor",
        json.dumps({"ledgerId": ledgers[1], "entryId": 0}).encode(),
    )
    topics.fill("rolled", numbers(15, 20))
    topics.ask("POST", "persistent/public/default/rolled/trim")
    left = {row["position"]["ledger"] for row in topics.rows(topic="rolled")}
    assert ledgers[0] not in left
    assert ledgers[1] in left
    assert digest(topics.source(topic="rolled").streamReader(None), needed, end) == before
    everything = {name: f"{ledgers[0]}:0:0"}
    with pytest.raises(DataLost) as failed:
        topics.source(topic="rolled").streamReader(None).partitions(everything, end)
    assert [str(each) for each in failed.value.lost] == [
        f"{name} from {ledgers[0]}:0:0 up to {ledgers[1]}:0:0"
    ]


@pytest.mark.goal("spark.C24", part="figures", broken_by="spark_counts_entries_as_lag")
def test_what_waits_is_told_in_rows_and_bytes_and_the_broker_says_the_same(topics):
    topics.ask("PUT", "persistent/public/default/waiting/partitions", b"2")
    topics.fill("waiting-partition-0", [each + bytes(500) for each in numbers(100)])
    topics.fill("waiting-partition-1", [each + bytes(500) for each in numbers(100, 130)])
    options = topics.options(
        topic="waiting", subscription="waits", start="earliest", maxRowsPerTrigger="13"
    )
    reader = topics.source(**options).streamReader(None)
    limit = reader.getDefaultReadLimit()
    offset = reader.initialOffset()
    read = dict.fromkeys(offset, 0)
    for _ in range(3):
        end = reader.latestOffset(offset, limit)
        for partition in reader.partitions(offset, end):
            for batch in reader.read(partition):
                for row in batch.to_pylist():
                    read[row["topic"]] += 1
        offset = end
    reader.latestOffset(offset, limit)
    topics.fill("waiting-partition-1", [each + bytes(500) for each in numbers(200, 260)])
    found = lag_of(json.dumps(offset), options)
    assert {each.topic: each.rows for each in found} == {
        name: total - read[name]
        for name, total in (
            ("persistent://public/default/waiting-partition-0", 100),
            ("persistent://public/default/waiting-partition-1", 90),
        )
    }
    for each in found:
        path = each.topic.replace("://", "/")
        stats = json.loads(topics.ask("GET", f"{path}/stats"))["subscriptions"]["waits"]
        assert stats["msgBacklog"] == each.entries
        assert abs(stats["backlogSize"] - each.size_bytes) <= 0.01 * each.size_bytes
    latest = topics.source(topic="waiting", start="latest").streamReader(None).initialOffset()
    assert [each.rows for each in lag_of(latest, options)] == [0, 0]
