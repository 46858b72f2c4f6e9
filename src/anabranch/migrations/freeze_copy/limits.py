"""Every bound of replacing the metadata store, with its unit in the name."""

from typing import Final

PREPARE_S_MAX: Final = 60.0
"""Until every participant has connected to the target; else the attempt fails."""
FOREIGN_S_MAX: Final = 60.0
"""Until every process that is not ours has connected to the target; Pulsar waits as long."""
HALT_S_MAX: Final = 15 * 60.0
"""Of all that is done in that phase: who they are is looked for in the whole tree."""
FOREIGN_LOOK_S: Final = 0.05
"""Between two looks whether they have."""
FOREIGN_TURN_S: Final = 1.0
"""From when they are told to turn until anybody writes to the target. They do not say when they
have; a bookie that still reads the old store would take a new ledger for a deleted one."""
LATE_S: Final = 60.0
"""After the switch, in which what brokers of Pulsar write to the source is looked for."""
LATE_BOOKIES_S: Final = 5.0
"""The same if all are bookies: one keeps to its freeze, but for a write that it had begun."""
LATE_LOOK_S: Final = 0.5
LATE_LINES_MAX: Final = 50
"""Late writes that are named one by one in the trail; all are counted."""
COPY_S_MAX: Final = 24 * 3600.0
"""Of each of the phases in which nobody waits."""
FREEZE_S_MAX: Final = 5.0
"""Of each of the phases in which writes wait; all of them together stay below `HOLD_S_MAX`."""
HOLD_S_MAX: Final = 30.0
"""Longest time that a write may have to wait for a switch or for its failure."""
REPEATED_WRITES_MAX: Final = 1000
"""To give a node that has children the version it has in the source."""
READ_TRIES_MAX: Final = 6
"""Of one node while single nodes are compared; then the step is tried again."""
READ_AGAIN_S: Final = 0.02
"""The first pause between two of them; each later one is twice as long."""
TAIL_LOOK_S: Final = 0.05
"""Between two looks at what was changed."""
TAIL_IDLE_S: Final = 0.5
"""The same on the way back, while nothing changes: it may stay open for days."""
LAG_MAX: Final = 200
"""Changes that are left when writes begin to wait."""
TAIL_ROUNDS_MIN: Final = 2
DIFFERENCE_LOOKS_MAX: Final = 5
"""At a path that differs while it is being written."""
BLOCKERS_SHOWN_MAX: Final = 20
"""Named by a plan; all are counted."""
READS_PER_COPY: Final = 5
"""As often as a whole tree is read or written, about, until writes begin to wait."""
READ_AT_ONCE_S: Final = 0.002
"""So much of what may be read in a second is read at once, so that others come in between."""
PACED_READS: Final = 2
"""As often as the whole source is read at the rate that was asked for: to copy, and to compare."""
SHOWN_NODES_MAX: Final = 5
"""Named when a target is not empty."""
_HOLDING_PHASES: Final = 5
"""There, and less on the way back."""

assert _HOLDING_PHASES * FREEZE_S_MAX < HOLD_S_MAX
assert FOREIGN_TURN_S < FREEZE_S_MAX
assert LATE_BOOKIES_S < LATE_S
assert FOREIGN_S_MAX < HALT_S_MAX
