"""What lies in a backlog: entries and messages counted by reading them, in Pulsar's JSON.

The whole backlog may be read for one request; a bound on entries says when a count is given up.
"""

from typing import Final

from anabranch import limits
from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.limits import ANALYZED_ENTRIES_MAX
from anabranch.admin.owners import stored
from anabranch.admin.refusals import RestRefused
from anabranch.admin.subscriptions import place_of
from anabranch.admin.topic_access import partitioned
from anabranch.broker import topic_operations
from anabranch.broker.claimed_numbers import believable_messages
from anabranch.broker.topic import Topic
from anabranch.errors import ProtocolError
from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger.cursor import Cursor
from anabranch.runtime.network import Buffer
from anabranch.security import Right
from anabranch.wire import read_metadata

_PAGE: Final = (
    "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}/analyzeBacklog"
)


async def analyze(call: Call) -> object:
    """Count what a subscription has not acknowledged, from a message on if one is named."""
    body = call.json()
    start = EARLIEST if body is None else place_of(body)
    if await partitioned(call) is not None:
        raise RestRefused(405, "Analyze backlog on a partitioned topic is not allowed, "
                               "please try do it on specific topic partition")  # fmt: skip
    topic = await stored(call)
    cursor = topic_operations.subscription_of(topic, call.subscription).cursor
    after = topic.ledger.next_position(cursor.mark_delete)
    if start is None:
        start = topic.ledger.next_position(topic.ledger.last_confirmed)
    return await _counted(topic, cursor, max(start, after))


async def _counted(topic: Topic, cursor: Cursor, start: Position) -> dict[str, object]:
    entries = messages = 0
    first = last = None
    last_readable = topic.visibility.last_readable()
    position = cursor.next_unacknowledged(start)
    while position <= last_readable and entries < ANALYZED_ENTRIES_MAX:
        read = await topic.ledger.read(
            position, limits.READ_BATCH_ENTRIES_MAX, limits.READ_BATCH_BYTES_MAX
        )
        if not read:
            break
        for entry in read:
            position = Position(entry.ledger_id, entry.entry_id)
            if position > last_readable or cursor.is_acknowledged(position):
                continue
            entries += 1
            messages += _messages_in(entry.payload)
            first, last = first or position, position
        position = cursor.next_unacknowledged(topic.ledger.next_position(position))
    return {
        "entries": entries,
        "messages": messages,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": messages,
        "filterRescheduledMessages": 0,
        "aborted": position <= last_readable,
        "firstMessageId": None if first is None else f"{first.ledger_id}:{first.entry_id}",
        "lastMessageId": None if last is None else f"{last.ledger_id}:{last.entry_id}",
    }


def _messages_in(entry: Buffer) -> int:
    try:
        return believable_messages(read_metadata(entry).message_count)
    except ProtocolError:
        return 1  # no message, and still something that is acknowledged as one


BACKLOG_ENDPOINTS: Final = (
    Endpoint("POST", _PAGE, Right.CONSUME, analyze, "Count what waits by reading it"),
)
