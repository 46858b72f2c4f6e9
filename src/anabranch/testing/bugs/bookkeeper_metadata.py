"""Planted bugs of `anabranch.ledgers.bookkeeper`: its formats, its metadata, its ids."""

import struct

from anabranch.generated import bookkeeper_formats_pb2 as pb
from anabranch.ledgers.bookkeeper.digests import Packet, PacketDigest
from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata, encode_metadata
from anabranch.ledgers.bookkeeper.ledger_registry import Found, LedgerRegistry
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted

_FORMATS = "anabranch.ledgers.bookkeeper"


@planted("ledger_metadata_are_believed", target=f"{_FORMATS}.ledger_metadata:_contradiction")
def ledger_metadata_are_believed(_metadata: LedgerMetadata) -> None:
    """Metadata that contradict themselves are taken for a ledger."""


@planted("ledger_metadata_of_any_version", target=f"{_FORMATS}.ledger_metadata:_message_of")
def ledger_metadata_of_any_version(data: bytes) -> pb.LedgerMetadataFormat:
    """Metadata of a later version are read as if they were of the present one."""
    title, _, body = data.partition(b"\n")
    name, _, _ = title.partition(b"\t")
    made: pb.LedgerMetadataFormat = original("ledger_metadata_of_any_version")(
        b"%s\t3\n%s" % (name, body)
    )
    return made


@planted("cut_ledger_metadata_are_believed", target=f"{_FORMATS}.ledger_metadata:_from_binary")
def cut_ledger_metadata_are_believed(body: bytes) -> pb.LedgerMetadataFormat:
    """The size that metadata say they have is not looked at."""
    made: pb.LedgerMetadataFormat = original("cut_ledger_metadata_are_believed")(
        bytes([len(body) - 1]) + body[1:]
    )
    return made


@planted("ledgers_of_any_password", target=f"{_FORMATS}.reader:check_password")
def ledgers_of_any_password(_metadata: LedgerMetadata, _password: bytes) -> None:
    """Whoever reaches the bookies gets at every ledger."""


@planted("ledger_ids_are_used_again", target=f"{_FORMATS}.ledger_registry:LedgerRegistry.create")
async def ledger_ids_are_used_again(self: LedgerRegistry, metadata: LedgerMetadata) -> Found:
    """A new ledger takes the place of one with the same id."""
    path = self.paths.ledger(metadata.ledger_id)
    stat = await self._store.put(path, encode_metadata(metadata))
    return Found(metadata, stat.version)


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
