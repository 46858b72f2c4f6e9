"""What a driver asks brokers over the wire: how large entries are, and to remember what is done.

Every call opens a connection and closes it. Spark does not say when a query ends, so that nothing
may stay open between two calls.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import uvloop

from anabranch.client.client import Client
from anabranch.client.message import MessageId
from anabranch.ids import TopicName
from anabranch.wire import message_count
from pyspark_anabranch.access import Access
from pyspark_anabranch.admission import EntrySize, Waiting
from pyspark_anabranch.entry_feed import EntryFeed
from pyspark_anabranch.limits import SCAN_BYTES
from pyspark_anabranch.places import Place, Span

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something to its end, as Spark expects of what it calls."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def look_at(
    client: Client,
    topic: str,
    start: Place,
    spans: Sequence[Span],
    *,
    rows_max: int | None,
    bytes_max: int | None,
    wait_s: float,
) -> Waiting:
    """Find out how many messages and bytes the entries behind a place have, up to a limit."""
    backlog = sum(span.entries for span in spans)
    found: list[EntrySize] = []
    if not spans:
        return Waiting(topic, start, found, 0)
    feed = EntryFeed(client, TopicName.parse(topic), spans, queue_bytes=SCAN_BYTES)
    # What is before the start in its entry does not wait.
    begins_within = (spans[0].ledger_id, spans[0].first) == start[:2]
    rows, size = -start.batch_index if begins_within else 0, 0
    try:
        await feed.start()
        while _wants_more(rows, rows_max, size, bytes_max):
            entries = await feed.entries(1, wait_s)
            for entry in entries:
                count, length = message_count(entry.content), len(entry.content)
                found.append(EntrySize(entry.ledger_id, entry.entry_id, count, length))
                rows += count
                size += length
            if not entries:
                break
    finally:
        feed.abandon()
    return Waiting(topic, start, found, backlog)


def _wants_more(rows: int, rows_max: int | None, size: int, bytes_max: int | None) -> bool:
    enough_rows = rows_max is not None and rows > rows_max
    enough_bytes = bytes_max is not None and size > bytes_max
    return not enough_rows and not enough_bytes


async def look_at_all(
    access: Access,
    ranges: Mapping[str, tuple[Place, Sequence[Span]]],
    *,
    rows_max: int | None,
    bytes_max: int | None,
    wait_s: float,
) -> list[Waiting]:
    """Look at several topics at once."""
    client = await access.connect()
    try:
        return await asyncio.gather(
            *(
                look_at(
                    client,
                    topic,
                    start,
                    spans,
                    rows_max=rows_max,
                    bytes_max=bytes_max,
                    wait_s=wait_s,
                )
                for topic, (start, spans) in ranges.items()
            )
        )
    finally:
        await client.close()


async def acknowledge(
    access: Access, subscription: str, up_to: Mapping[str, tuple[int, int]]
) -> None:
    """Tell brokers that everything up to an entry of each topic is done with, and be sure of it.

    Raises:
        BrokerRefused: if somebody else has the subscription, or it is of another type.
        OutcomeUnknown: if no answer came.
    """
    client = await access.connect()
    try:
        await asyncio.gather(
            *(_acknowledge(client, topic, subscription, at) for topic, at in up_to.items())
        )
    finally:
        await client.close()


async def _acknowledge(
    client: Client, topic: str, subscription: str, entry: tuple[int, int]
) -> None:
    consumer = await client.consumer(
        topic, subscription, initial_position="earliest", queue_messages=1
    )
    await consumer.acknowledge(MessageId(*entry), cumulative=True, wait=True)
    await consumer.close()
