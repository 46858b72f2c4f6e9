"""Messages that are larger than an entry, read by tasks that may have only a part of them."""

import asyncio
import random

import pytest

from anabranch.client import Client
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.wire import build_entry
from pyspark_anabranch.chunked_messages import BeginsBefore, ChunkedMessages
from pyspark_anabranch.entry_rows import StoredEntry, rows_of
from pyspark_anabranch.look_back import last_entries
from pyspark_anabranch.places import Span

pytestmark = pytest.mark.xdist_group("spark")
LARGE = 6 << 20
"""More than a broker takes in one entry."""


@pytest.fixture(scope="module")
def large(stored_topics):
    """Large and small messages by turns, compressed and not, over two ledgers."""
    random.seed(8)
    values = []

    async def publish(compression, count):
        async with Client(stored_topics.server.service_url) as client:
            consumer = await client.consumer("large", "keeps", initial_position="earliest")
            await consumer.close()
            producer = await client.producer(
                "large", batching=None, chunking=True, compression=compression
            )
            for number in range(count):
                size = LARGE + number if number % 2 else 10
                values.append(random.randbytes(size))
                await producer.send(values[-1], key=b"%d" % number)

    asyncio.run(publish("none", 4))
    stored_topics.roll("large")
    asyncio.run(publish("zlib", 3))
    return stored_topics, values


@pytest.mark.goal("spark.C15", part="chunks", broken_by="spark_forgets_the_first_chunk")
def test_messages_in_chunks_come_whole_whoever_reads_their_parts(large):
    topics, values = large
    rows = topics.rows(topic="large")
    assert [row["value"] for row in rows] == values
    stored = {"ledgersUrl": f"embedded:{topics.folder}"}
    assert topics.rows(topic="large", **stored) == rows
    for size in ("1", "2"):
        assert topics.rows(topic="large", maxEntriesPerTask=size) == rows
    assert topics.rows(topic="large", maxEntriesPerTask="1", **stored) == rows


@pytest.mark.goal("spark.C15", part="chunks", broken_by="spark_forgets_the_first_chunk")
def test_a_range_has_the_messages_whose_last_chunk_it_has(large):
    topics, _ = large
    rows = topics.rows(topic="large", columns="position,key")
    places = [row["position"] for row in rows]
    last = places[1]
    assert last["entry"] >= 2, "the second message has chunks"
    at = f"{last['ledger']}:{last['entry']}"
    assert topics.rows(topic="large", columns="position,key", start=at) == rows[1:]
    assert topics.rows(topic="large", columns="position,key", end=at) == rows[:1]


def chunk(uuid, number, count, payload):
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, uuid=uuid, chunk_id=number,
        num_chunks_from_msg=count, total_chunk_msg_size=9,
    )  # fmt: skip
    return build_entry(metadata, payload)


def test_chunks_of_several_messages_that_are_sent_again_or_never_end():
    sent = [
        chunk("a", 0, 2, b"lost"), chunk("b", 0, 3, b"b0"), chunk("a", 0, 2, b"a0"),
        chunk("b", 1, 3, b"b1"), chunk("b", 1, 3, b"b1"), chunk("c", 0, 2, b"never"),
        chunk("a", 1, 2, b"a1"), chunk("b", 2, 3, b"b2"),
    ]  # fmt: skip
    entries = [StoredEntry(7, number, content) for number, content in enumerate(sent)]
    rows = rows_of(entries)
    found = [
        bytes(rows.data[start:end])
        for start, end in zip(rows.value_starts, rows.value_ends, strict=True)
    ]
    assert found == [b"a0a1", b"b0b1b2"]
    chunks = ChunkedMessages()
    with pytest.raises(BeginsBefore) as before:
        rows_of(entries[3:], chunks.copy())
    assert (before.value.uuid, before.value.entry_id) == ("a", 6)
    chunks.found("a", {0: b"a0"})
    with pytest.raises(BeginsBefore, match="7:7 is the last chunk of b"):
        rows_of(entries[3:], chunks.copy())
    chunks.found("b", {})
    assert rows_of(entries[3:], chunks).count == 1, "what is nowhere is left out"


def test_the_last_entries_of_some_spans():
    spans = [Span(1, 0, 5), Span(3, 2, 4)]
    assert last_entries(spans, 1) == [Span(3, 3, 4)]
    assert last_entries(spans, 3) == [Span(1, 4, 5), Span(3, 2, 4)]
    assert last_entries(spans, 100) == spans
