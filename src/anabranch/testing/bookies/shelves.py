"""What one bookie holds, and what it answers: values in, values out.

An entry is kept as the packet it came in:

    ledger i64 | entry i64 | last confirmed i64 | length i64 | digest and payload

A bookie knows nothing of ensembles or quorums and does not check digests. It refuses writers of a
ledger that was fenced, and whoever does not know the ledger's key; it gives back what it was
given, or what the disk has made of it. A change is a `Record`: decided first, taken in by `learn`
at once, and answered by the caller only when the record is durable.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

PACKET_HEADER: Final = struct.Struct(">qqqq")
LAC_HEADER: Final = struct.Struct(">qq")
LAST_ENTRY: Final = -1
"""Asked for as an entry id: the last one that is here."""
NONE_CONFIRMED: Final = -1


class Status(IntEnum):
    """How a request ended, in the numbers of the wire."""

    OK = 0
    NO_LEDGER = 402
    NO_ENTRY = 403
    BAD_REQUEST = 404
    IO_ERROR = 501
    UNAUTHORIZED = 502
    FENCED = 504
    READ_ONLY = 505
    TOO_MANY_REQUESTS = 506


class RecordKind(IntEnum):
    """What a record of the bookie's journal tells."""

    KEY = 1
    ENTRY = 2
    FENCE = 3
    CONFIRMED = 4


@dataclass(frozen=True, slots=True)
class Record:
    """One change."""

    kind: RecordKind
    ledger_id: int
    content: bytes = b""
    """The key, the entry's packet, or the packet of the last confirmed entry."""


class Verdict(NamedTuple):
    """What comes of a request that may change something."""

    status: Status
    records: tuple[Record, ...] = ()
    """To be durable before anybody hears of the status."""


class Found(NamedTuple):
    """What comes of a read."""

    status: Status
    body: bytes = b""
    confirmed: int = NONE_CONFIRMED


@dataclass(slots=True)
class Shelf:
    """One ledger's part of a bookie."""

    key: bytes
    entries: dict[int, bytes] = field(default_factory=dict)
    fenced: bool = False
    confirmed: int = NONE_CONFIRMED
    """The largest that any entry or explicit notice told."""
    confirmed_packet: bytes = b""

    @property
    def last(self) -> int:
        """The largest entry id here; -1 if there is none."""
        return max(self.entries, default=LAST_ENTRY)


class Shelves:
    """All ledgers of one bookie."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Shelf] = {}
        self.read_only = False

    # --- changes ------------------------------------------------------------------------------

    def add(self, ledger_id: int, key: bytes, packet: bytes, *, recovery: bool = False) -> Verdict:
        """Decide on an entry. Only recovery may write to a fenced ledger."""
        if len(packet) < PACKET_HEADER.size or PACKET_HEADER.unpack_from(packet)[0] != ledger_id:
            return Verdict(Status.BAD_REQUEST)
        if self.read_only:
            return Verdict(Status.READ_ONLY)
        shelf = self.ledgers.get(ledger_id)
        if shelf is not None and shelf.key != key:
            return Verdict(Status.UNAUTHORIZED)
        if shelf is not None and shelf.fenced and not recovery:
            return Verdict(Status.FENCED)
        entry = Record(RecordKind.ENTRY, ledger_id, packet)
        return Verdict(Status.OK, (*self._introduce(ledger_id, key), entry))

    def fence(self, ledger_id: int, key: bytes) -> Verdict:
        """Decide on a fence: nobody but recovery writes to the ledger any more.

        Also for a ledger that nothing was ever written of, and on a bookie that is full.
        """
        shelf = self.ledgers.get(ledger_id)
        if shelf is not None and shelf.key != key:
            return Verdict(Status.UNAUTHORIZED)
        if shelf is not None and shelf.fenced:
            return Verdict(Status.OK)
        fence = Record(RecordKind.FENCE, ledger_id)
        return Verdict(Status.OK, (*self._introduce(ledger_id, key), fence))

    def confirm(self, ledger_id: int, key: bytes, packet: bytes) -> Verdict:
        """Decide on an explicit notice of the last confirmed entry."""
        if len(packet) < LAC_HEADER.size or LAC_HEADER.unpack_from(packet)[0] != ledger_id:
            return Verdict(Status.BAD_REQUEST)
        if self.read_only:
            return Verdict(Status.READ_ONLY)
        shelf = self.ledgers.get(ledger_id)
        if shelf is not None and shelf.key != key:
            return Verdict(Status.UNAUTHORIZED)
        notice = Record(RecordKind.CONFIRMED, ledger_id, packet)
        return Verdict(Status.OK, (*self._introduce(ledger_id, key), notice))

    def _introduce(self, ledger_id: int, key: bytes) -> tuple[Record, ...]:
        if ledger_id in self.ledgers:
            return ()
        return (Record(RecordKind.KEY, ledger_id, key),)

    def learn(self, record: Record) -> None:
        """Take in a change, decided now or read back from the journal."""
        if record.kind is RecordKind.KEY:
            self.ledgers[record.ledger_id] = Shelf(record.content)
            return
        shelf = self.ledgers[record.ledger_id]
        if record.kind is RecordKind.FENCE:
            shelf.fenced = True
        elif record.kind is RecordKind.ENTRY:
            _, entry_id, confirmed, _ = PACKET_HEADER.unpack_from(record.content)
            shelf.entries[entry_id] = record.content
            shelf.confirmed = max(shelf.confirmed, confirmed)
        else:
            _, confirmed = LAC_HEADER.unpack_from(record.content)
            if confirmed >= shelf.confirmed:
                shelf.confirmed_packet = record.content
            shelf.confirmed = max(shelf.confirmed, confirmed)

    # --- reads --------------------------------------------------------------------------------

    def read(self, ledger_id: int, entry_id: int) -> Found:
        """The packet of an entry, or of the last one."""
        shelf = self.ledgers.get(ledger_id)
        if shelf is None:
            return Found(Status.NO_LEDGER)
        packet = shelf.entries.get(shelf.last if entry_id == LAST_ENTRY else entry_id)
        if packet is None:
            return Found(Status.NO_ENTRY)
        return Found(Status.OK, packet, shelf.confirmed)

    def read_confirmed(self, ledger_id: int) -> tuple[Status, bytes, bytes]:
        """The packet of the newest explicit notice and that of the last entry, empty if absent."""
        shelf = self.ledgers.get(ledger_id)
        if shelf is None:
            return Status.NO_LEDGER, b"", b""
        last = shelf.entries.get(shelf.last, b"")
        status = Status.OK if last or shelf.confirmed_packet else Status.NO_ENTRY
        return status, shelf.confirmed_packet, last
