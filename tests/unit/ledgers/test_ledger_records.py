"""Facts of the embedded ledger store as bytes, sets of ids as ranges, index files: round trips."""

from array import array
from collections.abc import Generator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import FormatError
from anabranch.ledgers.id_ranges import IdRanges
from anabranch.ledgers.index_file import Run, decode_index, encode_index
from anabranch.ledgers.records import Close, Create, Delete, Fact, Fence, decode_fact, encode_fact

IDS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 2**32 - 1)
FACTS = st.one_of(
    st.builds(Create, IDS, EPOCHS, st.dictionaries(st.text(max_size=8), st.binary(max_size=20))),
    st.builds(Fence, IDS, EPOCHS),
    st.builds(Close, IDS, st.integers(-1, 2**62), st.integers(0, 2**63)),
    st.builds(Delete, st.lists(st.tuples(IDS, IDS), max_size=5)),
)


@given(FACTS)
def test_facts_come_back_as_they_were(fact: Fact) -> None:
    assert decode_fact(memoryview(encode_fact(fact))) == fact


@given(FACTS, st.data())
def test_cut_or_padded_facts_are_refused(fact: Fact, data: st.DataObject) -> None:
    record = encode_fact(fact)
    cut = data.draw(st.integers(1, len(record) - 1))
    with pytest.raises(FormatError):
        decode_fact(memoryview(record[:cut]))
    with pytest.raises(FormatError):
        decode_fact(memoryview(record + b"\0"))


@pytest.mark.parametrize("kind", [0, 1, 6, 255])
def test_unknown_record_types_are_named(kind: int) -> None:
    with pytest.raises(FormatError, match=str(kind)):
        decode_fact(memoryview(bytes([kind]) + bytes(30)))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8))))
def test_ranges_are_a_set(spans: list[tuple[int, int]]) -> None:
    ranges, model = IdRanges(), set()
    for first, more in spans:
        ranges.add(first, first + more)
        model |= set(range(first, first + more + 1))
        assert [number for number in range(80) if number in ranges] == sorted(model)
        kept = list(ranges)
        assert len(ranges) == len(kept)
        for (_, last), (first_after, _) in pairwise(kept):
            assert last + 1 < first_after, "ranges that touch must be one"


RUNS = st.builds(
    lambda ledger_id, first, length, places: Run(ledger_id, first, length, array("Q", places)),
    IDS,
    st.integers(0, 2**40),
    st.integers(0, 2**60),
    st.lists(st.integers(0, 2**64 - 1), max_size=10),
)


def whole(steps: Generator[int, None, bytearray]) -> bytes:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


@given(st.lists(FACTS.map(encode_fact), max_size=4), st.lists(RUNS, max_size=4), st.data())
def test_index_files_come_back_or_are_refused(
    facts: list[bytes], runs: list[Run], data: st.DataObject
) -> None:
    content = whole(encode_index(7, 99, facts, runs))
    decoded = decode_index(content, 7)
    assert (decoded.segment_bytes, decoded.facts, decoded.runs) == (99, facts, runs)
    with pytest.raises(FormatError):
        decode_index(content, 8)
    damaged = bytearray(content)
    damaged[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FormatError):
        decode_index(bytes(damaged), 7)
