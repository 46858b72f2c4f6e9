"""How a retention policy reads as the managed ledger's retention. Pure."""

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.managed_ledger.retention import Retention
from anabranch.policies import RetentionRule

_MINUTE_MS = 60_000


def retention_of(rule: RetentionRule) -> Retention | None:
    """The rule in units of the managed ledger; None for one that contradicts itself."""
    try:
        return Retention(
            time_ms=_scaled(rule.time_minutes, _MINUTE_MS),
            size_bytes=_scaled(rule.size_mb, limits.MIB),
        )
    except ConfigError:
        return None


def _scaled(number: int, unit: int) -> int:
    return number * unit if number > 0 else number
