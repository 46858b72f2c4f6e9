"""How a persistence policy reads as the quorums of a topic's ledgers. Pure."""

from anabranch import limits
from anabranch.ledgers.store import LedgerQuorums
from anabranch.policies import Persistence


def quorums_of(rule: Persistence | None) -> LedgerQuorums | None:
    """Of ledgers that are begun; None, for the store's own, also if it contradicts itself.

    One that wants more bookies than a ledger may have is cut: others may have stored it, and a
    topic must not fail for it when its ledger is full.
    """
    if rule is None or rule.contradicts_itself:
        return None
    top = limits.BOOKKEEPER_ENSEMBLE_MAX
    return LedgerQuorums(
        min(rule.bookkeeper_ensemble, top),
        min(rule.bookkeeper_write_quorum, top),
        min(rule.bookkeeper_ack_quorum, top),
    )
