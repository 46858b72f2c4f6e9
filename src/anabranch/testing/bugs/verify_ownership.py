"""Planted bugs of the rule about owners."""

from anabranch.testing.planted import original, planted
from anabranch.verify.ownership_rules import _Fences

_AFTER = "anabranch.verify.ownership_rules:_Fences.after"


@planted("late_owners_are_believed", target=_AFTER)
def late_owners_are_believed(self: _Fences, ledger: int) -> tuple[int, float] | None:
    """Nobody remembers that a later ledger was written."""
    del self, ledger
    return None


@planted("late_receipts_are_blamed", target=_AFTER)
def late_receipts_are_blamed(self: _Fences, ledger: int) -> tuple[int, float] | None:
    """When a message was sent does not matter, only when its receipt came."""
    found: tuple[int, float] | None = original("late_receipts_are_blamed")(self, ledger)
    return None if found is None else (found[0], float("-inf"))
