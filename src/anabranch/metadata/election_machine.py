"""Who leads, as one candidate sees it: the table of its states.

Pure. `election.py` brings what happened and does what the table says.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Standing(Enum):
    """Where a candidate stands."""

    NO_LEADER = "no leader"
    """Nobody leads, or nobody knows who."""
    LEADING = "leading"
    FOLLOWING = "following"


class Happened(Enum):
    """What a candidate learns."""

    WON = "won"
    BEATEN = "beaten"
    """Somebody else leads."""
    VACANT = "vacant"
    """The leader's node changed, so somebody else may lead, or nobody."""
    UNSURE = "unsure"
    """The store did not answer."""
    LOST = "lost"
    RESIGNED = "resigned"


class Then(Enum):
    """What a candidate does next."""

    TRY = "try"
    """Try to become the leader now."""
    TRY_LATER = "try later"
    WAIT = "wait"
    """Until the leader's node changes, or leadership is lost."""
    STOP = "stop"


class Turn(NamedTuple):
    """The next state, and what to do in it."""

    standing: Standing
    then: Then


_ANYWHERE: Final[Mapping[Happened, Turn]] = {
    Happened.UNSURE: Turn(Standing.NO_LEADER, Then.TRY_LATER),
    Happened.RESIGNED: Turn(Standing.NO_LEADER, Then.STOP),
}
_TRYING: Final[Mapping[Happened, Turn]] = {
    Happened.WON: Turn(Standing.LEADING, Then.WAIT),
    Happened.BEATEN: Turn(Standing.FOLLOWING, Then.WAIT),
}
TURNS: Final[Mapping[Standing, Mapping[Happened, Turn]]] = {
    Standing.NO_LEADER: {**_ANYWHERE, **_TRYING},
    Standing.FOLLOWING: {
        **_ANYWHERE,
        **_TRYING,
        Happened.VACANT: Turn(Standing.FOLLOWING, Then.TRY),
    },
    Standing.LEADING: {
        Happened.LOST: Turn(Standing.NO_LEADER, Then.TRY),
        Happened.RESIGNED: Turn(Standing.NO_LEADER, Then.STOP),
    },
}


def turn(standing: Standing, happened: Happened) -> Turn:
    """Look up what follows; what cannot happen is not in the table."""
    assert happened in TURNS[standing], f"{happened} cannot happen while {standing}"
    return TURNS[standing][happened]
