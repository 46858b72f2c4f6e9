"""The tables are exact, and small enough for ten million records."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from anabranch.verify.records import Place
from anabranch.verify.tables import NO_PLACE, PlaceCodes, SendLine, SparseBits

NUMBERS = st.one_of(st.integers(0, 10_000), st.integers(0, 2**64))


@given(st.lists(NUMBERS))
def test_sparse_bits_are_a_set(numbers: list[int]) -> None:
    bits, model = SparseBits(), set[int]()
    for number in numbers:
        assert bits.add(number) is (number not in model)
        model.add(number)
    assert bits.count == len(model)
    assert all(number in bits for number in model)
    assert all((number + 1 in bits) is (number + 1 in model) for number in model)


PLACES = st.builds(
    Place,
    partition=st.integers(-1, 3),
    ledger=st.integers(-1, 2**62),
    entry=st.one_of(st.integers(-1, 50), st.integers(2**25 - 2, 2**25 + 2), st.just(2**40)),
    batch=st.one_of(st.integers(-1, 50), st.integers(2**16 - 3, 2**16 + 2)),
)


@given(st.lists(PLACES))
def test_place_codes_are_one_to_one_and_fit_the_table(places: list[Place]) -> None:
    codes = PlaceCodes()
    for place in places:
        code = codes.encode(place)
        assert -(2**63) <= code < 2**63
        assert code != NO_PLACE
        assert codes.decode(code) == place
        assert codes.encode(place) == code


def test_a_send_costs_less_than_40_bytes() -> None:
    line = SendLine(0, 0)
    count = 40_960
    for seq in range(count):
        line.begin(seq, 1, 1.0)
    tables = [getattr(block, name) for block in line.blocks.values() for name in block.__slots__]
    assert sum(map(sys.getsizeof, tables)) < 40 * count


def test_nonsensical_numbers_cost_one_block_each() -> None:
    bits = SparseBits()
    for power in range(63):
        bits.add(1 << power)
    assert len(bits._blocks) <= 63
