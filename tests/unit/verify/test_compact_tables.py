"""The tables are exact, and small enough for ten million records."""

import sys
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from anabranch.verify.records import Outcome, Place
from anabranch.verify.sends import BlockPool, SendLine
from anabranch.verify.spill import Spill, SpilledMap
from anabranch.verify.tables import NO_PLACE, PlaceBits, PlaceCodes, SparseBits, set_bits

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
    blocks = {number >> 12 for number in model}
    found = {block << 12 | bit for block in blocks for bit in set_bits(bits.block_mask(block))}
    assert found == model


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


@given(st.lists(PLACES))
def test_place_bits_are_a_set(places: list[Place]) -> None:
    bits, model = PlaceBits(), set[Place]()
    for place in places:
        assert (place in bits) is (place in model)
        assert bits.add(place) is (place not in model)
        model.add(place)
    assert all(place in bits for place in model)


def test_a_batch_in_a_small_ledger_costs_little() -> None:
    bits = PlaceBits()
    for ledger in range(100):
        for entry in range(10):
            for batch in range(100):
                bits.add(Place(-1, ledger, entry, batch))
    blocks = [b for ledger in bits._ledgers.values() for b in ledger._blocks.values()]
    assert sum(map(sys.getsizeof, blocks)) < 100_000, "for 100,000 places"


def test_a_send_costs_less_than_32_bytes() -> None:
    line = SendLine(0, 0, BlockPool(Spill()))
    count = 40_960
    for seq in range(count):
        line.begin(seq, 1, 1.0)
    tables = [getattr(block, name) for block in line.blocks.values() for name in block.__slots__]
    assert sum(map(sys.getsizeof, tables)) < 32 * count


def test_sends_on_disk_are_the_same_as_in_memory() -> None:
    spill = Spill()
    small = SendLine(0, 0, BlockPool(spill, blocks_max=2))
    large = SendLine(0, 0, BlockPool(Spill(), blocks_max=1000))
    random = Random(1)
    for step in range(5_000):
        seq = random.randrange(60_000)
        how = random.choice(list(Outcome))
        if random.random() < 0.7:
            for line in (small, large):
                line.begin(seq, seq, float(step))
        assert small.settle(seq, how, step + 0.5) is large.settle(seq, how, step + 0.5)
    assert sum(type(block) is tuple for block in small.blocks.values()) == 13
    for (a, one), (b, two) in zip(small.each_block(), large.each_block(), strict=True):
        assert a == b
        assert one.to_bytes() == two.to_bytes()
        assert one.since == two.since
        assert small.unknown_mask(a, one) == large.unknown_mask(b, two)


KEYS = st.tuples(st.sampled_from(["", "a", "ä", 'q"', "\U0010ffff"]), st.integers(0, 9))


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**64))))
def test_spilled_map_is_a_dict(items: list[tuple[tuple[str, int], int]]) -> None:
    spill = Spill()
    found = SpilledMap[tuple[str, int], int]("of ints", spill, entries_max=3)
    other = SpilledMap[tuple[str, int], int]("of ints!", spill, entries_max=3)
    model: dict[tuple[str, int], int] = {}
    for key, value in items:
        assert found.get(key) == model.get(key)
        found.set(key, value)
        other.set(key, -1)
        model[key] = value
    assert dict(found.items()) == model
    assert set(dict(other.items()).values()) <= {-1}
    spill.close()


def test_nonsensical_numbers_cost_one_block_each() -> None:
    bits = SparseBits()
    for power in range(63):
        bits.add(1 << power)
    assert len(bits._blocks) <= 63
