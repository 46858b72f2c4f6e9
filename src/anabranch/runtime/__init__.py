"""The only way to time, network, disk and randomness.

`real.py` is the operating system behind it, `anabranch.testing` the simulated world.
"""

from dataclasses import dataclass

from anabranch.runtime.channels import Channels
from anabranch.runtime.clock import Clock
from anabranch.runtime.disk import Disk
from anabranch.runtime.entropy import Entropy
from anabranch.runtime.network import Network


@dataclass(frozen=True, slots=True)
class Runtime:
    """The doors one process goes through."""

    clock: Clock
    entropy: Entropy
    network: Network
    disk: Disk
    channels: Channels | None = None
    """None where no server that speaks gRPC can be reached, as for most of the simulation."""


__all__ = ["Channels", "Clock", "Disk", "Entropy", "Network", "Runtime"]
