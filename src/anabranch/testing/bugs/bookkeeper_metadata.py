"""Planted bugs of `anabranch.ledgers.bookkeeper`: its formats, its metadata, its ids."""

import struct

from anabranch.ledgers.bookkeeper.digests import Packet, PacketDigest
from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted

_FORMATS = "anabranch.ledgers.bookkeeper"


@planted("ledger_metadata_are_believed", target=f"{_FORMATS}.ledger_metadata:_contradiction")
def ledger_metadata_are_believed(_metadata: LedgerMetadata) -> None:
    """Metadata that contradict themselves are taken for a ledger."""


@planted("packets_are_believed", target=f"{_FORMATS}.digests:PacketDigest.open_packet")
def packets_are_believed(
    self: PacketDigest, packet: Buffer, _ledger_id: int, _entry_id: int
) -> Packet:
    """The digest of a packet is not looked at."""
    data = bytes(packet).ljust(self.overhead_bytes, b"\0")
    _, entry_id, last_confirmed, length = struct.unpack_from(">qqqq", data)
    return Packet(entry_id, last_confirmed, length, memoryview(data)[self.overhead_bytes :])


@planted("ids_are_drawn_twice", target=f"{_FORMATS}.id_generation:SharedLedgerIds._draw")
async def ids_are_drawn_twice(self: SharedLedgerIds, path: str) -> int:
    """Two who draw one after the other get the same number."""
    return int(await original("ids_are_drawn_twice")(self, path)) // 2


@planted("far_floor_is_not_raised", target=f"{_FORMATS}.id_generation:SharedLedgerIds._make_upper")
async def far_floor_is_not_raised(self: SharedLedgerIds, _upper: int) -> int:
    """Ids with an upper half begin with the first one, whatever the floor."""
    return int(await original("far_floor_is_not_raised")(self, 1))
