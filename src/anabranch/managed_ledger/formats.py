"""Pulsar's documents of managed ledgers and cursors: bytes to values and back. Pure."""

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from anabranch import limits
from anabranch.errors import CursorTooLarge, FormatError, InputError
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import Position
from anabranch.ledgers.stamps import (
    NO_STAMP,
    LedgerPlace,
    Stamp,
    stamp_in,
    stamp_properties,
    without_stamp,
)
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.managed_ledger.compressed_documents import unpack

IN_NODE = LedgerPlace(-1, NO_STAMP)
"""The cursor ledger of a cursor whose position is in its node."""
_OURS_OF_CURSORS = (
    "cursorsLedgerId",
    "markDeleteLedgerId",
    "markDeleteEntryId",
    "individualDeletedMessages",
    "properties",
    "batchedEntryDeletionIndexInfo",
    "cursorProperties",
)
_OURS_OF_POSITIONS = (
    "ledgerId",
    "entryId",
    "individualDeletedMessages",
    "properties",
    "batchedEntryDeletionIndexInfo",
    "individualDeletedMessageRanges",
)
_RUN_OF_ONES = re.compile("1+")

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class ChainDocument:
    """What a managed ledger's node says."""

    spans: tuple[LedgerSpan, ...] = ()
    terminated: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    extra: bytes = b""
    """Fields of newer writers, written back as they were."""


@dataclass(frozen=True, slots=True)
class CursorDocument:
    """What a cursor's node, or the last entry of its ledger, says."""

    cursor_ledger_id: int
    mark_delete: Position | None
    ranges: tuple[tuple[Position, Position], ...] = ()
    """Each without its lower and with its upper end; the ends may be in different ledgers."""
    batches: tuple[tuple[Position, tuple[int, ...]], ...] = ()
    properties: Mapping[str, int] = field(default_factory=dict)
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    """Without the stamp, which is not for users to see or lose."""
    stamp: Stamp = NO_STAMP
    """In which storage cluster the cursor ledger is."""
    extra: bytes = b""
    """Fields of the node that are others', such as when it was last used; written back as they
    were."""
    entry_extra: bytes = b""
    """The same of the last entry of its ledger."""


def _parse(kind: type[M], value: bytes, what: str) -> M:
    try:
        message = kind.FromString(value)
    except DecodeError as error:
        raise FormatError(f"{what} is not a {kind.DESCRIPTOR.name}: {error}") from None
    if not message.IsInitialized():
        raise FormatError(f"{what} is not a {kind.DESCRIPTOR.name}: a required field is missing")
    return message


def _position(info: pb.NestedPositionInfo) -> Position:
    return Position(info.ledgerId, info.entryId)


def _nested(position: Position) -> pb.NestedPositionInfo:
    return pb.NestedPositionInfo(ledgerId=position.ledger_id, entryId=position.entry_id)


# --- managed ledgers ------------------------------------------------------------------------------


def is_offloaded(span: LedgerSpan) -> bool:
    """Whether a ledger was moved to slower storage, and is no longer in the ledger store."""
    info = pb.ManagedLedgerInfo.LedgerInfo()
    info.MergeFromString(span.extra)
    return info.offloadContext.complete and info.offloadContext.bookkeeperDeleted


def decode_chain(value: bytes, name: str) -> ChainDocument:
    """Read a managed ledger's node.

    Raises:
        FormatError: if it is something else, or its ledgers are not in rising order.
    """
    what = f"managed ledger {name}"
    info = _parse(pb.ManagedLedgerInfo, unpack(value, what), what)
    spans = []
    for ledger in info.ledgerInfo:
        known = (ledger.ledgerId, ledger.entries, ledger.size, ledger.timestamp)
        for name_of_field in ("ledgerId", "entries", "size", "timestamp"):
            ledger.ClearField(name_of_field)
        stamp = _take_stamp(ledger, f"ledger {known[0]} of managed ledger {name}")
        spans.append(LedgerSpan(*known, extra=ledger.SerializePartialToString(), stamp=stamp))
        if len(spans) > 1 and spans[-2].ledger_id >= spans[-1].ledger_id:
            raise FormatError(
                f"managed ledger {name} lists ledger {spans[-1].ledger_id} "
                f"after {spans[-2].ledger_id}"
            )
    terminated = _position(info.terminatedPosition) if info.HasField("terminatedPosition") else None
    properties = {pair.key: pair.value for pair in info.properties}
    for name_of_field in ("ledgerInfo", "terminatedPosition", "properties"):
        info.ClearField(name_of_field)
    return ChainDocument(tuple(spans), terminated, properties, info.SerializeToString())


def _take_stamp(ledger: pb.ManagedLedgerInfo.LedgerInfo, what: str) -> Stamp:
    """Read the stamp among the properties of a ledger, and leave those of others."""
    if not ledger.properties:
        return NO_STAMP
    properties = {pair.key: pair.value for pair in ledger.properties}
    stamp = stamp_in(properties, what)
    if stamp != NO_STAMP:
        kept = without_stamp(properties)
        del ledger.properties[:]
        for key, value in kept.items():
            ledger.properties.add(key=key, value=value)
    return stamp


def encode_chain(document: ChainDocument) -> bytes:
    """Write a managed ledger's node."""
    info = pb.ManagedLedgerInfo.FromString(document.extra)
    for span in document.spans:
        ledger = info.ledgerInfo.add()
        if span.extra:
            ledger.MergeFromString(span.extra)
        for key, value in stamp_properties(span.stamp).items():
            ledger.properties.add(key=key, value=value)
        ledger.ledgerId = span.ledger_id
        ledger.timestamp = span.closed_ms
        if span.closed_ms or span.entries:
            ledger.entries = span.entries
            ledger.size = span.size_bytes
    if document.terminated is not None:
        info.terminatedPosition.CopyFrom(_nested(document.terminated))
    for key in sorted(document.properties):
        info.properties.add(key=key, value=document.properties[key])
    return info.SerializeToString()


# --- cursors --------------------------------------------------------------------------------------


def decode_cursor(value: bytes, name: str) -> CursorDocument:
    """Read a cursor's node.

    Raises:
        FormatError: if it is something else.
    """
    what = f"cursor {name}"
    info = _parse(pb.ManagedCursorInfo, unpack(value, what), what)
    mark_delete = None
    if info.HasField("markDeleteLedgerId") and info.HasField("markDeleteEntryId"):
        mark_delete = Position(info.markDeleteLedgerId, info.markDeleteEntryId)
    if mark_delete is None and info.cursorsLedgerId < 0:
        raise FormatError(f"cursor {name} has neither a position nor a ledger that holds one")
    cursor_properties = {pair.name: pair.value for pair in info.cursorProperties}
    return CursorDocument(
        info.cursorsLedgerId,
        mark_delete,
        _decode_ranges(info.individualDeletedMessages),
        _decode_batches(info.batchedEntryDeletionIndexInfo),
        {pair.name: pair.value for pair in info.properties},
        without_stamp(cursor_properties),
        stamp_in(cursor_properties, f"cursor {name}"),
        extra=_without(info, _OURS_OF_CURSORS),
    )


def decode_position_entry(value: bytes, node: CursorDocument, name: str) -> CursorDocument:
    """Read the last entry of a cursor ledger, which overrides what the cursor's node says.

    Raises:
        FormatError: if it is something else.
    """
    info = _parse(pb.PositionInfo, value, f"position of cursor {name}")
    return replace(
        node,
        mark_delete=Position(info.ledgerId, info.entryId),
        ranges=_decode_ranges(info.individualDeletedMessages)
        + tuple(_ranges_of_bitmaps(info.individualDeletedMessageRanges)),
        batches=_decode_batches(info.batchedEntryDeletionIndexInfo),
        properties={pair.name: pair.value for pair in info.properties},
        entry_extra=_without(info, _OURS_OF_POSITIONS),
    )


def _without(info: Message, ours: Iterable[str]) -> bytes:
    """What is left of a document when the fields that are written anew are taken out."""
    for name_of_field in ours:
        info.ClearField(name_of_field)
    return info.SerializePartialToString()


def _decode_ranges(ranges: Iterable[pb.MessageRange]) -> tuple[tuple[Position, Position], ...]:
    return tuple((_position(r.lowerEndpoint), _position(r.upperEndpoint)) for r in ranges)


def _decode_batches(
    batches: Iterable[pb.BatchedEntryDeletionIndexInfo],
) -> tuple[tuple[Position, tuple[int, ...]], ...]:
    return tuple((_position(batch.position), tuple(batch.deleteSet)) for batch in batches)


def _ranges_of_bitmaps(maps: Iterable[pb.LongListMap]) -> Iterable[tuple[Position, Position]]:
    for bitmap in maps:
        octets = struct.pack(f"<{len(bitmap.values)}q", *bitmap.values)
        # As text, lowest entry first: finding runs in it takes no step per entry.
        digits = f"{int.from_bytes(octets, 'little'):b}"[::-1]
        for run in _RUN_OF_ONES.finditer(digits):
            yield Position(bitmap.key, run.start() - 1), Position(bitmap.key, run.end() - 1)


def restore_acknowledged(document: CursorDocument, chain: Chain) -> Acknowledged:
    """Rebuild what a cursor had acknowledged, on the ledgers that are still there."""
    assert document.mark_delete is not None, "the position was read from the cursor ledger first"
    state = Acknowledged(chain, document.mark_delete)
    for lower, upper in document.ranges:
        if lower.ledger_id == upper.ledger_id:
            state.restore_range(lower.ledger_id, lower.entry_id + 1, upper.entry_id)
            continue
        # Older Pulsar joined ranges over the end of a ledger; ours stay within one.
        for ledger_id in [span.ledger_id for span in chain.spans]:
            if lower.ledger_id <= ledger_id <= upper.ledger_id:
                first = lower.entry_id + 1 if ledger_id == lower.ledger_id else 0
                full = chain.entries_of(ledger_id) - 1
                last = upper.entry_id if ledger_id == upper.ledger_id else full
                state.restore_range(ledger_id, first, last)
    for position, words in document.batches:
        if not state.is_acknowledged(position):
            state.acknowledge_batch(position, words)
    return state


def encode_cursor(
    state: Acknowledged,
    properties: Mapping[str, int],
    cursor_properties: Mapping[str, str],
    extra: bytes = b"",
) -> bytes | None:
    """Write a cursor's node with its whole state; None if that does not belong into a node.

    A state with parts of batches does not: Pulsar reads those from a cursor's ledger alone.

    Raises:
        InputError: if the properties are too large.
    """
    if state.has_batches:
        return None
    info = _cursor_info(IN_NODE.ledger_id, state.mark_delete, properties, cursor_properties, extra)
    budget = limits.CURSOR_RANGES_BYTES_MAX
    for ledger_id, first, last in state.ranges():
        lower, upper = Position(ledger_id, first - 1), Position(ledger_id, last)
        item = pb.MessageRange(lowerEndpoint=_nested(lower), upperEndpoint=_nested(upper))
        budget -= item.ByteSize() + 4
        if budget < 0:
            return None
        info.individualDeletedMessages.append(item)
    return info.SerializeToString()


def encode_cursor_pointer(
    place: LedgerPlace,
    mark_delete: Position,
    properties: Mapping[str, int],
    cursor_properties: Mapping[str, str],
    extra: bytes = b"",
) -> bytes:
    """Write the node of a cursor whose state is the last entry of a ledger.

    The position is where to go on if that ledger is lost.

    Raises:
        InputError: if the properties are too large.
    """
    texts = {**cursor_properties, **stamp_properties(place.stamp)}
    info = _cursor_info(place.ledger_id, mark_delete, properties, texts, extra)
    return info.SerializeToString()


def _cursor_info(
    cursor_ledger_id: int,
    mark_delete: Position,
    properties: Mapping[str, int],
    cursor_properties: Mapping[str, str],
    extra: bytes,
) -> pb.ManagedCursorInfo:
    info = pb.ManagedCursorInfo()
    info.MergeFromString(extra)
    info.cursorsLedgerId = cursor_ledger_id
    info.markDeleteLedgerId = mark_delete.ledger_id
    info.markDeleteEntryId = mark_delete.entry_id
    for key in sorted(properties):
        info.properties.add(name=key, value=properties[key])
    for key in sorted(cursor_properties):
        info.cursorProperties.add(name=key, value=cursor_properties[key])
    if info.ByteSize() > limits.CURSOR_PROPERTIES_BYTES_MAX:
        raise InputError(
            f"the properties of a cursor take {info.ByteSize()} bytes; "
            f"at most {limits.CURSOR_PROPERTIES_BYTES_MAX} are allowed"
        )
    return info


def encode_position_entry(
    state: Acknowledged, properties: Mapping[str, int], name: str, extra: bytes = b""
) -> bytes:
    """Write the whole state of a cursor as an entry of its ledger.

    Ranges go as bitmaps: a large state has many short ones, for which they take far less room
    and time than pairs of positions.

    Raises:
        CursorTooLarge: if it does not fit an entry.
    """
    info = pb.PositionInfo()
    info.MergeFromString(extra)
    info.ledgerId, info.entryId = state.mark_delete
    for key in sorted(properties):
        info.properties.add(name=key, value=properties[key])
    for ledger_id, ranges in state.ranges_by_ledger():
        info.individualDeletedMessageRanges.add(key=ledger_id, values=_bitmap(list(ranges)))
    for position, pending in state.batches():
        info.batchedEntryDeletionIndexInfo.add(position=_nested(position), deleteSet=pending)
    size = info.ByteSize()
    if size > limits.CURSOR_ENTRY_BYTES_MAX:
        raise CursorTooLarge(
            f"the acknowledgements of cursor {name} above {state.mark_delete} take {size} bytes, "
            f"of which {limits.CURSOR_ENTRY_BYTES_MAX} can be stored; nothing more is durable "
            "until older messages are acknowledged"
        )
    return info.SerializeToString()


def _bitmap(ranges: Sequence[tuple[int, int]]) -> Sequence[int]:
    """Signed 64-bit words, least significant first, with a bit for every entry of the ranges."""
    words = ranges[-1][1] // 64 + 1
    octets = bytearray(words * 8)
    for first, last in ranges:
        if first == last:
            octets[first // 8] |= 1 << first % 8
            continue
        low, high = first // 8, last // 8 + 1
        bits = (1 << last - first + 1) - 1 << first % 8
        bits |= int.from_bytes(octets[low:high], "little")
        octets[low:high] = bits.to_bytes(high - low, "little")
    return struct.unpack(f"<{words}q", octets)
