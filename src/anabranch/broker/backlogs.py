"""How much a subscription has not acknowledged: entries, bytes, and how old the oldest is."""

from typing import Final

from anabranch import limits
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.errors import ProtocolError
from anabranch.ids import Position
from anabranch.wire import publish_time_ms

_OF_THE_SYSTEM: Final = ("pulsar.dedup", "pulsar.repl.", "__compaction")


def backlog_bytes(topic: Topic, position: Position) -> int:
    """About how many bytes lie behind a position: of its own ledger the share that is left."""
    total = 0
    for span in topic.ledger.ledgers:
        if span.ledger_id > position.ledger_id:
            total += span.size_bytes
        elif span.ledger_id == position.ledger_id and span.entries:
            left = max(0, span.entries - position.entry_id - 1)
            total += span.size_bytes * left // span.entries
    return total


def of_clients(topic: Topic) -> list[Subscription]:
    """The subscriptions of clients; what the system itself keeps a place for is left out."""
    return [
        each for name, each in topic.subscriptions.items() if not name.startswith(_OF_THE_SYSTEM)
    ]


def slowest(topic: Topic) -> Subscription | None:
    """The durable subscription of clients that is furthest behind; None if there is none."""
    durable = [each for each in of_clients(topic) if each.cursor.is_durable]
    return min(durable, key=lambda each: each.cursor.mark_delete, default=None)


async def oldest_time_ms(topic: Topic, subscription: Subscription) -> int | None:
    """When the first message was published that is not acknowledged; None if all are."""
    cursor = subscription.cursor
    position = cursor.next_unacknowledged(topic.ledger.next_position(cursor.mark_delete))
    if position > topic.visibility.last_readable():
        return None
    entries = await topic.ledger.read(position, 1, limits.READ_BATCH_BYTES_MAX)
    if not entries:
        return None
    try:
        return publish_time_ms(entries[0].payload)
    except ProtocolError:
        return None
