"""Every bound of the engine, with its unit in the name."""

from typing import Final

TRAIL_LINES_MAX: Final = 200
"""Lines of the audit trail in a journal; of more the oldest go, and are counted."""
CHECKPOINT_BYTES_MAX: Final = 64 * 1024
ERROR_CHARS_MAX: Final = 2_000
STEP_RETRY_S_MIN: Final = 0.1
STEP_RETRY_S_MAX: Final = 5.0
"""Between two runs of a step that met an error which may pass."""
BARRIER_LOOK_S: Final = 1.0
"""Between two looks at the participants if nothing tells that they changed."""
PROGRESS_WRITE_S: Final = 1.0
"""Between two writes of how far a phase is."""
STORE_RETRY_S: Final = 0.5
"""Between two tries to reach the journal."""
LOOKS_MAX: Final = 6
"""How often a path is looked at again before nothing can be said of it."""
LOOK_AGAIN_S: Final = 0.1
"""The first pause between two looks; each later one is twice as long. What is written to two stores
is in the second of them some milliseconds later, more where a disk is slow."""
LOOKS_AT_ONCE_MAX: Final = 64
MISMATCHES_SHOWN_MAX: Final = 1000
"""Paths that a comparison names; all are counted."""

assert STEP_RETRY_S_MIN < STEP_RETRY_S_MAX
