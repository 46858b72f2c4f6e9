"""The phases of a voter's life, and what it may be told in each."""

from enum import Enum
from typing import Final

from anabranch.consensus.events import (
    Appended,
    AppendFailed,
    Opened,
    Propose,
    Read,
    Received,
    Recovered,
    RecoveryEnded,
    SnapshotInstalled,
    SnapshotStored,
    TimerFired,
)


class Phase(Enum):
    """Where a voter is in its life."""

    NEW = "new"
    RECOVERING = "recovering"
    FOLLOWING = "following"
    CANVASSING = "canvassing"
    STANDING = "standing for election"
    RAISING_TERM = "raising term"
    LEADING = "leading"
    FAILED = "failed"


_RUNNING: Final = (
    Propose,
    Appended,
    AppendFailed,
    SnapshotStored,
    Read,
    Received,
    TimerFired,
    SnapshotInstalled,
)
ACCEPTS: Final[dict[Phase, tuple[type[object], ...]]] = {
    Phase.NEW: (Opened,),
    Phase.RECOVERING: (Recovered, RecoveryEnded),
    Phase.FOLLOWING: _RUNNING,
    Phase.CANVASSING: _RUNNING,
    Phase.STANDING: _RUNNING,
    Phase.RAISING_TERM: _RUNNING,
    Phase.LEADING: _RUNNING,
    # Completions of what was under way may still come in; they change nothing any more.
    Phase.FAILED: _RUNNING,
}
assert ACCEPTS.keys() == set(Phase), "every phase needs a row"
LEADS: Final = (Phase.RAISING_TERM, Phase.LEADING)
