"""Which ledgers may go. Pure; the rules are Pulsar's."""

from dataclasses import dataclass

from anabranch.errors import ConfigError
from anabranch.ids import Position
from anabranch.managed_ledger.chain import Chain


@dataclass(frozen=True, slots=True)
class Retention:
    """How long acknowledged ledgers are kept: until one of both is passed; -1 is without limit."""

    time_ms: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        for field, value in (("time_ms", self.time_ms), ("size_bytes", self.size_bytes)):
            if value < -1:
                raise ConfigError(f"retention {field} is {value}; use -1 for no limit")
        if (self.time_ms == 0) != (self.size_bytes == 0):
            raise ConfigError("retention needs both time and size, or both 0; use -1 for no limit")


def removable(chain: Chain, slowest: Position | None, retention: Retention, now_ms: int) -> int:
    """How many of the oldest ledgers may be removed.

    Args:
        chain: the ledgers; the open one, or else the last one, always stays.
        slowest: the lowest durable mark-delete of all cursors; None if there is no cursor.
        retention: what is kept although it was acknowledged.
        now_ms: the wall clock.
    """
    candidates = chain.closed if chain.open_id is not None else chain.closed[:-1]
    remaining_bytes = chain.size_bytes
    count = 0
    for span in candidates:
        if slowest is not None and span.last > slowest:
            break
        remaining_bytes -= span.size_bytes
        # A clock that was set back makes the age negative; "at once" must not wait for it.
        age_ms = now_ms - span.closed_ms
        expired = retention.time_ms == 0 or 0 < retention.time_ms < age_ms
        over_size = 0 <= retention.size_bytes <= remaining_bytes
        if not (expired or over_size):
            break
        count += 1
    return count
