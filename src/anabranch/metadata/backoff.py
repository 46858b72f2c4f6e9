"""How writers of one document keep out of each other's way, and when they give up."""

import asyncio

from anabranch import limits
from anabranch.errors import ConflictError
from anabranch.runtime import Clock, Entropy


class Backoff:
    """The waits of one read-modify-write that meets others."""

    def __init__(self, path: str, clock: Clock, entropy: Entropy) -> None:
        self._path = path
        self._clock = clock
        self._entropy = entropy
        self._gives_up_s = clock.monotonic_s() + limits.UPDATE_S_MAX
        self._next_s = limits.UPDATE_BACKOFF_S_MIN

    async def wait(self) -> None:
        """Wait before the next try.

        Raises:
            ConflictError: if there is no time for another one.
        """
        if self._clock.monotonic_s() + self._next_s > self._gives_up_s:
            raise ConflictError(
                f"others changed {self._path} at each try for {limits.UPDATE_S_MAX} s: "
                "nothing was written"
            )
        # Drawn, since two that met once would else meet again and again.
        await asyncio.sleep(self._entropy.uniform(self._next_s / 2, self._next_s))
        self._next_s = min(self._next_s * 2, limits.UPDATE_BACKOFF_S_MAX)
