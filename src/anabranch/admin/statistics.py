"""Statistics of topics in Pulsar's JSON: what is connected, what waits, what is stored where."""

from collections.abc import Iterable
from typing import Any, Final

from anabranch.admin.brokers import own_id
from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_access import opened, partitioned, parts
from anabranch.broker.consumer import Consumer
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.ids import Position
from anabranch.security import Right

_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_RATES: Final = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
_COMPACTION: Final = {
    "lastCompactionRemovedEventCount": 0,
    "lastCompactionSucceedTimestamp": 0,
    "lastCompactionFailedTimestamp": 0,
    "lastCompactionDurationTimeInMills": 0,
}
_SUMMED: Final = (
    *_RATES, "bytesInCounter", "msgInCounter", "bytesOutCounter", "msgOutCounter", "storageSize",
    "backlogSize", "waitingPublishers", "publishRateLimitedTimes",
)  # fmt: skip
_SUMMED_OF_SUBSCRIPTION: Final = (
    "msgBacklog", "msgBacklogNoDelayed", "backlogSize", "unackedMessages", "msgOutCounter",
    "bytesOutCounter", "msgDelayed",
)  # fmt: skip


async def topic_stats(call: Call) -> object:
    """Who is connected to a topic, and what waits for whom."""
    if await partitioned(call) is not None:
        raise RestRefused(404, f"Topic {call.topic} not found")
    return _of_topic(await opened(call), own_id(call))


async def partitioned_stats(call: Call) -> object:
    """The same for all partitions of a topic together, and for each if asked for."""
    document = await partitioned(call)
    if document is None:
        raise RestRefused(404, f"Partitioned Topic {call.topic} not found")
    each = {
        str(name): _of_topic(await opened(call, name), own_id(call)) for name in await parts(call)
    }
    whole = _together(each.values())
    whole["metadata"] = {"partitions": document.partitions, "deleted": document.deleted}
    whole["partitions"] = each if call.query.get("perPartition", "true") == "true" else {}
    return whole


def _together(stats: Iterable[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = dict.fromkeys(_SUMMED, 0)
    whole |= {"publishers": [], "subscriptions": {}, "replication": {}, "averageMsgSize": 0.0}
    for one in stats:
        for name in _SUMMED:
            whole[name] += one[name]
        whole["publishers"] += one["publishers"]
        for name, found in one["subscriptions"].items():
            _add(whole["subscriptions"], name, found)
    return whole


def _add(known: dict[str, Any], name: str, found: dict[str, Any]) -> None:
    """Count a partition's subscription into that of the whole topic."""
    if name not in known:
        known[name] = {**found, "consumers": list(found["consumers"])}
        return
    known[name]["consumers"] += found["consumers"]
    for figure in _SUMMED_OF_SUBSCRIPTION:
        known[name][figure] += found[figure]


def _of_topic(topic: Topic, broker: str) -> dict[str, Any]:
    backlogs = [_backlog_bytes(topic, each) for each in topic.subscriptions.values()]
    return {
        **dict.fromkeys(_RATES, 0.0),
        "bytesInCounter": 0,
        "msgInCounter": 0,
        "bytesOutCounter": 0,
        "msgOutCounter": 0,
        "averageMsgSize": 0.0,
        "msgChunkPublished": False,
        "storageSize": topic.ledger.size_bytes,
        "backlogSize": max(backlogs, default=0),
        "publishRateLimitedTimes": 0,
        "offloadedStorageSize": 0,
        "publishers": [
            {
                "accessMode": "Shared",
                "msgRateIn": 0.0,
                "msgThroughputIn": 0.0,
                "averageMsgSize": 0.0,
                "producerId": producer.producer_id,
                "producerName": producer.name,
                "address": getattr(producer.connection, "peer", ""),
                "clientVersion": getattr(producer.connection, "client_version", ""),
                "metadata": {},
            }
            for producer in topic.producers.values()
        ],
        "waitingPublishers": 0,
        "subscriptions": {
            name: _of_subscription(topic, each) for name, each in topic.subscriptions.items()
        },
        "replication": {},
        "deduplicationStatus": "Disabled",
        "compaction": _COMPACTION,
        "ownerBroker": broker,
        "topicCreationTimeStamp": 0,
        "lastPublishTimeStamp": 0,
    }


def _of_subscription(topic: Topic, subscription: Subscription) -> dict[str, Any]:
    backlog = subscription.cursor.backlog()
    return {
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesOutCounter": 0,
        "msgOutCounter": 0,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "chunkedMessageRate": 0.0,
        "msgBacklog": backlog,
        "backlogSize": _backlog_bytes(topic, subscription),
        "msgBacklogNoDelayed": backlog,
        "blockedSubscriptionOnUnackedMsgs": False,
        "msgDelayed": 0,
        "unackedMessages": sum(each.unacked_messages for each in subscription.consumers),
        "type": subscription.type_name if subscription.consumers else "None",
        "msgRateExpired": 0.0,
        "totalMsgExpired": 0,
        "lastExpireTimestamp": 0,
        "lastConsumedFlowTimestamp": 0,
        "lastConsumedTimestamp": 0,
        "lastAckedTimestamp": 0,
        "lastMarkDeleteAdvancedTimestamp": 0,
        "consumers": [_of_consumer(each) for each in subscription.consumers],
        "isDurable": subscription.cursor.is_durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "consumersAfterMarkDeletePosition": {},
        "subscriptionProperties": dict(subscription.cursor.cursor_properties),
        "durable": subscription.cursor.is_durable,
        "replicated": False,
    }


def _of_consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesOutCounter": 0,
        "msgOutCounter": 0,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked_messages,
        "avgMessagesPerEntry": int(consumer.messages_per_entry),
        "blockedConsumerOnUnackedMsgs": False,
        "address": getattr(consumer.outlet, "peer", ""),
        "clientVersion": getattr(consumer.outlet, "client_version", ""),
        "metadata": {},
    }


def _backlog_bytes(topic: Topic, subscription: Subscription) -> int:
    """An estimate, as Pulsar's: the share of the backlog in what is stored."""
    entries = topic.ledger.entry_count
    share = min(subscription.cursor.backlog(), entries)
    return topic.ledger.size_bytes * share // entries if entries else 0


# --- how it is stored ------------------------------------------------------------------------


async def internal_stats(call: Call) -> object:
    """The ledgers and cursors of a topic."""
    if await partitioned(call) is not None:
        raise RestRefused(404, f"Topic {call.topic} not found")
    return _internal(await opened(call))


async def partitioned_internal_stats(call: Call) -> object:
    """The same for each partition."""
    document = await partitioned(call)
    if document is None:
        raise RestRefused(404, f"Partitioned Topic {call.topic} not found")
    return {
        "metadata": {"partitions": document.partitions, "deleted": document.deleted},
        "partitions": {
            str(name): _internal(await opened(call, name)) for name in await parts(call)
        },
    }


async def internal_info(call: Call) -> object:
    """What the metadata say about a topic's ledgers and cursors."""
    topic = await opened(call)
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
    ledger = (await opened(call)).ledger
    place = Position(body["ledgerId"], int(body.get("entryId", -1)))
    entries = ledger.entry_count
    after = ledger.entries_between(place, ledger.last_confirmed)
    return ledger.size_bytes * min(after, entries) // entries if entries else 0


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
    return Endpoint(method, f"{_TOPIC}/{page}", Right.LOOK_UP, serve, words)


STATISTICS_ENDPOINTS: Final = (
    _row("GET", "stats", topic_stats, "Who is connected, and what waits"),
    _row("GET", "partitioned-stats", partitioned_stats, "The same of all partitions"),
    _row("GET", "internalStats", internal_stats, "Ledgers and cursors"),
    _row(
        "GET", "partitioned-internalStats", partitioned_internal_stats, "Ledgers of all partitions"
    ),
    _row("GET", "internal-info", internal_info, "What the metadata say"),
    _row("PUT", "backlogSize", backlog_size, "Bytes after a message"),
)
