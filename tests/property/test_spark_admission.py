"""Batches of a stream: whatever waits, limits hold, and nobody who waits is left out for long."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyspark_anabranch.admission import EntrySize, Waiting, left_out, take
from pyspark_anabranch.places import Place

entry = st.tuples(st.integers(1, 12), st.integers(1, 300))
backlogs = st.lists(st.lists(entry, min_size=1, max_size=12), min_size=1, max_size=8)
limit = st.none() | st.integers(1, 400)
ALIKE = (1, 10)
"""One message in ten bytes."""


def waiting_in(backlogs, places=None):
    """What waits behind a place in each topic; of every topic the ledger is its number."""
    found = []
    for number, sizes in enumerate(backlogs):
        topic = f"t{number}"
        start = places[topic] if places else Place(number, 0)
        left = [EntrySize(number, at, *size) for at, size in enumerate(sizes)][start.entry_id :]
        if left:
            found.append(Waiting(topic, start, left, len(left)))
    return found


def taken(each, end):
    """The entries of which a batch takes something, and how many rows of each."""
    found = []
    for entry in each.entries:
        first = each.start.batch_index if each.start[:2] == entry[:2] else 0
        until = entry.messages
        if entry[:2] == end[:2]:
            until = end.batch_index
        elif entry[:2] > end[:2]:
            break
        if until > first:
            found.append((until - first, entry.size_bytes))
    return found


def check_limits(waiting, ends, rows_max, bytes_max):
    entries = [one for each in waiting for one in taken(each, ends[each.topic])]
    assert entries, "a batch has something"
    assert rows_max is None or sum(rows for rows, _ in entries) <= rows_max
    size = sum(size for _, size in entries)
    assert bytes_max is None or size <= bytes_max or len(entries) == 1


@pytest.mark.goal("spark.C5", part="any backlogs", broken_by="spark_lets_floors_lift_the_limit")
@given(backlogs, limit, limit)
@example([[ALIKE] * 1 for _ in range(10)] + [[ALIKE] * 1000], None, 100)
@example([[ALIKE] for _ in range(30)], 10, None)
@settings(max_examples=300, deadline=None)
def test_no_batch_is_larger_than_its_limits_whatever_waits(backlogs, rows_max, bytes_max):
    waiting = waiting_in(backlogs)
    check_limits(waiting, take(waiting, rows_max, bytes_max), rows_max, bytes_max)


@pytest.mark.goal("spark.C6", part="turns", broken_by="spark_owes_nothing")
@given(backlogs, limit, limit)
@example([[ALIKE] * 40 for _ in range(10)] + [[ALIKE] * 100], None, 100)
@example([[(1, 500)] * 5, *([ALIKE] * 40 for _ in range(4))], None, 20)
@settings(max_examples=200, deadline=None)
def test_everything_is_read_and_nobody_waits_longer_than_the_others_take(
    backlogs, rows_max, bytes_max
):
    places = {f"t{number}": Place(number, 0) for number in range(len(backlogs))}
    read, owed, missed = dict.fromkeys(places, 0), [], dict.fromkeys(places, 0)
    while waiting := waiting_in(backlogs, places):
        ends = take(waiting, rows_max, bytes_max, owed)
        check_limits(waiting, ends, rows_max, bytes_max)
        owed = left_out(waiting, ends, owed)
        for each in waiting:
            rows = sum(rows for rows, _ in taken(each, ends[each.topic]))
            read[each.topic] += rows
            missed[each.topic] = 0 if rows else missed[each.topic] + 1
            assert missed[each.topic] < len(backlogs)
        places |= ends
    assert read == {
        f"t{number}": sum(rows for rows, _ in sizes) for number, sizes in enumerate(backlogs)
    }
