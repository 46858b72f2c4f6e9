"""Rows of Spark and messages of the SDK are the same, whatever entries hold and ranges cut."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.broker.key_hashes import hash_of_key
from anabranch.client.packing import Outgoing, Packer, unpack
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire import Message, batch_part, build_entry
from anabranch.wire.compression import COMPRESSIONS, compression_number
from pyspark_anabranch.entry_rows import DamagedEntry, StoredEntry, rows_of
from pyspark_anabranch.key_hashes import key_hashes
from pyspark_anabranch.places import Place
from pyspark_anabranch.planning import Task
from pyspark_anabranch.row_columns import COLUMNS, COLUMNS_BY_NAME, Origin, record_batch
from pyspark_anabranch.topic_map import LedgerSize, TopicMap, split

ORIGIN = Origin("persistent://public/default/t", -1)
numbers = st.integers(0, 2**63 - 1)
messages = st.builds(
    Outgoing,
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.text(max_size=5) | st.binary(max_size=200),
    ordering_key=st.none() | st.binary(max_size=3),
    properties=st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    event_time_ms=st.none() | st.integers(1, 2**40),
    sequence_id=numbers,
    deliver_at_ms=st.none() | numbers,
)
entries = st.tuples(
    st.sampled_from(COMPRESSIONS), st.lists(messages, min_size=1, max_size=12), st.booleans()
)


def packed(compression, contents, is_batch):
    packer = Packer(compression_number(compression))
    packer.producer_name = "sender"
    if is_batch:
        return packer.batch(contents, 1_700_000_000_000)
    return packer.single(contents[0], 1_700_000_000_000)


def expected(entry_id, entry):
    delivered = Message(1, 7, entry_id, -1, 0, None, None, entry)
    for message in unpack(delivered, ORIGIN.topic):
        yield (
            message.key_bytes, None if message.is_null else message.value,
            (7, entry_id, message.id.batch_index), message.sequence_id, message.event_time_ms,
            message.properties, message.key_bytes and hash_of_key(message.key_bytes),
        )  # fmt: skip


def found(entries):
    rows = record_batch(rows_of(entries), COLUMNS, ORIGIN)
    return [
        (
            row["key"], row["value"], tuple(row["position"].values()), row["sequence_id"],
            row["event_time"] and round(row["event_time"].timestamp() * 1000),
            dict(row["properties"]), row["key"] and row["key_hash"],
        )
        for row in rows.to_pylist()
    ]  # fmt: skip


@given(st.lists(entries, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_rows_are_the_messages_of_the_sdk(drawn):
    contents = [packed(*each) for each in drawn]
    wanted = [row for index, entry in enumerate(contents) for row in expected(index, entry)]
    assert found([StoredEntry(7, index, each) for index, each in enumerate(contents)]) == wanted


@pytest.mark.broken_by("spark_trusts_even_sizes")
def test_messages_that_only_seem_to_have_one_size_are_told_apart():
    # Of 20 and 40 bytes in turn: after 30, in the longer one, stands what begins a message.
    inner = pb.SingleMessageMetadata(payload_size=14).SerializeToString()
    head = len(inner).to_bytes(4, "big") + inner
    values = [bytes(14), bytes(4) + head + bytes(24)] * 4
    parts = [batch_part(pb.SingleMessageMetadata(payload_size=len(v)), v) for v in values]
    whole = b"".join(parts)
    metadata = pb.MessageMetadata(
        producer_name="sender", sequence_id=3, publish_time=1, num_messages_in_batch=len(parts)
    )
    assert whole[30:36] == head
    rows = record_batch(
        rows_of([StoredEntry(7, 0, build_entry(metadata, whole))]), COLUMNS, ORIGIN
    ).to_pylist()
    assert [row["value"] for row in rows] == values
    assert [row["sequence_id"] for row in rows] == list(range(3, 3 + len(parts)))


@given(st.binary(max_size=120), st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_a_batch_of_any_bytes_is_rows_or_a_named_place(payload, count):
    metadata = pb.MessageMetadata(
        producer_name="sender", sequence_id=0, publish_time=1, num_messages_in_batch=count
    )
    problem = ""
    try:
        assert len(rows_of([StoredEntry(7, 5, build_entry(metadata, payload))]).wanted) == count
    except DamagedEntry as error:
        problem = str(error)
    assert not problem or "7:5" in problem


@given(st.lists(st.binary(max_size=40), max_size=30))
@settings(max_examples=100, deadline=None)
def test_hashes_of_keys_are_those_of_the_broker(keys):
    sizes = np.array([len(key) for key in keys], np.int64)
    starts = np.cumsum(sizes) - sizes
    view = np.frombuffer(b"".join(keys), np.uint8)
    assert key_hashes(view, starts, sizes).tolist() == [hash_of_key(key) for key in keys]


@pytest.mark.goal("spark.C2", part="ranges", broken_by="spark_ends_behind_the_entry")
def test_ten_thousand_random_ranges_are_slices_of_the_whole():
    draw = random.Random(20)
    stored, places, ledgers = {}, [], []
    for ledger_id in (3, 4, 9):
        count = draw.randrange(1, 4)
        for entry_id in range(count):
            size = draw.choice((0, 1, 2, 5))
            contents = [
                Outgoing(b"%d" % index, None, None, None, None, index) for index in range(size or 1)
            ]
            stored[ledger_id, entry_id] = packed("none", contents, size > 0)
            places += [Place(ledger_id, entry_id, index) for index in range(size or 1)]
        ledgers.append(LedgerSize(ledger_id, count, 100 * count))
    known = TopicMap(ORIGIN.topic, tuple(ledgers))
    columns = [COLUMNS_BY_NAME["position"]]
    ends = [*places, known.end]
    for _ in range(10_000):
        start, end = sorted(draw.choices(ends, k=2))
        rows = []
        for spans in split(known.spans(start, end), draw.choice((1, 100, 100))):
            task = Task.of(ORIGIN.topic, spans, start, end)
            wanted = [
                task.part_of(StoredEntry(span.ledger_id, each, stored[span.ledger_id, each]))
                for span in task.spans
                for each in range(span.first, span.until)
            ]
            rows += record_batch(rows_of(wanted), columns, ORIGIN).column(0).to_pylist()
        read = [(row["ledger"], row["entry"], max(0, row["batch"])) for row in rows]
        assert read == [place for place in places if start <= place < end]
