"""How fast, how jittery, how coarse one simulated world is; drawn from its seed.

A value set is fixed for a run. What changes during a run is a fault and belongs to the nemesis.
"""

import random
from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Conditions:
    """The weather of one world."""

    delay_s: float = 0.0005
    """One way between two machines, before jitter."""
    jitter_s: float = 0.002
    """Largest ordinary addition to a delay; most are far smaller."""
    loss: float = 0.0
    """Share of segments that come only after a retransmission."""
    split: float = 0.1
    """Share of deliveries that are cut at an arbitrary byte."""
    window_bytes: int = 128 * KIB
    """Bytes under way or unread in one direction before the sender must wait."""
    stall_limit_s: float = 20.0
    """How long bytes may stay unanswered before the sender's end is lost."""
    sync_s: float = 0.001
    """An ordinary sync of the disk."""
    torn_holes: bool = True
    """Whether a power cut may keep a later page of unsynced bytes and lose an earlier one."""

    @staticmethod
    def draw(rng: random.Random) -> "Conditions":
        """Conditions that differ much between seeds, so that few seeds cover a lot."""
        return Conditions(
            delay_s=rng.choice((0.00005, 0.0005, 0.005)),
            jitter_s=rng.choice((0.0001, 0.002, 0.05)),
            loss=rng.choice((0.0, 0.0, 0.001, 0.02)),
            split=rng.choice((0.0, 0.1, 0.5)),
            window_bytes=rng.choice((16 * KIB, 128 * KIB, 1024 * KIB)),
            stall_limit_s=rng.choice((5.0, 20.0, 60.0)),
            sync_s=rng.choice((0.0001, 0.001, 0.01)),
        )
