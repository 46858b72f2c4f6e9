"""The flag by which Pulsar's own processes are told that their store is replaced (PIP-454). Pure.

A broker or bookie on Pulsar's metadata driver registers below `PARTICIPANTS_PATH` when it starts.
Told `PREPARATION` it refuses its own writes, connects to the target, makes its ephemeral nodes
there, and deletes its registration: that is its acknowledgement. Told `COMPLETED` it turns to the
target, told `FAILED` it goes on with the source. It acknowledges neither.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.errors import FormatError
from anabranch.metadata.announced import PULSARS_OPERATION
from anabranch.migrations.engine.table import Outward

FLAG_PATH: Final = f"{PULSARS_OPERATION}/migration"
PARTICIPANTS_PATH: Final = f"{PULSARS_OPERATION}/participants"
FOLLOWED_TO: Final = "oxia://"
"""With what the URL of a target begins to which Pulsar's processes can be led."""


@dataclass(frozen=True, slots=True)
class Flag:
    """What the flag says."""

    phase: Outward = Outward.NOT_STARTED
    target_url: str | None = None

    @property
    def holds(self) -> bool:
        """Whether whoever obeys it refuses writes."""
        return self.phase in (Outward.PREPARATION, Outward.COPYING)


def write_flag(flag: Flag) -> bytes:
    """The bytes of a flag, in Pulsar's own form."""
    document = {"phase": flag.phase.value, "targetUrl": flag.target_url}
    return json.dumps(document, separators=(",", ":")).encode()


def read_flag(value: bytes) -> Flag:
    """Undo `write_flag`.

    Raises:
        FormatError: if it is none.
    """
    try:
        document = json.loads(value)
        phase, target_url = Outward(document["phase"]), document.get("targetUrl")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{FLAG_PATH} is no flag of a migration: {error!r}") from None
    if target_url is not None and not isinstance(target_url, str):
        raise FormatError(f"{FLAG_PATH} names no target: {target_url!r}")
    return Flag(phase, target_url)


FLAGS: Final[Mapping[str, Outward]] = {
    "halting": Outward.PREPARATION,
    "freezing": Outward.COPYING,
    "rejoining": Outward.COPYING,
    "fencing": Outward.COPYING,
    "switching": Outward.COPYING,
    "leading": Outward.COMPLETED,
    "switched": Outward.COMPLETED,
    "finalizing": Outward.COMPLETED,
    "finalized": Outward.COMPLETED,
    "aborting": Outward.FAILED,
    "aborted": Outward.FAILED,
    "failing": Outward.FAILED,
    "failed": Outward.FAILED,
}
"""What the flag comes to say in our phases, if somebody takes part who obeys it. In those before,
nobody has been told anything; the phases of a rollback cannot be reached."""
_FOLLOWS: Final[Mapping[Outward, tuple[Outward, ...]]] = {
    Outward.NOT_STARTED: (Outward.PREPARATION,),
    Outward.PREPARATION: (Outward.COPYING, Outward.FAILED),
    Outward.COPYING: (Outward.COMPLETED, Outward.FAILED),
    Outward.COMPLETED: (),
    Outward.FAILED: (Outward.PREPARATION,),
}


def may_follow(before: Outward, after: Outward) -> bool:
    """Whether the flag may come to say this, as Pulsar's processes understand it."""
    return after in _FOLLOWS[before]
