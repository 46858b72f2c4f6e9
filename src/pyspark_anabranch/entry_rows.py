"""From stored entries to rows: where everything is, before anything is copied. Pure.

An entry is looked at once: its checksum, its metadata, its payload decrypted and unpacked. Of the
messages in it only places and numbers are taken, all of one chunk together; `row_columns` makes
columns of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from anabranch import limits
from anabranch.errors import AnabranchError, ConfigError, ProtocolError
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.wire import Buffer, parse_entry, signed, verify_checksum
from anabranch.wire.compression import decompress
from pyspark_anabranch.arrays import Bools, Bytes, Int32s, Int64s
from pyspark_anabranch.chunked_messages import ChunkedMessages
from pyspark_anabranch.encrypted_entries import NO_KEYS, Unlocking
from pyspark_anabranch.message_fields import (
    ABSENT,
    PADDING_BYTES,
    MessageFields,
    read_fields,
)
from pyspark_anabranch.message_walk import SIZE_BYTES, messages_of_batch, walk

NO_BATCH: Final = -1
"""The batch index of a message that has an entry of its own, as in Pulsar's message ids."""
_PADDING: Final = bytes(PADDING_BYTES)


class DamagedEntry(AnabranchError):
    """An entry that is not as its producer sent it, or that cannot be read; names the place."""


class MissingEntry(AnabranchError):
    """An entry that the broker had listed did not come, or is not there; names the place."""

    retriable = True


class StoredEntry(NamedTuple):
    """An entry, and which of its messages are wanted."""

    ledger_id: int
    entry_id: int
    content: Buffer
    first: int = 0
    until: int | None = None
    """The batch index before which it ends; None for all."""


@dataclass(slots=True)
class Rows:
    """The messages of a chunk of entries. Arrays have one element for each message."""

    data: Bytes
    entries: Sequence[StoredEntry]
    metadata: Sequence[MessageMetadata]
    entry_of: Int64s
    """Which of `entries` a message is in."""
    batch_index: Int32s
    value_starts: Int64s
    value_ends: Int64s
    fields: MessageFields
    wanted: Bools
    locked: frozenset[int]
    """Which of `entries` are handed over as they are stored, because no key opens them."""

    @property
    def count(self) -> int:
        """How many messages are wanted."""
        return int(self.wanted.sum())


class _Gathering:
    """Unpacked payloads one behind the other, and where in them things are."""

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.size = 0
        self.batches: list[tuple[int, int, int, int]] = []
        """Of each batch: which entry, from where, to where, how many messages."""
        self.singles: list[tuple[int, int, int, int]] = []
        """Of each message that came alone: which entry, and where key, value and end are."""
        self.locked: set[int] = set()

    def add(self, part: Buffer) -> None:
        self.parts.append(part)
        self.size += len(part)

    def add_single(self, index: int, metadata: MessageMetadata, payload: Buffer) -> None:
        start = self.size
        key = metadata.partition_key
        self.add(key.encode() if isinstance(key, str) else key)
        value = self.size
        self.add(payload)
        self.singles.append((index, start, value, self.size))


def rows_of(
    entries: Sequence[StoredEntry],
    chunks: ChunkedMessages | None = None,
    unlocking: Unlocking = NO_KEYS,
) -> Rows:
    """Look into entries.

    Args:
        entries: in their order.
        chunks: of messages that begin before them, and afterwards of those that go on behind them.
        unlocking: for those that are encrypted.

    Raises:
        NotDecrypted: naming the first that no key opens.
        DamagedEntry: naming the first that cannot be read.
        BeginsBefore: if a message ends in them whose beginning is not known.
    """
    known = ChunkedMessages() if chunks is None else chunks
    gathered = _Gathering()
    metadata = []
    for index, entry in enumerate(entries):
        try:
            metadata.append(_gather(gathered, index, entry, known, unlocking))
        except (ProtocolError, ConfigError) as error:
            raise _damaged(entry, error) from error
    gathered.parts.append(_PADDING)
    return _Chunk(entries, metadata, gathered).rows()


def _damaged(entry: StoredEntry, error: Exception) -> DamagedEntry:
    return DamagedEntry(f"entry {entry.ledger_id}:{entry.entry_id} cannot be read: {error}")


def _gather(
    gathered: _Gathering,
    index: int,
    entry: StoredEntry,
    chunks: ChunkedMessages,
    unlocking: Unlocking,
) -> MessageMetadata:
    if not verify_checksum(entry.content):
        raise ProtocolError("its checksum does not match")
    metadata, payload = parse_entry(entry.content)
    if metadata.HasField("marker_type"):
        return metadata  # what brokers tell each other
    if metadata.encryption_keys:
        found = unlocking.payload(metadata, payload, entry.ledger_id, entry.entry_id)
        if found is None:
            return metadata
        if not found.is_clear:
            gathered.locked.add(index)
            gathered.add_single(index, metadata, found.content)
            return metadata
        payload = memoryview(found.content)
    if metadata.num_chunks_from_msg > 1:
        whole = chunks.add(metadata, payload, entry.ledger_id, entry.entry_id)
        if whole is None:
            return metadata
        payload = memoryview(whole)
    if metadata.HasField("num_messages_in_batch"):
        start = gathered.size
        gathered.add(_unpacked(metadata, payload))
        count = metadata.num_messages_in_batch
        if count < 1:
            raise ProtocolError(f"a batch of {count} messages")
        gathered.batches.append((index, start, gathered.size, count))
        return metadata
    gathered.add_single(index, metadata, _unpacked(metadata, payload))
    return metadata


def _unpacked(metadata: MessageMetadata, payload: Buffer) -> Buffer:
    if metadata.uncompressed_size > limits.UNCOMPRESSED_BYTES_MAX:
        raise ProtocolError(
            f"it says that it unpacks to {metadata.uncompressed_size} bytes; "
            f"at most {limits.UNCOMPRESSED_BYTES_MAX} are unpacked"
        )
    return decompress(metadata.compression, payload, metadata.uncompressed_size)


class _Chunk:
    """What has to be known of a chunk of entries to make its rows."""

    def __init__(
        self,
        entries: Sequence[StoredEntry],
        metadata: Sequence[MessageMetadata],
        gathered: _Gathering,
    ) -> None:
        self._entries = entries
        self._metadata = metadata
        self._gathered = gathered
        self._data = b"".join(gathered.parts)
        self._view = np.frombuffer(self._data, np.uint8)

    def rows(self) -> Rows:
        batched = self._batched()
        alone = self._alone()
        if not self._gathered.singles:
            return batched
        return alone if not self._gathered.batches else _in_order(batched, alone)

    def _batched(self) -> Rows:
        """The rows of all batches, read as if all messages of a batch had one size."""
        heads, bodies = [], []
        for index, start, end, count in self._gathered.batches:
            try:
                head, body = messages_of_batch(self._data, self._view, start, end, count)
            except ProtocolError as error:
                raise _damaged(self._entries[index], error) from error
            heads.append(head)
            bodies.append(body)
        fields = self._fields(heads, bodies)
        if wrong := self._disagreeing(heads, bodies, fields):
            for at in wrong:
                heads[at], bodies[at] = self._walked(at)
            fields = self._fields(heads, bodies)
            if wrong := self._disagreeing(heads, bodies, fields):
                entry = self._entries[self._gathered.batches[wrong[0]][0]]
                raise _damaged(entry, ProtocolError("the sizes of its messages do not add up"))
        counts = [len(head) for head in heads]
        starts = _joined(bodies)
        ends = starts + np.maximum(fields.payload_sizes, 0)
        which = np.array([index for index, _, _, _ in self._gathered.batches], np.int64)
        entry_of = np.repeat(which, counts)
        batch_index = np.concatenate(
            [np.arange(count, dtype=np.int32) for count in counts] or [np.empty(0, np.int32)]
        )
        self._number(fields, entry_of, batch_index)
        wanted = fields.compacted_out == 0
        self._leave_out(wanted, entry_of, batch_index)
        return self._made(entry_of, batch_index, starts, ends, fields, wanted)

    def _fields(self, heads: list[Int64s], bodies: list[Int64s]) -> MessageFields:
        try:
            return read_fields(self._data, self._view, _joined(heads), _joined(bodies))
        except ProtocolError as error:
            raise DamagedEntry(f"{self._named()} cannot be read: {error}") from error

    def _named(self) -> str:
        first, last = self._entries[0], self._entries[-1]
        return f"one of the entries {first.ledger_id}:{first.entry_id}" + (
            f" to {last.ledger_id}:{last.entry_id}"
        )

    def _disagreeing(
        self, heads: list[Int64s], bodies: list[Int64s], fields: MessageFields
    ) -> list[int]:
        """Which batches have a message whose size is not the way to the next one."""
        if not heads:
            return []
        following = np.concatenate(
            [
                np.append(head[1:] - SIZE_BYTES, end)
                for head, (_, _, end, _) in zip(heads, self._gathered.batches, strict=True)
            ]
        )
        good = _joined(bodies) + fields.payload_sizes == following
        if good.all():
            return []
        firsts = np.cumsum([0, *(len(head) for head in heads[:-1])])
        return np.flatnonzero(~np.logical_and.reduceat(good, firsts)).tolist()

    def _walked(self, at: int) -> tuple[Int64s, Int64s]:
        index, start, end, count = self._gathered.batches[at]
        try:
            return walk(self._data, start, end, count)
        except ProtocolError as error:
            raise _damaged(self._entries[index], error) from error

    def _number(self, fields: MessageFields, entry_of: Int64s, batch_index: Int32s) -> None:
        """Number messages of producers that number only the first of a batch."""
        silent = np.flatnonzero(fields.sequence_ids == ABSENT)
        for row in silent.tolist():
            first = signed(self._metadata[entry_of[row]].sequence_id)
            fields.sequence_ids[row] = first + batch_index[row]

    def _leave_out(self, wanted: Bools, entry_of: Int64s, batch_index: Int32s) -> None:
        for index, entry in enumerate(self._entries):
            if entry.first > 0:
                wanted[(entry_of == index) & (batch_index < entry.first)] = False
            if entry.until is not None:
                wanted[(entry_of == index) & (batch_index >= entry.until)] = False

    def _alone(self) -> Rows:
        singles = self._gathered.singles
        count = len(singles)
        fields = MessageFields.absent(count)
        for row, (index, key, value, _) in enumerate(singles):
            metadata = self._metadata[index]
            fields.sequence_ids[row] = signed(metadata.sequence_id)
            fields.event_times[row] = signed(metadata.event_time)
            fields.null_values[row] = metadata.null_value
            fields.keys_in_base64[row] = metadata.partition_key_b64_encoded
            fields.null_keys[row] = metadata.null_partition_key
            fields.key_starts[row] = key
            if metadata.HasField("partition_key"):
                fields.key_sizes[row] = value - key
            if metadata.properties:
                fields.properties[row] = [(pair.key, pair.value) for pair in metadata.properties]
        table = np.array(singles, np.int64).reshape(count, 4)
        batch_index = np.full(count, NO_BATCH, np.int32)
        wanted = np.array(
            [
                self._entries[index].first <= 0 and self._entries[index].until != 0
                for index, _, _, _ in singles
            ],
            np.bool_,
        )
        return self._made(table[:, 0], batch_index, table[:, 2], table[:, 3], fields, wanted)

    def _made(
        self,
        entry_of: Int64s,
        batch_index: Int32s,
        starts: Int64s,
        ends: Int64s,
        fields: MessageFields,
        wanted: Bools,
    ) -> Rows:
        return Rows(
            self._data,
            self._entries,
            self._metadata,
            entry_of,
            batch_index,
            starts,
            ends,
            fields,
            wanted,
            frozenset(self._gathered.locked),
        )


def _joined(arrays: list[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _in_order(batched: Rows, alone: Rows) -> Rows:
    """Put the rows of batches and the others into the order of their entries."""
    order = np.argsort(np.concatenate((batched.entry_of, alone.entry_of)), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    shift = len(batched.entry_of)

    def merged(name: str) -> Int64s:
        parts = getattr(batched.fields, name), getattr(alone.fields, name)
        return np.asarray(np.concatenate(parts)[order])

    names = [name for name in MessageFields.__slots__ if name != "properties"]
    properties = {int(place[row]): pairs for row, pairs in batched.fields.properties.items()}
    properties |= {int(place[row + shift]): pairs for row, pairs in alone.fields.properties.items()}
    return Rows(
        batched.data,
        batched.entries,
        batched.metadata,
        np.concatenate((batched.entry_of, alone.entry_of))[order],
        np.concatenate((batched.batch_index, alone.batch_index))[order],
        np.concatenate((batched.value_starts, alone.value_starts))[order],
        np.concatenate((batched.value_ends, alone.value_ends))[order],
        MessageFields(**{name: merged(name) for name in names}, properties=properties),
        np.concatenate((batched.wanted, alone.wanted))[order],
        batched.locked,
    )
