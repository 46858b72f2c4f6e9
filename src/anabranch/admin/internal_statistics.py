"""How topics are stored, in Pulsar's JSON: ledgers, cursors, and what lies behind a message."""

from typing import Any, Final

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.owners import stored
from anabranch.admin.refusals import RestRefused
from anabranch.admin.statistics import TOPIC_PATH, of_parts
from anabranch.admin.topic_access import partitioned
from anabranch.broker.backlogs import backlog_bytes
from anabranch.broker.topic import Topic
from anabranch.ids import Position
from anabranch.security import Right


async def internal_stats(call: Call) -> object:
    """The ledgers and cursors of a topic."""
    if await partitioned(call) is not None:
        raise RestRefused(404, f"Topic {call.topic} not found")
    return _internal(await stored(call))


async def partitioned_internal_stats(call: Call) -> object:
    """The same for each partition."""
    document = await partitioned(call)
    if document is None:
        raise RestRefused(404, f"Partitioned Topic {call.topic} not found")
    return {
        "metadata": {"partitions": document.partitions, "deleted": document.deleted},
        "partitions": await of_parts(call, internal_stats, "internalStats"),
    }


async def internal_info(call: Call) -> object:
    """What the metadata say about a topic's ledgers and cursors."""
    topic = await stored(call)
    return {
        "version": 0,
        "ledgers": [{"ledgerId": span.ledger_id} for span in topic.ledger.ledgers],
        "cursors": {
            name: {
                "markDelete": {
                    "ledgerId": cursor.mark_delete.ledger_id,
                    "entryId": cursor.mark_delete.entry_id,
                }
            }
            for name, cursor in topic.ledger.cursors.items()
        },
    }


async def backlog_size(call: Call) -> object:
    """Bytes after a message."""
    body = call.json()
    if not isinstance(body, dict) or type(body.get("ledgerId")) is not int:
        raise RestRefused(400, "the body has to be a message id")
    entry_id = body.get("entryId", -1)
    if type(entry_id) is not int:
        raise RestRefused(400, "the body has to be a message id")
    return backlog_bytes(await stored(call), Position(body["ledgerId"], entry_id))


def _internal(topic: Topic) -> dict[str, Any]:
    ledger = topic.ledger
    spans = ledger.ledgers
    last = spans[-1] if spans else None
    state = "Terminated" if ledger.terminated is not None else "LedgerOpened"
    return {
        "entriesAddedCounter": ledger.entry_count,
        "numberOfEntries": ledger.entry_count,
        "totalSize": ledger.size_bytes,
        "currentLedgerEntries": last.entries if last else 0,
        "currentLedgerSize": last.size_bytes if last else 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": str(ledger.last_confirmed),
        "state": state,
        "ledgers": [
            {
                "ledgerId": span.ledger_id,
                "entries": span.entries,
                "size": span.size_bytes,
                "offloaded": False,
                "underReplicated": False,
            }
            for span in spans
        ],
        "cursors": {
            name: {
                "markDeletePosition": str(cursor.mark_delete),
                "readPosition": str(ledger.next_position(cursor.mark_delete)),
                "waitingReadOp": False,
                "pendingReadOps": 0,
                "messagesConsumedCounter": ledger.entry_count - cursor.backlog(),
                "individuallyDeletedMessages": "[]",
                "state": "Open",
                "numberOfEntriesSinceFirstNotAckedMessage": ledger.entries_between(
                    cursor.mark_delete, ledger.last_confirmed
                ),
                "totalNonContiguousDeletedMessagesRange": 0,
                "properties": {},
            }
            for name, cursor in ledger.cursors.items()
        },
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1,
            "entries": -1,
            "size": -1,
            "offloaded": False,
            "underReplicated": False,
        },
    }


def _row(method: str, page: str, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{TOPIC_PATH}/{page}", Right.LOOK_UP, serve, words)


INTERNAL_STATISTICS_ENDPOINTS: Final = (
    _row("GET", "internalStats", internal_stats, "Ledgers and cursors"),
    _row(
        "GET", "partitioned-internalStats", partitioned_internal_stats, "Ledgers of all partitions"
    ),
    _row("GET", "internal-info", internal_info, "What the metadata say"),
    _row("PUT", "backlogSize", backlog_size, "Bytes after a message"),
)
