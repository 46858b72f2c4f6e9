"""The table of an election: what a candidate does next."""

import pytest

from anabranch.metadata.election_machine import TURNS, Happened, Standing, Then, turn


@pytest.mark.parametrize(
    ("standing", "happened", "after", "then"),
    [
        (Standing.NO_LEADER, Happened.WON, Standing.LEADING, Then.WAIT),
        (Standing.NO_LEADER, Happened.BEATEN, Standing.FOLLOWING, Then.WAIT),
        (Standing.NO_LEADER, Happened.UNSURE, Standing.NO_LEADER, Then.TRY_LATER),
        (Standing.FOLLOWING, Happened.VACANT, Standing.FOLLOWING, Then.TRY),
        (Standing.FOLLOWING, Happened.WON, Standing.LEADING, Then.WAIT),
        (Standing.FOLLOWING, Happened.UNSURE, Standing.NO_LEADER, Then.TRY_LATER),
        (Standing.LEADING, Happened.LOST, Standing.NO_LEADER, Then.TRY),
    ],
)
def test_a_turn(standing: Standing, happened: Happened, after: Standing, then: Then) -> None:
    assert turn(standing, happened) == (after, then)


def test_whoever_resigns_stops() -> None:
    for standing in Standing:
        assert turn(standing, Happened.RESIGNED) == (Standing.NO_LEADER, Then.STOP)


def test_a_leader_never_just_follows() -> None:
    assert Standing.FOLLOWING not in {after for after, _ in TURNS[Standing.LEADING].values()}
    with pytest.raises(AssertionError, match="cannot happen"):
        turn(Standing.LEADING, Happened.BEATEN)
