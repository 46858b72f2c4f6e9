"""Ledgers on bookies that are not deleted just because nothing here names them."""

from types import MappingProxyType

import pytest

from anabranch.cli.ledgers_on_bookies import _refuse_doubtful
from anabranch.errors import ConflictError
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, LedgerMetadata, State


def ledger(state: State, custom: dict[str, bytes]) -> LedgerMetadata:
    return LedgerMetadata(
        ledger_id=7,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        state=state,
        last_entry_id=0 if state is State.CLOSED else -1,
        length=1,
        digest=DigestType.CRC32C,
        password=b"",
        segments=(EnsembleSegment(0, ("127.0.0.1:3181",)),),
        custom_metadata=MappingProxyType(custom),
    )


def refusal(metadata: LedgerMetadata) -> str:
    """Why the ledger is not deleted; empty if it is."""
    try:
        _refuse_doubtful(metadata)
    except ConflictError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("state", "custom", "said"),
    [
        (State.OPEN, {"component": b"managed-ledger"}, "ledger 7 is open: somebody may be"),
        (State.IN_RECOVERY, {"component": b"schema"}, "ledger 7 is in recovery: somebody"),
        (State.CLOSED, {}, "ledger 7 does not say who made it"),
        (State.CLOSED, {"component": b"functions"}, "whose documents are not known here"),
    ],
)
def test_doubtful_ones_need_force(state: State, custom: dict[str, bytes], said: str) -> None:
    assert said in refusal(ledger(state, custom))


def test_a_closed_one_of_a_known_maker_does_not() -> None:
    assert refusal(ledger(State.CLOSED, {"component": b"managed-ledger"})) == ""
