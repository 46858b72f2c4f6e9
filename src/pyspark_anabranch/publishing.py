"""Rows sent to topics under names and numbers that make sending them again harmless.

A task's rows go out under one producer name, numbered upwards. A broker that removes duplicates
remembers the last number of each name; whoever sends the rows again is told, and goes on behind it.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.client.client import Client
from anabranch.client.message import MessageId
from anabranch.client.roles import Producer
from anabranch.client.settings import Batching
from anabranch.errors import ConfigError
from anabranch.ids import TopicName
from anabranch.wire.compression import Compression
from pyspark_anabranch.access import Access
from pyspark_anabranch.admin_view import AdminView
from pyspark_anabranch.limits import SINK_BATCH_BYTES, SINK_BATCH_MESSAGES, SINK_PENDING_MESSAGES
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
            await sender.send(target, row, batch_id * _NUMBERS_PER_BATCH + row.number)
        await sender.finish()
    finally:
        await client.close()
    return sender.sent


class _Sender:
    """The producers of a task."""

    def __init__(self, client: Client, name: str, compression: Compression) -> None:
        self._client = client
        self._name = name
        self._compression = compression
        self._producers: dict[TopicName, tuple[Producer, int]] = {}
        """With the first number that the broker does not know."""
        self._open: set[asyncio.Future[MessageId]] = set()
        self._failed: BaseException | None = None
        self.sent = 0

    async def send(self, target: TopicName, row: SinkRow, number: int) -> None:
        known = self._producers.get(target)
        if known is None:
            known = self._producers[target] = await self._opened(target)
        producer, first_unknown = known
        if number < first_unknown:
            return
        if self._failed is not None:
            raise self._failed
        answer = await producer.send_soon(
            row.value,
            key=row.key,
            properties=row.properties,
            event_time_ms=row.event_time_ms,
            sequence_id=number,
        )
        self._open.add(answer)
        answer.add_done_callback(self._answered)
        self.sent += 1

    def _answered(self, answer: asyncio.Future[MessageId]) -> None:
        self._open.discard(answer)
        if answer.exception() is not None and self._failed is None:
            self._failed = answer.exception()

    async def _opened(self, target: TopicName) -> tuple[Producer, int]:
        producer = await self._client.producer(
            str(target),
            name=self._name,
            batching=Batching(SINK_BATCH_MESSAGES, SINK_BATCH_BYTES),
            compression=self._compression,
            pending_messages_max=SINK_PENDING_MESSAGES,
        )
        return producer, producer.next_sequence_id

    async def finish(self) -> None:
        """Wait for every answer."""
        for producer, _ in self._producers.values():
            await producer.flush()
        if self._open:
            await asyncio.wait(set(self._open))
        if self._failed is not None:
            raise self._failed


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
