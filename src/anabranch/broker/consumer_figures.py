"""What a client asks about its own consumer: permits, rates, and what waits behind it."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from anabranch.generated.pulsar_api_pb2 import BaseCommand, CommandConsumerStatsResponse
from anabranch.wire import ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session


def consumer_figures(session: "Session", command: BaseCommand) -> None:
    """Answer with the figures of a consumer of this connection."""
    request = command.consumerStats
    opened = session.consumers.get(request.consumer_id)
    if opened is None:
        text = f"Consumer {request.consumer_id} not found"
        code = ServerError.ConsumerNotFound
        session.reply(replies.consumer_stats_failed(request.request_id, code, text))
        return
    consumer, subscription, _ = opened
    messages, size, again, acknowledged = consumer.traffic.per_second
    since = datetime.fromtimestamp(consumer.since_ms / 1000, UTC)
    session.reply(
        replies.consumer_stats_response(
            CommandConsumerStatsResponse(
                request_id=request.request_id,
                msgRateOut=messages,
                msgThroughputOut=size,
                msgRateRedeliver=again,
                messageAckRate=acknowledged,
                consumerName=consumer.name,
                # Below zero after a batch that was larger, which the field cannot say.
                availablePermits=max(0, consumer.permits),
                unackedMessages=consumer.unacked_messages,
                blockedConsumerOnUnackedMsgs=consumer.is_blocked,
                address=f"/{session.peer}",
                connectedSince=since.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                type=subscription.type_name,
                msgBacklog=subscription.cursor.backlog(),
            )
        )
    )
