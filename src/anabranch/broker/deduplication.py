"""Storing a message once however often it is sent: the last sequence id of each producer.

`SequenceIds` is pure. The shell stores them as Pulsar does, as properties of a cursor of their own
whose mark says up to which entry they count; what comes after is read from the log when the
topic is opened, so that nothing is forgotten over a crash or by another owner.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

from anabranch import limits
from anabranch.broker.limits import (
    CLIENT_NAME_CHARACTERS_MAX,
    DEDUPLICATION_PRODUCERS_MAX,
    DEDUPLICATION_SNAPSHOT_ENTRIES,
    SEQUENCE_ID_MAX,
)
from anabranch.broker.subscription_names import DEDUPLICATION_CURSOR
from anabranch.errors import InputError, OutcomeUnknown, ProtocolError
from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger import Cursor, ManagedLedger
from anabranch.runtime.network import Buffer
from anabranch.wire import EntryMetadata, Send, read_metadata

DUPLICATE: Final = Position(-1, -1)
"""What a client is told instead of a position; so it knows."""

PublishDone = Callable[[Position | None, Exception | None], None]
_NEVER: Final = -1


class SequenceIds:
    """The highest sequence id of each producer, as given to storage and as stored."""

    def __init__(self, stored: Mapping[str, int], producers_max: int) -> None:
        self._producers_max = producers_max
        self._stored = dict(stored)
        """The producers heard of last are at the end."""
        self._given = dict(stored)

    def is_new(self, producer: str, first: int, last: int) -> bool:
        """Whether a message or batch is not a duplicate; from now on it is."""
        if first <= self._given.get(producer, _NEVER):
            return False
        self._given[producer] = last
        return True

    def store(self, producer: str, last: int) -> None:
        """What a producer sent up to a sequence id is stored."""
        before = self._stored.pop(producer, _NEVER)
        self._stored[producer] = max(before, last)
        if last > self._given.get(producer, _NEVER):
            self._given[producer] = last
        if len(self._stored) > self._producers_max:
            oldest = next(iter(self._stored))
            del self._stored[oldest]
            self._given.pop(oldest, None)

    def last_stored(self, producer: str) -> int:
        """The highest sequence id of a producer that is stored; -1 if none is known."""
        return self._stored.get(producer, _NEVER)

    def newest(self) -> list[tuple[str, int]]:
        """What is stored of each producer, those heard of last first."""
        return list(reversed(self._stored.items()))


def _is_inner_chunk(metadata: EntryMetadata) -> bool:
    """Whether more chunks of the same message follow, with the same sequence id."""
    chunk, count = metadata.chunk_id, metadata.num_chunks_from_msg
    return chunk is not None and count is not None and chunk < count - 1


class Deduplication:
    """Recognises what was sent before to one topic."""

    def __init__(
        self,
        ids: SequenceIds,
        cursor: Cursor,
        append: Callable[[Buffer, PublishDone], None],
    ) -> None:
        self.ids = ids
        self._cursor = cursor
        self._append = append
        self._given = 0
        self._settled = 0
        self._after: deque[tuple[int, Callable[[], None]]] = deque()
        """Answers that must not overtake those of what was sent before."""
        self._last: Position | None = None
        self._since_snapshot = 0
        self._snapshot_s = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_learning = False

    @classmethod
    async def open(cls, ledger: ManagedLedger) -> "Deduplication":
        """Take over what is stored of a topic's producers; `learn` the rest."""
        cursor = await ledger.open_cursor(DEDUPLICATION_CURSOR, initial="latest")
        ids = SequenceIds(cursor.properties, DEDUPLICATION_PRODUCERS_MAX)
        return cls(ids, cursor, ledger.append)

    async def learn(self, ledger: ManagedLedger, settled: Awaitable[None]) -> None:
        """Read what came after the snapshot from the log.

        What is published from now on is known anyway; `settled` ends with what was before.
        """
        self._is_learning = True
        await settled
        position = ledger.next_position(self._cursor.mark_delete)
        read = 0
        while position <= ledger.last_confirmed:
            entries = await ledger.read(
                position, limits.READ_BATCH_ENTRIES_MAX, limits.READ_BATCH_BYTES_MAX
            )
            if not entries:
                break
            for entry in entries:
                _remember(self.ids, entry.payload)
            read += len(entries)
            position = ledger.next_position(Position(entries[-1].ledger_id, entries[-1].entry_id))
        self._is_learning = False
        if read and position > EARLIEST:
            self._last = ledger.previous_position(position)
            self._since_snapshot += read

    def publish(self, producer: str, send: Send, done: PublishDone) -> None:
        """Append what is new; of what is not, say so when all before it is answered.

        Raises:
            InputError: if its sequence id or its metadata cannot be understood.
        """
        last = max(send.sequence_id, send.highest_sequence_id or 0)
        if last > SEQUENCE_ID_MAX:
            raise InputError(f"sequence id {last} is above {SEQUENCE_ID_MAX}")
        if send.is_chunk and _is_inner_chunk(read_metadata(send.entry)):
            self._given += 1
            self._append(send.entry, partial(self._stored, None, last, done))
        elif self.ids.is_new(producer, send.sequence_id, last):
            self._given += 1
            self._append(send.entry, partial(self._stored, producer, last, done))
        elif self._settled == self._given:
            self._answer_again(producer, send.sequence_id, done)
        else:
            # Perhaps the first of the two is still being stored: then it is known by then.
            again = partial(self._answer_again, producer, send.sequence_id, done)
            self._after.append((self._given, again))

    def _answer_again(self, producer: str, sequence_id: int, done: PublishDone) -> None:
        """All that was sent before is answered; what is not stored by now failed."""
        if sequence_id <= self.ids.last_stored(producer):
            done(DUPLICATE, None)
        else:
            done(None, OutcomeUnknown(f"{producer} sent {sequence_id} before; it was not stored"))

    def _stored(
        self,
        producer: str | None,
        last: int,
        done: PublishDone,
        position: Position | None,
        error: Exception | None,
    ) -> None:
        self._settled += 1
        if position is not None:
            if producer is not None:
                self.ids.store(producer, last)
            self._last = position
            self._since_snapshot += 1
        done(position, error)
        while self._after and self._after[0][0] <= self._settled:
            self._after.popleft()[1]()
        if self._since_snapshot >= DEDUPLICATION_SNAPSHOT_ENTRIES:
            self.snapshot()

    # --- what is stored ----------------------------------------------------------------------

    def snapshot(self) -> None:
        """Let what is known, and up to which entry, be stored with the cursor's next write."""
        if self._is_learning or self._last is None or self._since_snapshot == 0:
            return  # nothing to say, or not yet all of it
        self._since_snapshot = 0
        newest = self.ids.newest()
        while not self._keeps(newest):
            newest = newest[: len(newest) // 2]
        self._cursor.acknowledge_cumulative(self._last)

    def _keeps(self, ids: Iterable[tuple[str, int]]) -> bool:
        try:
            self._cursor.set_properties(dict(ids))
        except InputError:
            return False  # names so long that not all of them fit
        return True

    def snapshot_every(self, interval_s: int) -> None:
        """Store what is known after so long, again and again; at 0 only after many entries."""
        if interval_s != self._snapshot_s:
            self._stop_timer()
            self._snapshot_s = interval_s
            self._snapshot_later()

    def _snapshot_later(self) -> None:
        if self._snapshot_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._snapshot_s, self._tick)

    def _tick(self) -> None:
        self.snapshot()
        self._snapshot_later()

    def close(self) -> None:
        """Serve no more; what is known is stored with the cursor, unless the topic is lost."""
        self._stop_timer()
        self.snapshot()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _remember(ids: SequenceIds, entry: Buffer) -> None:
    try:
        metadata = read_metadata(entry)
    except ProtocolError:
        return
    if metadata.marker_type is None and not _is_inner_chunk(metadata):
        last = max(metadata.sequence_id, metadata.highest_sequence_id or 0)
        is_kept = len(metadata.producer_name) <= CLIENT_NAME_CHARACTERS_MAX
        if last <= SEQUENCE_ID_MAX and is_kept:
            ids.store(metadata.producer_name, last)
