"""Rows sent to topics under names and numbers that make sending them again harmless.

A task's rows go out under one producer name, numbered upwards. A broker that removes duplicates
remembers the last number of each name; whoever sends the rows again is told, and goes on behind it.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.client.client import Client
from anabranch.client.message import MessageId
from anabranch.client.packing import Outgoing
from anabranch.client.producer import TopicProducer
from anabranch.client.settings import Batching
from anabranch.errors import ConfigError
from anabranch.ids import TopicName
from anabranch.wire.compression import Compression
from pyspark_anabranch.access import Access
from pyspark_anabranch.admin_view import AdminView
from pyspark_anabranch.limits import (
    SINK_BATCH_BYTES,
    SINK_BATCH_MESSAGES,
    SINK_GATHERED_BYTES,
    SINK_PENDING_MESSAGES,
)
from pyspark_anabranch.sink_rows import SinkRow, partition_of_key

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
            self._known[name] = self._view.partitions(TopicName.parse(name))
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


async def publish(
    access: Access,
    partitions: Partitions,
    rows: Iterator[SinkRow],
    *,
    topic: TopicName | None,
    name: str,
    batch_id: int,
    compression: Compression,
) -> int:
    """Send the rows of one task and return how many were sent and not known before.

    Raises:
        BrokerRefused: if somebody else sends under this name, or the broker refused a row.
        OutcomeUnknown: if no answer came; to send the rows again is harmless.
    """
    client = await access.connect()
    sender = _Sender(client, name, compression)
    try:
        for row in rows:
            target = partitions.target(row, topic, row.number)
            lane = sender.lanes.get(target) or await sender.open_lane(target)
            sender.gathered_bytes += lane.add(row, batch_id * _NUMBERS_PER_BATCH + row.number)
            if lane.is_full:
                await sender.send(lane)
            elif sender.gathered_bytes >= SINK_GATHERED_BYTES:
                await sender.send_all()
        await sender.finish()
    finally:
        await client.close()
    return sender.sent


class _Lane:
    """The rows for one partition that are to go out together next."""

    def __init__(self, producer: TopicProducer) -> None:
        self.producer = producer
        self._first_unknown = producer.next_sequence_id
        """The first number that the broker does not know."""
        self._bytes_max = min(SINK_BATCH_BYTES, producer.batch_bytes_max)
        self._messages: list[Outgoing] = []
        self._bytes = 0
        self.is_full = False

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

    async def send(self, lane: _Lane) -> None:
        """Send what a lane has."""
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
