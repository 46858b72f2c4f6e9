"""What a watch told is judged by revisions, around its gaps."""

import pytest

from anabranch.metadata.store import Event, EventKind, Revision
from anabranch.testing.heard_changes import HeardChanges

PATH = "/counts/c"


def at(*numbers: int) -> list[Revision]:
    return [Revision(0, number) for number in numbers]


def heard(*told: int | str) -> HeardChanges:
    """A number is the revision of a change of the path; "g7" is a gap that ends at 7."""
    found = HeardChanges()
    for one in told:
        if isinstance(one, str):
            event = Event(EventKind.GAP, "/", Revision(0, int(one[1:])))
        else:
            event = Event(EventKind.MODIFIED, PATH, Revision(0, one))
        assert found.hear(event) is None
    return found


def wrong(found: HeardChanges, made: list[Revision], changes: int) -> list[str]:
    return list(found.wrong_with(PATH, made, changes))


def test_gap_excuses_what_is_in_it_and_nothing_else() -> None:
    found = heard(1, 3, "g7", 8, "g9", 12)
    assert (found.gaps, found.count, found.times_told(PATH)) == (2, 6, 4)
    assert wrong(found, at(1, 3, 5, 7, 8, 9, 12), 7) == []
    for missing in (2, 10, 11, 13):
        (said,) = wrong(found, at(1, 3, 8, 12, missing), 9)
        assert f"not told of 1 changes of {PATH} outside gaps" in said
        assert str(missing) in said


@pytest.mark.parametrize("told", [(1, 1), (1, "g3", 4, 4), (2, "g2", 2)])
def test_no_change_is_told_twice(told: tuple[int | str, ...]) -> None:
    (said,) = wrong(heard(*told), [], 9)
    assert "more than once" in said


def test_changes_of_unknown_outcome_may_be_told_and_no_others() -> None:
    assert wrong(heard(1, 2, 3), at(1, 3), 3) == []
    (said,) = wrong(heard(1, 2, 3), at(1, 3), 2)
    assert "was told 1 changes" in said
    assert "that nobody made" in said


def test_what_comes_out_of_order_is_wrong() -> None:
    found = heard(4)
    event = Event(EventKind.MODIFIED, PATH, Revision(0, 3))
    assert "came after" in str(found.hear(event))
