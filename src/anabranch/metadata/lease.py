"""Whether a session can still be relied on, by this process's own clock.

A store keeps a session for its timeout after it last heard of the client. Counted from when that
renewal was sent, and made shorter by what two clocks may drift apart, the same time here ends
before it ends there. So a process that was stopped and goes on sees that its time is over before
it can act, without asking anybody.
"""

import math

from anabranch import limits
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Clock


class Lease:
    """The session of a store handle as something that runs out."""

    __slots__ = ("_clock", "_store")

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def runs(self, session: int) -> bool:
        """Whether nobody can have ended this session yet."""
        return self._store.session == session and self._clock.monotonic_s() < self.ends_s()

    def ends_s(self) -> float:
        """The moment of the monotonic clock until which the present session is safe."""
        valid_until_s = self._store.session_valid_until
        if math.isinf(valid_until_s):
            return valid_until_s
        return valid_until_s - limits.LEASE_DRIFT_SHARE_MAX * self._store.session_timeout_s
