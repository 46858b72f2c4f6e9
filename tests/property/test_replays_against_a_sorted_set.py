"""The entries to be sent again, compared with a plain set that is sorted when asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker import replays as subject
from anabranch.broker.replays import Replays
from anabranch.ids import Position

positions = st.builds(Position, st.integers(1, 2), st.integers(0, 12))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(positions, max_size=6)),
        st.tuples(st.just("discard"), positions),
        st.tuples(st.just("lowest"), st.integers(1, 8)),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=60,
)


@pytest.fixture(autouse=True)
def _hardly_anything_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_STALE_MAX", 3)


@given(steps)
def test_the_lowest_are_those_of_a_sorted_set(script: list[tuple[str, object]]) -> None:
    tried, model = Replays(), set[Position]()
    for name, argument in script:
        if name == "add":
            assert isinstance(argument, list)
            tried.add(argument)
            model.update(argument)
        elif name == "discard":
            assert isinstance(argument, Position)
            tried.discard(argument)
            model.discard(argument)
        elif name == "lowest":
            assert isinstance(argument, int)
            assert tried.lowest(argument) == sorted(model)[:argument]
        else:
            tried.clear()
            model.clear()
        assert len(tried) == len(model)
        assert all(each in tried for each in model)
    assert tried.lowest(100) == sorted(model)
