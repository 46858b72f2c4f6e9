"""Rows that are packed side by side are the bytes that messages packed one by one are."""

import random

import numpy as np
import pyarrow as pa
import pytest

from anabranch.client.packing import Outgoing, Packer
from pyspark_anabranch.packed_rows import columns_of, packed
from pyspark_anabranch.sink_rows import sink_rows

TIMESTAMP = pa.timestamp("us", tz="UTC")
CASES = 300


def made_batch(draw):
    count = draw.randrange(1, 20)

    def column(kind, longest):
        def one():
            size = draw.choice([0, 1, draw.randrange(longest)])
            return draw.randbytes(size) if kind == pa.binary() else "é" * size

        return pa.array([None if draw.random() < 0.2 else one() for _ in range(count)], kind)

    columns = {"value": column(draw.choice([pa.binary(), pa.string()]), 300)}
    if kind := draw.choice([None, pa.binary(), pa.string()]):
        columns["key"] = column(kind, 200)
    if draw.random() < 0.5:
        times = [draw.choice([None, 0, draw.randrange(2**50)]) for _ in range(count)]
        columns["event_time"] = pa.array(times, TIMESTAMP)
    if draw.random() < 0.5:
        columns["properties"] = pa.array([[]] * count, pa.map_(pa.string(), pa.string()))
    return pa.RecordBatch.from_pydict(columns).slice(draw.randrange(count))


@pytest.mark.goal("spark.C16", part="columns", broken_by="spark_packs_no_event_times")
@pytest.mark.parametrize("first_number", [0, 2**32, 5 * 2**40])
def test_packed_rows_are_the_bytes_of_messages(first_number):
    draw = random.Random(first_number)
    for _ in range(CASES):
        compare(made_batch(draw), draw.choice([0, 126, 16_380]), first_number)


def compare(batch, place, first_number):
    messages = [
        Outgoing(
            row.value, row.key, None, row.properties, row.event_time_ms, first_number + row.number
        )
        for row in sink_rows(iter([batch]), place)
    ]
    packer = Packer(0)
    packer.producer_name = "sink"
    columns = columns_of(batch)
    assert columns is not None
    rows = packed(columns, np.arange(place, place + batch.num_rows), first_number)
    assert rows.largest == max(message.size for message in messages)
    for start in range(len(messages)):
        cut = rows.cut(start, len(messages), first_number)
        assert packer.packed(cut, 7) == packer.batch(messages[start:], 7)
        assert cut.size == sum(message.size for message in messages[start:])
        room = messages[start].size
        assert rows.end_of(start, 9, room) == start + 1
        assert rows.end_of(start, 9, room - 1) == start


def test_rows_that_need_more_are_not_packed():
    values = pa.array([b"a", b"b"])
    pairs = pa.array([[], [("a", "b")]], pa.map_(pa.string(), pa.string()))
    for name, column in (
        ("properties", pairs),
        ("topic", pa.array(["t", None])),
        ("partition", pa.array([None, 3], pa.int32())),
        ("event_time", pa.array([5, -5000], TIMESTAMP)),
    ):
        batch = pa.RecordBatch.from_pydict({"value": values, name: column})
        assert columns_of(batch) is None, name
        assert (columns_of(batch.slice(0, 1)) is None) == (name == "topic")
