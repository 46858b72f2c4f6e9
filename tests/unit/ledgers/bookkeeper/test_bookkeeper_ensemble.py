"""Write sets, coverage, and who takes whose place."""

from itertools import combinations

import pytest

from anabranch.ledgers.bookkeeper.ensemble import (
    Quorums,
    choose,
    choose_replacements,
    places_to_leave,
    replaced,
    with_segment,
)
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment


def test_write_sets_go_round() -> None:
    quorums = Quorums(5, 3, 2)
    assert quorums.write_set(0) == (0, 1, 2)
    assert quorums.write_set(4) == (4, 0, 1)
    assert quorums.write_set(13) == (3, 4, 0)


@pytest.mark.parametrize(
    "quorums", [Quorums(3, 3, 2), Quorums(5, 3, 2), Quorums(4, 2, 2), Quorums(4, 3, 3)]
)
def test_covered_means_that_nothing_is_confirmed_without_those_that_answered(
    quorums: Quorums,
) -> None:
    places = range(quorums.ensemble)
    for count in range(quorums.ensemble + 1):
        for answered in combinations(places, count):
            could_be_confirmed = any(
                len([place for place in quorums.write_set(entry) if place not in answered])
                >= quorums.ack
                for entry in places
            )
            assert quorums.covered(answered) is not could_be_confirmed


def test_as_many_must_lack_an_entry_as_a_confirmed_one_cannot() -> None:
    assert Quorums(3, 3, 2).absent_needed == 2
    assert Quorums(3, 3, 3).absent_needed == 1
    assert Quorums(1, 1, 1).absent_needed == 1
    assert Quorums(5, 4, 2).absent_needed == 3


def test_choosing_draws_without_repeating() -> None:
    assert choose(2, ["a", "b", "c"], lambda bound: bound - 1) == ["c", "b"]
    assert choose(5, ["a", "b"], lambda _: 0) == ["a", "b"]


def test_nobody_is_twice_in_an_ensemble() -> None:
    chosen = choose_replacements(("a", "b", "c"), (2, 0), ("a", "b", "c", "d", "e"), lambda _: 0)
    assert chosen == {0: "d", 2: "e"}
    assert replaced(("a", "b", "c"), chosen) == ("d", "b", "e")
    assert choose_replacements(("a", "b"), (0,), ("a", "b"), lambda _: 0) == {}
    assert choose_replacements(("a", "b"), (0, 1), ("c",), lambda _: 0) == {0: "c"}


def test_a_new_segment_follows_or_takes_the_place_of_an_empty_one() -> None:
    first, second = EnsembleSegment(0, ("a", "b")), EnsembleSegment(7, ("a", "c"))
    assert with_segment((first,), 7, ("a", "c")) == (first, second)
    assert with_segment((first, second), 7, ("d", "c")) == (first, EnsembleSegment(7, ("d", "c")))


def test_as_many_places_are_left_as_there_are_others_to_take_them() -> None:
    bookies, gone = ("a", "b", "c"), {"a", "c"}.__contains__
    assert places_to_leave(bookies, gone, ("b", "d", "e")) == (0, 2)
    assert places_to_leave(bookies, gone, ("b", "d")) == (0,)
    assert places_to_leave(bookies, gone, ("b",)) == ()
    assert places_to_leave(bookies, gone, ()) == (), "the metadata may be wrong about all of them"
    assert places_to_leave(bookies, lambda _: False, ("d", "e")) == ()
