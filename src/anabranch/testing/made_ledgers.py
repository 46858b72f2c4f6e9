"""Metadata of ledgers and of what names them, for tests that take stock of both."""

from collections.abc import Mapping, Sequence

from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.ledger_metadata import (
    EnsembleSegment,
    LedgerMetadata,
    State,
    encode_metadata,
)
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths

ENTRIES = 10
ENTRY_BYTES = 100
COPIES = 2


def ledger_node(
    ledger_id: int,
    created_ms: int,
    made_for: str = "",
    *,
    component: str = "managed-ledger",
    closed: bool = True,
) -> tuple[str, bytes]:
    """Where a ledger's metadata are, and what they say."""
    custom = {"component": component.encode()}
    if made_for:
        custom["pulsar/managed-ledger"] = made_for.encode()
    metadata = LedgerMetadata(
        ledger_id,
        ensemble_size=COPIES,
        write_quorum=COPIES,
        ack_quorum=COPIES,
        state=State.CLOSED if closed else State.OPEN,
        last_entry_id=ENTRIES - 1 if closed else -1,
        length=ENTRIES * ENTRY_BYTES if closed else 0,
        digest=DigestType.CRC32C,
        password=b"",
        segments=(EnsembleSegment(0, ("bookie-1:3181", "bookie-2:3181")),),
        ctime_ms=created_ms,
        custom_metadata=custom,
        ctoken=1,
    )
    return LedgerPaths().ledger(ledger_id), encode_metadata(metadata)


def chain_node(name: str, ledger_ids: Sequence[int], offloaded: int = -1) -> tuple[str, bytes]:
    """The node of a managed ledger; one of its ledgers may be in slower storage alone."""
    info = pb.ManagedLedgerInfo()
    for ledger_id in ledger_ids:
        added = info.ledgerInfo.add(ledgerId=ledger_id, entries=ENTRIES, size=1, timestamp=1)
        if ledger_id == offloaded:
            added.offloadContext.complete = added.offloadContext.bookkeeperDeleted = True
    return f"/managed-ledgers/{name}", info.SerializeToString()


def cursor_node(name: str, ledger_id: int, numbers: Mapping[str, int] = {}) -> tuple[str, bytes]:
    """The node of a cursor whose state is in a ledger."""
    info = pb.ManagedCursorInfo(
        cursorsLedgerId=ledger_id, markDeleteLedgerId=1, markDeleteEntryId=0
    )
    for key, number in numbers.items():
        info.properties.add(name=key, value=number)
    return f"/managed-ledgers/{name}", info.SerializeToString()
