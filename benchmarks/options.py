"""What the command line says about a run. Every benchmark is given all of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How often, how long, which sides and loads."""

    pairs: int = 1
    seconds: int = 32
    sides: tuple[str, ...] = ("anabranch", "pulsar")
    loads: tuple[str, ...] = ("batched", "unbatched", "steady")
    profile: bool = False
    nodes: int | None = None
    """Of metadata, where a benchmark has a tree; None: as many as it has for a record."""
