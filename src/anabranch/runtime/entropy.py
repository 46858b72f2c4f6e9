"""The door to randomness."""

from typing import Protocol


class Entropy(Protocol):
    """Random draws; repeatable in the simulation."""

    def token_hex(self, byte_count: int) -> str:
        """Return `byte_count` random bytes as hexadecimal digits."""
        ...

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound)."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """Return a float in [low, high]."""
        ...
