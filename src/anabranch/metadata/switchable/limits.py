"""Bounds of a store that can be replaced, with the unit in the name."""

from typing import Final

GATE_WAIT_S_MAX: Final = 30.0
"""How long a write waits for a switch, or for its failure, before it is refused."""
TURN_LOOK_S: Final = 0.02
"""Between two looks whether this process has turned to the store that is in use."""
FENCED_TRIES_MAX: Final = 100
REJOIN_TRIES_MAX: Final = 5
"""Attempts to make one ephemeral node anew whose outcome stays unknown."""
REJOIN_AT_ONCE_MAX: Final = 64
"""Ephemeral nodes of a process that are made anew at a time: a broker has one for each bundle."""
