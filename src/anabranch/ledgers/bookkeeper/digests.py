"""Entry packets as bookies keep them: a header, a digest, the payload. Pure.

packet := ledger id i64 | entry id i64 | last confirmed i64 | length i64 | digest | payload
lac    := ledger id i64 | last confirmed i64 | digest

The length is that of all payloads of the ledger up to this one. The digest covers what is before
and behind it; which kind it is stands in the ledger's metadata. Big-endian throughout.
"""

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from crc32c import crc32c

from anabranch.errors import Corruption
from anabranch.runtime.network import Buffer

_HEADER: Final = struct.Struct(">qqqq")
_LAC: Final = struct.Struct(">qq")
_CRC32: Final = struct.Struct(">Q")
_CRC32C: Final = struct.Struct(">I")
LAST_ENTRY: Final = -1
"""Asked for instead of an entry id: the last one that the bookie has."""


class DigestType(Enum):
    """How entries are checked, with BookKeeper's numbers."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class Packet(NamedTuple):
    """One entry as a bookie gave it, found to be what its writer sent."""

    entry_id: int
    last_confirmed: int
    """What the writer knew to be confirmed when it sent the entry."""
    length: int
    """Of all payloads of the ledger up to and with this one."""
    payload: memoryview


def master_key(password: bytes) -> bytes:
    """What a bookie is shown with every write and fencing read of a ledger."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


class PacketDigest:
    """Makes and checks the packets of ledgers with one kind of digest and one password."""

    __slots__ = ("_of", "digest_type", "overhead_bytes", "size_bytes")

    def __init__(self, digest_type: DigestType, password: bytes) -> None:
        self.digest_type = digest_type
        self._of, self.size_bytes = _digest_function(digest_type, password)
        self.overhead_bytes = _HEADER.size + self.size_bytes
        """What a packet has beside its payload."""

    def header_and_digest(
        self, ledger_id: int, entry_id: int, last_confirmed: int, length: int, payload: Buffer
    ) -> bytes:
        """What a packet begins with; the payload follows it."""
        header = _HEADER.pack(ledger_id, entry_id, last_confirmed, length)
        return header + self._of(header, payload)

    def lac_packet(self, ledger_id: int, last_confirmed: int) -> bytes:
        """What tells a bookie the last confirmed entry without an entry."""
        header = _LAC.pack(ledger_id, last_confirmed)
        return header + self._of(header, b"")

    def open_packet(self, packet: Buffer, ledger_id: int, entry_id: int) -> Packet:
        """Check a packet that was read as an entry, or as `LAST_ENTRY`; its payload is a view.

        Raises:
            Corruption: if it is not the packet of that entry as it was written.
        """
        view = memoryview(packet)
        start = self.overhead_bytes
        if len(view) < start:
            raise _damaged(ledger_id, entry_id, f"{len(view)} bytes, a packet has at least {start}")
        header, payload = view[: _HEADER.size], view[start:]
        found_ledger, found_entry, last_confirmed, length = _HEADER.unpack(header)
        if self._of(header, payload) != view[_HEADER.size : start]:
            raise _damaged(ledger_id, entry_id, f"wrong {self.digest_type.name} digest")
        if found_ledger != ledger_id:
            raise _damaged(ledger_id, entry_id, f"the packet is of ledger {found_ledger}")
        if found_entry != entry_id and (entry_id != LAST_ENTRY or found_entry < 0):
            raise _damaged(ledger_id, entry_id, f"the packet is of entry {found_entry}")
        # May be above the entry itself: who copies a closed ledger knows that it is all confirmed.
        if last_confirmed < -1:
            raise _damaged(ledger_id, entry_id, f"it says entry {last_confirmed} is confirmed")
        if length < len(payload):
            raise _damaged(ledger_id, entry_id, f"a length of {length} is less than its own")
        return Packet(found_entry, last_confirmed, length, payload)

    def open_lac_packet(self, packet: Buffer, ledger_id: int) -> int:
        """The last confirmed entry that a packet made by `lac_packet` tells.

        Raises:
            Corruption: if it is not such a packet of that ledger.
        """
        view = memoryview(packet)
        if len(view) != _LAC.size + self.size_bytes:
            raise _damaged(ledger_id, None, f"{len(view)} bytes are no last confirmed entry")
        header = view[: _LAC.size]
        found_ledger, last_confirmed = _LAC.unpack(header)
        if self._of(header, b"") != view[_LAC.size :]:
            raise _damaged(ledger_id, None, f"wrong {self.digest_type.name} digest")
        if found_ledger != ledger_id or last_confirmed < -1:
            detail = f"it tells entry {last_confirmed} of ledger {found_ledger}"
            raise _damaged(ledger_id, None, detail)
        return int(last_confirmed)


_DigestFunction = Callable[[Buffer, Buffer], bytes]


def _digest_function(digest_type: DigestType, password: bytes) -> tuple[_DigestFunction, int]:
    """The digest over two parts, and how long it is."""
    if digest_type is DigestType.CRC32C:
        return _crc32c, _CRC32C.size
    if digest_type is DigestType.CRC32:
        return _crc32, _CRC32.size
    if digest_type is DigestType.DUMMY:
        return _nothing, 0
    key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()
    keyed = hmac.new(key, digestmod="sha1")

    def hmac_sha1(first: Buffer, second: Buffer) -> bytes:
        # A copy saves the two hash blocks that the key takes.
        digest = keyed.copy()
        digest.update(first)
        digest.update(second)
        return digest.digest()

    return hmac_sha1, keyed.digest_size


def _crc32c(first: Buffer, second: Buffer) -> bytes:
    return _CRC32C.pack(crc32c(second, crc32c(first)))


def _crc32(first: Buffer, second: Buffer) -> bytes:
    return _CRC32.pack(zlib.crc32(second, zlib.crc32(first)))


def _nothing(first: Buffer, second: Buffer) -> bytes:
    return b""


def _damaged(ledger_id: int, entry_id: int | None, detail: str) -> Corruption:
    if entry_id is None:
        what = "the last confirmed entry"
    else:
        what = "the last entry" if entry_id == LAST_ENTRY else f"entry {entry_id}"
    return Corruption(f"{what} of ledger {ledger_id}", 0, detail)
