"""The sorted set of names against a plain sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.metadata import sorted_names
from anabranch.metadata.sorted_names import SortedNames

NAMES = st.lists(st.text("abc", min_size=1, max_size=4), unique=True, max_size=60)


@given(names=NAMES, doomed=st.sets(st.integers(0, 59)), probe=st.text("abc", max_size=4))
def test_agrees_with_a_sorted_list(names: list[str], doomed: set[int], probe: str) -> None:
    original = sorted_names._BLOCK_NAMES_MAX
    sorted_names._BLOCK_NAMES_MAX = 4  # type: ignore[misc]
    try:
        held = SortedNames()
        for name in names:
            held.add(name)
        for place in sorted(doomed):
            if place < len(names):
                held.remove(names[place])
        expected = sorted(name for place, name in enumerate(names) if place not in doomed)
        assert list(held) == expected
        assert len(held) == len(expected)
        assert list(held.after(probe)) == [name for name in expected if name > probe]
    finally:
        sorted_names._BLOCK_NAMES_MAX = original  # type: ignore[misc]


def test_hundred_thousand_names() -> None:
    held = SortedNames()
    for i in range(100_000):
        held.add(f"{i * 7919 % 100_000:06}")
    names = [f"{i:06}" for i in range(100_000)]
    assert list(held) == names
    assert next(held.after("050000")) == "050001"
    for name in names[:-1]:
        held.remove(name)
    assert list(held) == ["099999"]
