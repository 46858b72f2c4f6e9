"""Rows sent to topics under names and numbers that make sending them again harmless.

A task's rows go out under one producer name, numbered upwards. A broker that removes duplicates
remembers the last number of each name; whoever sends the rows again is told, and goes on behind it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.client.client import Client
from anabranch.client.message import MessageId
from anabranch.client.packing import Outgoing, PackedBatch
from anabranch.client.producer import TopicProducer
from anabranch.client.settings import Batching
from anabranch.errors import ConfigError, InvalidName
from anabranch.ids import TopicName
from anabranch.wire.compression import Compression
from pyspark_anabranch.access import Access
from pyspark_anabranch.admin_view import AdminView
from pyspark_anabranch.arrays import Int64s
from pyspark_anabranch.limits import (
    SINK_BATCH_BYTES,
    SINK_BATCH_MESSAGES,
    SINK_GATHERED_BYTES,
    SINK_PENDING_MESSAGES,
)
from pyspark_anabranch.packed_rows import Columns, PackedRows, columns_of, packed
from pyspark_anabranch.row_checks import LookedAt, check_sizes
from pyspark_anabranch.sink_rows import SinkRow, partition_of_key, sink_rows

_NUMBERS_PER_BATCH: Final = 2**32
"""How many rows a task may have; batches of a stream take one such range after the other."""


class Partitions:
    """Which partitions topics have, each asked for once."""

    def __init__(self, view: AdminView) -> None:
        self._view = view
        self._known: dict[str, list[TopicName]] = {}

    def of(self, name: str) -> list[TopicName]:
        """The partitions of a topic, or the topic itself."""
        if name not in self._known:
            try:
                topic = TopicName.parse(name)
            except InvalidName as error:
                raise InvalidName(f"a row for topic {name!r}: {error}") from None
            self._known[name] = self._view.partitions(topic)
        return self._known[name]

    def target(self, row: SinkRow, topic: TopicName | None, turn: int) -> TopicName:
        """Where a row goes: as it says, else by its key, else in turn.

        Raises:
            ConfigError: if it names a partition that its topic has not.
        """
        found = self.of(row.topic or str(topic))
        if row.partition is not None and not (len(found) == 1 and row.partition == -1):
            if not 0 <= row.partition < len(found):
                raise ConfigError(
                    f"a row for partition {row.partition} of {row.topic or topic}, "
                    f"which has {len(found)}"
                )
            return found[row.partition]
        if len(found) == 1:
            return found[0]
        if row.key is not None:
            return found[partition_of_key(row.key, len(found))]
        return found[turn % len(found)]

    def spread(
        self, columns: Columns, topic: TopicName | None, first: int
    ) -> list[tuple[TopicName, Int64s]]:
        """Where rows go that name neither topic nor partition: those of each target, in order."""
        found = self.of(str(topic))
        numbers = np.arange(len(columns.values))
        if len(found) == 1:
            return [(found[0], numbers)]
        places = (numbers + first) % len(found)
        if columns.keys is not None:
            encoded = columns.keys.dictionary_encode()
            each = [partition_of_key(key, len(found)) for key in encoded.dictionary.to_pylist()]
            indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
            has_key = columns.keys.is_valid().to_numpy(zero_copy_only=False)
            places = np.where(has_key, np.array(each)[indices], places)
        order = np.argsort(places, kind="stable")
        cuts = np.searchsorted(places[order], np.arange(1, len(found)))
        return [
            (target, rows)
            for target, rows in zip(found, np.split(order, cuts), strict=True)
            if len(rows)
        ]


async def publish(
    access: Access,
    partitions: Partitions,
    batches: Iterator[pa.RecordBatch],
    *,
    topic: TopicName | None,
    name: str,
    batch_id: int,
    compression: Compression,
) -> int:
    """Send the rows of one task and return how many were sent and not known before.

    Of every Arrow batch all rows are looked at before one of them is sent.

    Raises:
        InputError: if a row cannot be sent.
        ConfigError: if a row names a partition that its topic has not.
        BrokerRefused: if somebody else sends under this name, or the broker refused a row.
        OutcomeUnknown: if no answer came; to send the rows again is harmless.
    """
    client = await access.connect()
    sender = _Sender(client, name, compression)
    place, first_number = 0, batch_id * _NUMBERS_PER_BATCH
    try:
        for batch in LookedAt(batches, rows_name_topics=topic is None):
            check_sizes(batch, place, client.brokers.message_bytes_max, compression, name)
            columns = None if topic is None else columns_of(batch)
            if columns is None or not await sender.add_packed(
                columns, partitions.spread(columns, topic, place), place, first_number
            ):
                rows = list(sink_rows(iter([batch]), place))
                targets = [partitions.target(row, topic, row.number) for row in rows]
                for target, row in zip(targets, rows, strict=True):
                    await sender.add(target, row, first_number + row.number)
            place += batch.num_rows
        await sender.finish()
    finally:
        await client.close()
    return sender.sent


async def largest_message(access: Access) -> int:
    """How many bytes the broker takes of a message at most."""
    client = await access.connect()
    try:
        return client.brokers.message_bytes_max
    finally:
        await client.close()


def producer_name(query_id: str, task: int) -> str:
    """Under which the rows of a task are sent."""
    return f"spark-{query_id}-{task}"


class _Lane:
    """The rows for one partition that are to go out together next."""

    def __init__(self, producer: TopicProducer) -> None:
        self.producer = producer
        self._first_unknown = producer.next_sequence_id
        """The first number that the broker does not know."""
        self._bytes_max = min(SINK_BATCH_BYTES, producer.batch_bytes_max)
        self._messages: list[Outgoing] = []
        self._packed: list[PackedBatch] = []
        """Of the next entry. There are never some here and some messages as well."""
        self._bytes = 0
        self.is_full = False

    @property
    def has_messages(self) -> bool:
        """Whether rows wait that are not packed."""
        return bool(self._messages)

    @property
    def waiting_bytes(self) -> int:
        """Of rows that are not sent yet."""
        return self._bytes

    @property
    def has_packed(self) -> bool:
        """Whether packed rows wait."""
        return bool(self._packed)

    def takes(self, rows: PackedRows) -> bool:
        """Whether each of them has room in an entry with others."""
        return rows.largest <= self._bytes_max

    def cut(self, rows: PackedRows, first_number: int) -> Iterator[PackedBatch]:
        """Take rows, unless the broker has them; entries that are full come out."""
        at = int(np.searchsorted(rows.numbers, self._first_unknown - first_number))
        while at < len(rows):
            count = sum(piece.messages for piece in self._packed)
            end = rows.end_of(at, SINK_BATCH_MESSAGES - count, self._bytes_max - self._bytes)
            if end > at:
                self._packed.append(rows.cut(at, end, first_number))
                self._bytes += self._packed[-1].size
            if end < len(rows):
                yield self.take_packed()
            at = end
        if self._packed:
            # A copy, so that what waits does not keep all the rows of its Arrow batch.
            self._packed[-1] = self._packed[-1]._replace(payload=bytes(self._packed[-1].payload))

    def take_packed(self) -> PackedBatch:
        """What waits, as one batch."""
        pieces, self._packed, self._bytes = self._packed, [], 0
        first, last = pieces[0], pieces[-1]
        if first is last:
            return first
        return PackedBatch(
            b"".join([piece.payload for piece in pieces]),
            sum(piece.messages for piece in pieces),
            first.first_sequence_id,
            last.last_sequence_id,
            sum(piece.size for piece in pieces),
            first.key,
        )

    def add(self, row: SinkRow, number: int) -> int:
        """Take a row, unless the broker has it; returns what it takes."""
        if number < self._first_unknown:
            return 0
        message = Outgoing(row.value, row.key, None, row.properties, row.event_time_ms, number)
        self._messages.append(message)
        self._bytes += (size := message.size)
        self.is_full = self._bytes >= self._bytes_max or len(self._messages) >= SINK_BATCH_MESSAGES
        return size

    def take(self) -> Iterator[list[Outgoing]]:
        """What is there, as it fits into entries; what is too large for company is alone."""
        messages, self._messages, self._bytes, self.is_full = self._messages, [], 0, False
        entry: list[Outgoing] = []
        room = self._bytes_max
        for message in messages:
            size = message.size
            if entry and size > room:
                yield entry
                entry, room = [], self._bytes_max
            entry.append(message)
            room -= size
        if entry:
            yield entry


class _Sender:
    """The producers of a task."""

    def __init__(self, client: Client, name: str, compression: Compression) -> None:
        self._client = client
        self._name = name
        self._compression = compression
        self.lanes: dict[TopicName, _Lane] = {}
        self._open: set[asyncio.Future[MessageId]] = set()
        self._failed: BaseException | None = None
        self.gathered_bytes = 0
        """Of rows that are not sent yet."""
        self.sent = 0

    async def open_lane(self, target: TopicName) -> _Lane:
        """Open the producer of a partition."""
        producer = await self._client.producer(
            str(target),
            name=self._name,
            batching=Batching(SINK_BATCH_MESSAGES, SINK_BATCH_BYTES),
            compression=self._compression,
            pending_messages_max=SINK_PENDING_MESSAGES,
        )
        assert isinstance(producer, TopicProducer), f"{target} has partitions of its own"
        lane = self.lanes[target] = _Lane(producer)
        return lane

    async def _lane(self, target: TopicName) -> _Lane:
        return self.lanes.get(target) or await self.open_lane(target)

    async def add(self, target: TopicName, row: SinkRow, number: int) -> None:
        """Take a row; what is full goes out."""
        lane = await self._lane(target)
        if lane.has_packed:
            await self.send(lane)
        self.gathered_bytes += lane.add(row, number)
        if lane.is_full:
            await self.send(lane)
        elif self.gathered_bytes >= SINK_GATHERED_BYTES:
            await self.send_all()

    async def add_packed(
        self,
        columns: Columns,
        spread: Sequence[tuple[TopicName, Int64s]],
        place: int,
        first_number: int,
    ) -> bool:
        """Take rows as columns; returns whether it could: no row may need an entry for itself."""
        taken = []
        for target, rows in spread:
            lane = await self._lane(target)
            own = columns if len(spread) == 1 else columns.take(rows)
            taken.append((lane, packed(own, rows + place, first_number)))
        if not all(lane.takes(packed_rows) for lane, packed_rows in taken):
            return False
        for lane, packed_rows in taken:
            if lane.has_messages:
                await self.send(lane)
            before = lane.waiting_bytes
            for batch in lane.cut(packed_rows, first_number):
                await self._send_packed(lane, batch)
            self.gathered_bytes += lane.waiting_bytes - before
        if self.gathered_bytes >= SINK_GATHERED_BYTES:
            await self.send_all()
        return True

    async def _send_packed(self, lane: _Lane, batch: PackedBatch) -> None:
        if self._failed is not None:
            raise self._failed
        self.sent += batch.messages
        self._await(await lane.producer.send_packed(batch))
        await asyncio.sleep(0)

    async def send(self, lane: _Lane) -> None:
        """Send what a lane has."""
        if lane.has_packed:
            self.gathered_bytes -= lane.waiting_bytes
            await self._send_packed(lane, lane.take_packed())
        if self._failed is not None:
            raise self._failed
        for messages in lane.take():
            self.sent += len(messages)
            self.gathered_bytes -= sum(message.size for message in messages)
            if len(messages) > 1:
                self._await(await lane.producer.send_together(messages))
            else:
                self._await(await _send_alone(lane.producer, messages[0]))
        await asyncio.sleep(0)  # it leaves while the next rows are gathered

    async def send_all(self) -> None:
        """Send what every lane has."""
        for lane in self.lanes.values():
            await self.send(lane)

    def _await(self, answer: asyncio.Future[MessageId]) -> None:
        self._open.add(answer)
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[MessageId]) -> None:
        self._open.discard(answer)
        if answer.exception() is not None and self._failed is None:
            self._failed = answer.exception()

    async def finish(self) -> None:
        """Send the rest and wait for every answer."""
        await self.send_all()
        for lane in self.lanes.values():
            await lane.producer.flush()
        if self._open:
            await asyncio.wait(set(self._open))
        if self._failed is not None:
            raise self._failed


async def _send_alone(producer: TopicProducer, message: Outgoing) -> asyncio.Future[MessageId]:
    return await producer.send_soon(
        message.value,
        key=message.key,
        properties=message.properties,
        event_time_ms=message.event_time_ms,
        sequence_id=message.sequence_id,
    )


def check_deduplication(view: AdminView, topics: Iterable[TopicName]) -> None:
    """Refuse topics whose broker would store what is sent again a second time.

    Raises:
        ConfigError: naming one, and what to do.
    """
    for topic in topics:
        if not view.removes_duplicates(topic):
            raise ConfigError(
                f"the broker does not remove duplicates from {topic}: set the policy "
                "deduplication of its namespace, or the option guarantee to at_least_once"
            )
