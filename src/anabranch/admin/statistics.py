"""Statistics of topics in Pulsar's JSON: what is connected, what goes through, what waits.

How a topic is stored is `internal_statistics`' to say. Rates are of the last whole minute.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from anabranch.admin.brokers import own_id
from anabranch.admin.endpoints import Call, Endpoint, Handler
from anabranch.admin.owners import on_every_part, opened
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_access import partitioned
from anabranch.broker.backlogs import backlog_bytes
from anabranch.broker.consumer import Consumer
from anabranch.broker.key_shared import KEY_SHARED
from anabranch.broker.producer import (
    EXCLUSIVE,
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    WAIT_FOR_EXCLUSIVE,
    Producer,
)
from anabranch.broker.subscription import Subscription
from anabranch.broker.subscription_types import TYPE_NAMES
from anabranch.broker.topic import Topic
from anabranch.broker.traffic import Traffic
from anabranch.security import Right

TOPIC_PATH: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_ACCESS_MODES: Final = {
    SHARED: "Shared",
    EXCLUSIVE: "Exclusive",
    WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
_NO_COMPACTION: Final = {
    "lastCompactionRemovedEventCount": 0,
    "lastCompactionSucceedTimestamp": 0,
    "lastCompactionFailedTimestamp": 0,
    "lastCompactionDurationTimeInMills": 0,
}
_SUMMED: Final = (
    "msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut", "bytesInCounter",
    "msgInCounter", "bytesOutCounter", "msgOutCounter", "storageSize", "backlogSize",
    "waitingPublishers",
)  # fmt: skip
_SUMMED_OF_SUBSCRIPTION: Final = (
    "msgRateOut", "msgThroughputOut", "msgRateRedeliver", "messageAckRate", "msgBacklog",
    "msgBacklogNoDelayed", "backlogSize", "unackedMessages", "msgOutCounter", "bytesOutCounter",
    "msgDelayed", "totalMsgExpired",
)  # fmt: skip
_LATEST_OF_SUBSCRIPTION: Final = (
    "lastExpireTimestamp", "lastConsumedFlowTimestamp", "lastConsumedTimestamp",
    "lastAckedTimestamp",
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
    each = await of_parts(call, topic_stats, "stats")
    whole = _together(each.values())
    whole["metadata"] = {"partitions": document.partitions, "deleted": document.deleted}
    whole["partitions"] = each if call.query.get("perPartition", "true") == "true" else {}
    return whole


async def of_parts(call: Call, serve: Handler, page: str) -> dict[str, dict[str, Any]]:
    """What a page of each partition answers, by the name of the partition."""
    answers = await on_every_part(call, serve, page)
    return {str(name): found for name, found in answers.items() if isinstance(found, dict)}


# --- all partitions together -----------------------------------------------------------------


def _together(stats: Iterable[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = dict.fromkeys(_SUMMED, 0)
    whole |= {"publishers": [], "subscriptions": {}, "replication": {}}
    for one in stats:
        for name in _SUMMED:
            whole[name] += one[name]
        whole["publishers"] += one["publishers"]
        for name, found in one["subscriptions"].items():
            _add(whole["subscriptions"], name, found)
    rate = whole["msgRateIn"]
    whole["averageMsgSize"] = whole["msgThroughputIn"] / rate if rate else 0.0
    return whole


def _add(known: dict[str, Any], name: str, found: dict[str, Any]) -> None:
    """Count a partition's subscription into that of the whole topic."""
    if name not in known:
        known[name] = {**found, "consumers": list(found["consumers"])}
        return
    one = known[name]
    one["consumers"] += found["consumers"]
    one["blockedSubscriptionOnUnackedMsgs"] |= found["blockedSubscriptionOnUnackedMsgs"]
    for figure in _SUMMED_OF_SUBSCRIPTION:
        one[figure] += found[figure]
    for figure in _LATEST_OF_SUBSCRIPTION:
        one[figure] = max(one[figure], found[figure])


# --- one topic -------------------------------------------------------------------------------


def _of_topic(topic: Topic, broker: str) -> dict[str, Any]:
    subscriptions = topic.subscriptions.values()
    out = [each.traffic for each in subscriptions]
    storage, age = topic.policies.storage_quota, topic.policies.age_quota
    return {
        **_coming_in(topic.traffic),
        "msgRateOut": sum(each.per_second[0] for each in out),
        "msgThroughputOut": sum(each.per_second[1] for each in out),
        "bytesInCounter": topic.traffic.bytes,
        "msgInCounter": topic.traffic.messages,
        "bytesOutCounter": sum(each.bytes for each in out),
        "msgOutCounter": sum(each.messages for each in out),
        "storageSize": topic.ledger.size_bytes,
        "offloadedStorageSize": 0,
        "backlogSize": max((_backlog_bytes(topic, each) for each in subscriptions), default=0),
        "backlogQuotaLimitSize": storage.bytes_max,
        "backlogQuotaLimitTime": age.limit_time if age.limit_time > 0 else -1,
        "publishers": [_of_producer(producer) for producer in topic.producers.values()],
        "waitingPublishers": topic.admission.waiting,
        "subscriptions": {
            name: _of_subscription(topic, each) for name, each in topic.subscriptions.items()
        },
        "replication": {},
        "deduplicationStatus": "Disabled" if topic.deduplication is None else "Enabled",
        "compaction": _NO_COMPACTION,
        "ownerBroker": broker,
        "lastPublishTimeStamp": topic.traffic.last_ms,
    }


def _of_producer(producer: Producer) -> dict[str, Any]:
    return {
        "accessMode": _ACCESS_MODES.get(producer.access_mode, str(producer.access_mode)),
        **_coming_in(producer.traffic),
        "producerId": producer.producer_id,
        "producerName": producer.name,
        **_client(producer.connection, producer.since_ms, producer.said),
    }


def _of_subscription(topic: Topic, subscription: Subscription) -> dict[str, Any]:
    cursor = subscription.cursor
    backlog = cursor.backlog()
    return {
        **_going_out(subscription.traffic),
        "msgBacklog": backlog,
        "backlogSize": _backlog_bytes(topic, subscription),
        "msgBacklogNoDelayed": max(0, backlog - subscription.delayed),
        "blockedSubscriptionOnUnackedMsgs": subscription.is_blocked,
        "msgDelayed": subscription.delayed,
        "unackedMessages": sum(each.unacked_messages for each in subscription.consumers),
        "type": subscription.type_name if subscription.consumers else "None",
        "totalMsgExpired": subscription.expired.entries,
        "lastExpireTimestamp": subscription.expired.last_ms,
        "lastConsumedFlowTimestamp": subscription.last_flow_ms,
        "lastConsumedTimestamp": subscription.traffic.last_ms,
        "lastAckedTimestamp": subscription.last_ack_ms,
        "consumers": [_of_consumer(each) for each in subscription.consumers],
        "isDurable": cursor.is_durable,
        "isReplicated": False,
        **_shared_by_key(subscription),
        "consumersAfterMarkDeletePosition": {},
        "subscriptionProperties": dict(cursor.cursor_properties),
        "durable": cursor.is_durable,
        "replicated": False,
    }


def _shared_by_key(subscription: Subscription) -> dict[str, Any]:
    sharing = subscription.consumers[0].sharing if subscription.consumers else None
    if sharing is None or subscription.type_name != TYPE_NAMES[KEY_SHARED]:
        return {"allowOutOfOrderDelivery": False}
    mode = "STICKY" if sharing.sticky else "AUTO_SPLIT"
    return {"allowOutOfOrderDelivery": sharing.out_of_order, "keySharedMode": mode}


def _of_consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        **_going_out(consumer.traffic),
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked_messages,
        "avgMessagesPerEntry": round(consumer.messages_per_entry),
        "blockedConsumerOnUnackedMsgs": consumer.is_blocked,
        "lastConsumedTimestamp": consumer.traffic.last_ms,
        **_client(consumer.outlet, consumer.since_ms, consumer.said),
    }


def _coming_in(traffic: Traffic) -> dict[str, float]:
    messages, size, _, _ = traffic.per_second
    return {
        "msgRateIn": messages,
        "msgThroughputIn": size,
        "averageMsgSize": traffic.average_bytes,
    }


def _going_out(traffic: Traffic) -> dict[str, float]:
    messages, size, again, acknowledged = traffic.per_second
    return {
        "msgRateOut": messages,
        "msgThroughputOut": size,
        "bytesOutCounter": traffic.bytes,
        "msgOutCounter": traffic.messages,
        "msgRateRedeliver": again,
        "messageAckRate": acknowledged,
    }


def _client(connection: object, since_ms: int, said: Any) -> dict[str, Any]:
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return {
        "address": f"/{getattr(connection, 'peer', '')}",
        "connectedSince": since.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "clientVersion": getattr(connection, "client_version", ""),
        "metadata": dict(said),
    }


def _backlog_bytes(topic: Topic, subscription: Subscription) -> int:
    if not topic.name.is_persistent or not subscription.cursor.backlog():
        return 0
    return backlog_bytes(topic, subscription.cursor.mark_delete)


STATISTICS_ENDPOINTS: Final = (
    Endpoint(
        "GET",
        f"{TOPIC_PATH}/stats",
        Right.LOOK_UP,
        topic_stats,
        "Who is connected, and what waits",
    ),
    Endpoint(
        "GET",
        f"{TOPIC_PATH}/partitioned-stats",
        Right.LOOK_UP,
        partitioned_stats,
        "The same of all partitions",
    ),
)
