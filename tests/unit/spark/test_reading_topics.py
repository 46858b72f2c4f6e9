"""Topics read as tables through the broker: which rows, which columns, which errors."""

import asyncio
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from anabranch.broker.key_hashes import hash_of_key
from anabranch.client import Client
from anabranch.errors import ConfigError, InputError, InvalidName, NotFound, Unreachable
from anabranch.testing.servers.ours import anabranch_standalone
from anabranch.wire.compression import COMPRESSIONS
from pyspark_anabranch.entry_feed import EntryFeed, MissingEntry
from pyspark_anabranch.entry_rows import DamagedEntry
from pyspark_anabranch.row_columns import COLUMNS
from pyspark_anabranch.topic_map import DataLost

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def read_topics(topics):
    """A plain topic of three ledgers, and one of three partitions."""
    for number in range(3):
        topics.fill("plain", [b"%03d" % each for each in range(number * 12, number * 12 + 12)])
        topics.roll("plain")
    topics.ask("PUT", "persistent/public/default/parted/partitions", b"3")
    for number in range(3):
        topics.fill(f"parted-partition-{number}", [b"%03d" % (number * 100 + i) for i in range(7)])
    return topics


@pytest.mark.goal("spark.C1", part="broker", broken_by="spark_forgets_a_partition")
def test_each_way_to_name_topics_gives_exactly_their_rows(read_topics):
    plain = [b"%03d" % number for number in range(36)]
    parted = [b"%03d" % (number * 100 + i) for number in range(3) for i in range(7)]
    assert read_topics.values(topic="plain") == plain
    assert read_topics.values(topic="parted") == parted
    assert read_topics.values(topic="parted-partition-1") == parted[7:14]
    assert read_topics.values(topics="plain, parted") == plain + parted
    found = read_topics.values(topicsPattern="persistent://public/default/p(lain|arted)")
    assert sorted(found) == sorted(plain + parted)


@pytest.mark.goal("spark.C1", part="broker", broken_by="spark_takes_the_first_way")
def test_two_ways_to_name_topics_are_refused(read_topics):
    with pytest.raises(ConfigError, match=r"exactly one of .*, not topic and topicsPattern"):
        read_topics.values(topic="plain", topicsPattern="persistent://public/default/.*")
    with pytest.raises(ConfigError, match=r"exactly one of .*, not none"):
        read_topics.values()


@pytest.mark.goal("spark.C13", part="broker", broken_by="spark_hashes_without_the_last_word")
def test_every_column_says_what_was_published(topics):
    async def publish():
        async with Client(topics.server.service_url) as client:
            consumer = await client.consumer("columns", "keeps", initial_position="earliest")
            await consumer.close()
            producer = await client.producer("columns", name="speaker", batching=None)
            first = await producer.send(
                b"one",
                key="a key",
                properties={"a": "1", "b": "2"},
                event_time_ms=1_700_000_000_123,
            )
            second = await producer.send(None, key=b"\xff\0 bytes", sequence_id=41)
            third = await producer.send(b"")
            return first, second, third

    ids = asyncio.run(publish())
    rows = topics.rows(topic="columns")
    assert [list(row) for row in rows] == [[column.name for column in COLUMNS]] * 3
    assert [row["key"] for row in rows] == [b"a key", b"\xff\0 bytes", None]
    assert [row["value"] for row in rows] == [b"one", None, b""]
    assert {row["topic"] for row in rows} == {"persistent://public/default/columns"}
    assert {row["partition"] for row in rows} == {-1}
    assert [row["position"] for row in rows] == [
        {"ledger": each.ledger_id, "entry": each.entry_id, "batch": -1} for each in ids
    ]
    assert [row["sequence_id"] for row in rows] == [0, 41, 42]
    assert {row["producer"] for row in rows} == {"speaker"}
    age = datetime.now(UTC) - rows[0]["publish_time"]
    assert 0 <= age.total_seconds() < 100
    event = datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert [row["event_time"] for row in rows] == [event, None, None]
    assert [dict(row["properties"]) for row in rows] == [{"a": "1", "b": "2"}, {}, {}]
    assert [row["key_hash"] for row in rows] == [
        hash_of_key(b"a key"), hash_of_key(b"\xff\0 bytes"), None
    ]  # fmt: skip
    assert {row["schema_version"] for row in rows} == {None}


@pytest.mark.goal("spark.C15", part="broker", broken_by="spark_reads_packed_as_it_is")
def test_every_compression_batched_or_not_gives_the_same_bytes(topics):
    values = [bytes([index]) * (index * 97 % 400) for index in range(23)]
    for compression in COMPRESSIONS:
        topics.fill("packed", values, compression=compression)
        topics.fill("packed", values, compression=compression, batching=None)
    assert topics.values(topic="packed") == values * 2 * len(COMPRESSIONS)


@pytest.mark.goal("spark.C7", part="entries", broken_by="spark_splits_with_a_gap")
def test_a_partition_is_split_over_tasks_of_nearly_equal_size(read_topics):
    reader = read_topics.source(topic="plain", maxEntriesPerTask="2").reader(None)
    tasks = [task for partition in reader.partitions() for task in partition.tasks]
    sizes = [sum(span.entries for span in task.spans) for task in tasks]
    assert sum(sizes) == 9  # three ledgers of 5, 5 and 2 messages
    assert max(sizes) <= 2
    assert max(sizes) <= 1.5 * sorted(sizes)[len(sizes) // 2]
    assert read_topics.values(topic="plain", maxEntriesPerTask="2") == [
        b"%03d" % number for number in range(36)
    ]


@pytest.mark.goal("spark.C11", part="columns", broken_by="spark_ignores_the_choice_of_columns")
def test_chosen_columns_come_alone_and_in_order(read_topics):
    rows = read_topics.rows(topic="plain", columns="position, key")
    assert [list(row) for row in rows[:2]] == [["position", "key"]] * 2
    assert read_topics.source(topic="plain", columns="key").schema() == "key binary"
    with pytest.raises(ConfigError, match="option columns: no column 'offset'; there are key, val"):
        read_topics.rows(topic="plain", columns="offset")


@pytest.mark.goal("spark.C11", part="payload", broken_by="spark_ignores_the_choice_of_columns")
def test_payloads_that_nobody_wants_do_not_leave_the_task(topics):
    topics.fill("heavy", [b"%03d" % number + bytes(20_000) for number in range(40)])

    def moved(**options):
        reader = topics.source(topic="heavy", **options).reader(None)
        sink = pa.BufferOutputStream()
        for partition in reader.partitions():
            for batch in reader.read(partition):
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
        return len(sink.getvalue())

    assert moved() > 800_000
    assert moved(columns="key,position,publish_time,key_hash") < 8_000


def test_ranges_by_place_by_time_and_by_topic(read_topics):
    rows = read_topics.rows(topic="plain")
    places = ["{ledger}:{entry}:{batch}".format(**row["position"]) for row in rows]
    values = [row["value"] for row in rows]
    assert read_topics.values(topic="plain", start=places[7], end=places[33]) == values[7:33]
    assert read_topics.values(topic="plain", start=places[7], end=places[7]) == []
    assert read_topics.values(topic="plain", start="latest") == []
    name = "persistent://public/default/plain"
    assert read_topics.values(topic="plain", start=json.dumps({name: places[20]})) == values[20:]
    began = rows[12]["publish_time"]
    first = next(index for index, row in enumerate(rows) if row["publish_time"] >= began)
    assert read_topics.values(topic="plain", start=began.isoformat()) == values[first:]
    at_ms = str(int(began.timestamp() * 1000))
    assert read_topics.values(topic="plain", end=json.dumps({name: at_ms})) == values[:first]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"topic": "plain", "start": "999:0"}, InputError, "never had a message at 999:0:0"),
        ({"topic": "plain", "start": "yesterday"}, ConfigError, "option start: .*'yesterday'"),
        ({"topic": "plain", "start": '{"other": "1:0"}'}, InputError, "names .*/other, which is"),
        ({"topic": "parted", "start": "1:0"}, InputError, "one position for 3 topics"),
        ({"topic": "plain", "colums": "key"}, ConfigError, "'colums'; did you mean columns"),
        ({"topic": "plain", "maxEntriesPerTask": "0"}, ConfigError, "maxEntriesPerTask: a positi"),
        ({"topic": "nowhere"}, NotFound, "nowhere"),
        ({"topic": "a//b"}, ConfigError, "option topic"),
        ({"topic": "plain", "serviceUrl": ""}, ConfigError, "serviceUrl is missing"),
        ({"topic": "plain", "adminUrl": "http://127.0.0.1:1"}, Unreachable, "option adminUrl"),
    ],
)  # fmt: skip
def test_bad_options_are_named(read_topics, options, error, words):
    with pytest.raises((error, InvalidName), match=words):
        read_topics.rows(**options)


@pytest.mark.goal("spark.C28", part="broker", broken_by="spark_skips_the_checksum")
def test_a_changed_byte_ends_the_task_with_its_place(read_topics, monkeypatch):
    first = read_topics.rows(topic="plain")[0]["position"]
    plain = EntryFeed.on_message

    def spoil(self, message):
        if message.entry_id == 1:
            changed = bytearray(message.entry)
            changed[-1] ^= 1
            message = message._replace(entry=bytes(changed))
        plain(self, message)

    monkeypatch.setattr(EntryFeed, "on_message", spoil)
    with pytest.raises(DamagedEntry, match=f"entry {first['ledger']}:1 cannot be read: its checks"):
        read_topics.rows(topic="plain")


@pytest.mark.goal("spark.C28", part="broker", broken_by="spark_overlooks_a_missing_entry")
def test_a_missing_entry_ends_the_task_with_its_place(read_topics, monkeypatch):
    first = read_topics.rows(topic="plain")[0]["position"]
    plain = EntryFeed.on_message

    def leave_out(self, message):
        if (message.ledger_id, message.entry_id) != (first["ledger"], 1):
            plain(self, message)

    monkeypatch.setattr(EntryFeed, "on_message", leave_out)
    with pytest.raises(MissingEntry, match=f"entry {first['ledger']}:1 has to come next"):
        read_topics.rows(topic="plain", readTimeout="5s")


def test_a_broker_that_is_gone_in_the_middle_of_a_task_is_named(topics_on):
    with anabranch_standalone() as server:
        cut = topics_on(server)
        # More than a task holds at a time.
        cut.fill("cut", [bytes(100_000)] * 300)
        reader = cut.source(topic="cut", readTimeout="1s").reader(None)
        (partition,) = reader.partitions()
        batches = reader.read(partition)
        next(batches)
        server.kill()
        with pytest.raises(MissingEntry, match=r"came for 1 s; the next entry has to be \d+:\d+"):
            list(batches)


@pytest.mark.goal("spark.C4", part="batch", broken_by="spark_reads_on_after_a_loss")
def test_what_was_deleted_is_named_or_left_out(topics):
    for number in range(4):
        topics.fill("trimmed", [b"%03d" % each for each in range(number * 5, number * 5 + 5)])
        topics.roll("trimmed")
    start = topics.rows(topic="trimmed")[2]["position"]
    topics.ask("DELETE", "persistent/public/default/trimmed/subscription/keeps?force=true")
    topics.fill("trimmed", [b"end"])
    where = "{ledger}:{entry}:{batch}".format(**start)
    topics.ask("POST", "persistent/public/default/trimmed/trim")
    left = topics.rows(topic="trimmed")
    assert len(left) < 21, "something was trimmed"
    first = left[0]["position"]
    lost = f"trimmed from {where} up to {first['ledger']}:0:0"
    with pytest.raises(DataLost, match=f"deleted: persistent://public/default/{lost}\\. Set"):
        topics.rows(topic="trimmed", start=where)
    assert topics.rows(topic="trimmed", start=where, failOnDataLoss="false") == left


def test_a_token_goes_to_brokers_and_to_the_admin_interface_and_is_not_shown(topics, monkeypatch):
    shown = []
    plain = Client.__init__

    def watched(self, *arguments, credentials=None, **named):
        shown.append(credentials.data() if credentials else None)
        plain(self, *arguments, credentials=credentials, **named)

    monkeypatch.setattr(Client, "__init__", watched)
    topics.fill("told", [b"x"])
    shown.clear()
    assert topics.values(topic="told", authToken="abc") == [b"x"]
    assert topics.values(topic="told") == [b"x"]
    assert shown == [b"abc", None]
    access = topics.source(topic="told", authToken="abc").reader(None)._options.access
    assert access.view()._token == "abc"
    assert "abc" not in repr(access)
