"""The simulated runtime: virtual time, in-memory network and disks, faults, all from one seed."""

from anabranch.testing.simulation.conditions import Conditions
from anabranch.testing.simulation.loop import (
    Deadlock,
    Escape,
    Livelock,
    OutOfTime,
    SimulationError,
)
from anabranch.testing.simulation.process import Process, ProcessDied, ProcessFailed
from anabranch.testing.simulation.world import World

__all__ = [
    "Conditions",
    "Deadlock",
    "Escape",
    "Livelock",
    "OutOfTime",
    "Process",
    "ProcessDied",
    "ProcessFailed",
    "SimulationError",
    "World",
]
