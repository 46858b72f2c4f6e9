r"""What BookKeeper's metadata store says of a ledger, and the bytes it is kept in. Pure.

document := "BookieMetadataFormatVersion\t" version "\n" body
body     := size varint | LedgerMetadataFormat          version 3, the one that is written
          | LedgerMetadataFormat in protobuf's text form   version 2, read only

Fields that this build does not know are kept and written again, so that a newer BookKeeper finds
what it wrote. Documents that contradict themselves are refused: a wrong guess loses entries.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from anabranch import limits
from anabranch.errors import FormatError, InputError
from anabranch.generated import bookkeeper_formats_pb2 as pb
from anabranch.ledgers.bookkeeper.digests import DigestType

_MAGIC: Final = b"BookieMetadataFormatVersion\t"
_BINARY_VERSION, _TEXT_VERSION = 3, 2
_VERSION_DIGITS_MAX: Final = 10


class State(Enum):
    """Where a ledger is in its life, with BookKeeper's numbers."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class EnsembleSegment:
    """The bookies that hold the entries from some entry on."""

    first_entry_id: int
    bookies: tuple[str, ...]
    """Their ids; the order says which entries each has."""
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """All that is known of a ledger without asking a bookie."""

    ledger_id: int
    """Not in the document: where it is kept says it."""
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: State
    last_entry_id: int
    """-1 until the ledger is closed, and if it is empty."""
    length: int
    """Of all payloads; 0 until the ledger is closed."""
    digest: DigestType
    password: bytes = field(repr=False)
    segments: tuple[EnsembleSegment, ...]
    """By first entry, ascending; the first begins at 0."""
    ctime_ms: int | None = None
    """None if the metadata store's own time of creation is meant."""
    custom_metadata: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    ctoken: int | None = None
    """Drawn by who made the ledger, to know their own again. None in old documents."""
    unknown_fields: bytes = b""

    def segment_of(self, entry_id: int) -> EnsembleSegment:
        """The segment that an entry is in, or would be."""
        place = bisect_right(self.segments, entry_id, key=lambda segment: segment.first_entry_id)
        return self.segments[max(place - 1, 0)]


def decode_metadata(ledger_id: int, data: bytes) -> LedgerMetadata:
    """Read a ledger's document.

    Raises:
        FormatError: naming the ledger and what is wrong.
    """
    try:
        message = _message_of(data)
        metadata = _metadata_of(ledger_id, message)
    except _Fault as fault:
        raise FormatError(f"the metadata of ledger {ledger_id}: {fault}") from None
    if (contradiction := _contradiction(metadata)) is not None:
        raise FormatError(f"the metadata of ledger {ledger_id}: {contradiction}")
    return metadata


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """The bytes that BookKeeper itself would write.

    Raises:
        InputError: if the metadata contradict themselves, or are too large for a metadata store.
    """
    if (contradiction := _contradiction(metadata)) is not None:
        raise InputError(f"the metadata of ledger {metadata.ledger_id}: {contradiction}")
    message = pb.LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry_id,
        state=metadata.state.name,
        digestType=metadata.digest.name,
        password=metadata.password,
        ackQuorumSize=metadata.ack_quorum,
        ctime=metadata.ctime_ms,
        cToken=metadata.ctoken,
    )
    for segment in metadata.segments:
        added = message.segment.add()
        added.ensembleMember.extend(segment.bookies)
        added.firstEntryId = segment.first_entry_id
        added.MergeFromString(segment.unknown_fields)
    for key, value in metadata.custom_metadata.items():
        message.customMetadata.add(key=key, value=value)
    body = message.SerializeToString() + metadata.unknown_fields
    document = b"%s%d\n%s%s" % (_MAGIC, _BINARY_VERSION, _varint(len(body)), body)
    if len(document) > limits.METADATA_VALUE_BYTES_MAX:
        raise InputError(
            f"the metadata of ledger {metadata.ledger_id} have {len(document)} bytes, more than "
            f"{limits.METADATA_VALUE_BYTES_MAX}: its own metadata or its segments are too many"
        )
    return document


class _Fault(Exception):
    """What is wrong with a document."""


def _message_of(data: bytes) -> pb.LedgerMetadataFormat:
    if not data.startswith(_MAGIC):
        raise _Fault(f"no ledger metadata, it begins with {data[:30]!r}")
    end = data.find(b"\n", len(_MAGIC), len(_MAGIC) + _VERSION_DIGITS_MAX + 1)
    digits = data[len(_MAGIC) : max(end, 0)]
    if not digits.isdigit():
        raise _Fault(f"no version, it begins with {data[: len(_MAGIC) + 11]!r}")
    version, body = int(digits), data[end + 1 :]
    if version == _BINARY_VERSION:
        return _from_binary(body)
    if version == _TEXT_VERSION:
        return _from_text(body)
    raise _Fault(f"version {version}; this build knows {_TEXT_VERSION} and {_BINARY_VERSION}")


def _from_binary(body: bytes) -> pb.LedgerMetadataFormat:
    size, start = _read_varint(body)
    if size > len(body) - start:
        raise _Fault(f"cut off: {len(body) - start} of {size} bytes")
    if size < len(body) - start:
        raise _Fault(f"{len(body) - start - size} bytes behind its end")
    message = pb.LedgerMetadataFormat()
    try:
        message.ParseFromString(body[start:])
    except DecodeError as error:
        raise _Fault(f"cannot be parsed: {error}") from None
    return message


def _from_text(body: bytes) -> pb.LedgerMetadataFormat:
    message = pb.LedgerMetadataFormat()
    try:
        text_format.Parse(body, message)
    except (text_format.ParseError, ValueError) as error:
        raise _Fault(f"cannot be parsed: {error}") from None
    return message


def _metadata_of(ledger_id: int, message: pb.LedgerMetadataFormat) -> LedgerMetadata:
    for name in ("quorumSize", "ensembleSize", "length", "state"):
        if not message.HasField(name):
            raise _Fault(_missing(message, name))
    if not message.HasField("digestType") and _unknown_value(message, "digestType") is not None:
        raise _Fault(_missing(message, "digestType"))
    for number, segment in enumerate(message.segment):
        if not segment.HasField("firstEntryId"):
            raise _Fault(f"segment {number} has no first entry")
    state = State(message.state)
    closed = state is State.CLOSED
    ack = message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=ack,
        state=state,
        # Of a ledger that is not closed they mean nothing, whatever they are.
        last_entry_id=message.lastEntryId if closed and message.HasField("lastEntryId") else -1,
        length=message.length if closed else 0,
        digest=DigestType(message.digestType),
        password=message.password,
        segments=tuple(
            EnsembleSegment(
                segment.firstEntryId,
                tuple(map(_text, segment.ensembleMember)),
                _unknown_fields(segment),
            )
            for segment in message.segment
        ),
        ctime_ms=message.ctime if message.HasField("ctime") else None,
        custom_metadata=MappingProxyType(
            {_text(entry.key): entry.value for entry in message.customMetadata}
        ),
        ctoken=message.cToken if message.HasField("cToken") else None,
        unknown_fields=_unknown_fields(message),
    )


def _contradiction(metadata: LedgerMetadata) -> str | None:
    """Why nobody can work with such a ledger; None if all is well."""
    ensemble, write, ack = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
    if not 1 <= ack <= write <= ensemble <= limits.BOOKKEEPER_ENSEMBLE_MAX:
        return f"impossible quorums: ensemble {ensemble}, write {write}, ack {ack}"
    if not metadata.segments:
        return "no segment says where its entries are"
    if metadata.segments[0].first_entry_id != 0:
        return f"its first segment begins at entry {metadata.segments[0].first_entry_id}, not 0"
    before = -1
    for segment in metadata.segments:
        first = segment.first_entry_id
        if first <= before:
            return f"a segment at entry {first} follows one at entry {before}"
        if len(segment.bookies) != ensemble:
            return f"{len(segment.bookies)} bookies from entry {first} on instead of {ensemble}"
        if not all(segment.bookies):
            return f"a bookie without a name from entry {first} on"
        before = first
    if metadata.last_entry_id < -1 or metadata.length < 0:
        return f"it ends at entry {metadata.last_entry_id} with {metadata.length} bytes"
    if metadata.state is not State.CLOSED and (metadata.last_entry_id, metadata.length) != (-1, 0):
        return f"{metadata.state.name}, but with an end at entry {metadata.last_entry_id}"
    return None


def _text(name: object) -> str:
    if isinstance(name, str):
        return name
    # Protobuf gives the bytes of a text that is none.
    raise _Fault(f"a name that is no text: {name!r}")


def _missing(message: pb.LedgerMetadataFormat, name: str) -> str:
    value = _unknown_value(message, name)
    return f"no {name}" if value is None else f"{name} {value}, which this build does not know"


def _unknown_value(message: Message, name: str) -> object:
    """A value of an enumeration that this build has no name for; None if there is none."""
    number = message.DESCRIPTOR.fields_by_name[name].number
    unknown = UnknownFieldSet(message)
    entries = [unknown[place] for place in range(len(unknown))]
    return next((entry.data for entry in entries if entry.field_number == number), None)


def _unknown_fields(message: Message) -> bytes:
    if not len(UnknownFieldSet(message)):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for known, _ in message.ListFields():
        rest.ClearField(known.name)
    return rest.SerializeToString()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, place + 1
    raise _Fault("no size of the body")
