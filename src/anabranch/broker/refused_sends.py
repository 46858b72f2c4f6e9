"""Messages that are not taken, or could not be stored: what their producer is told."""

from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.broker.producer import Producer
from anabranch.broker.topic import Topic
from anabranch.errors import Terminated
from anabranch.wire import Send, ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session


def refuse_send(
    session: "Session", producer: Producer, send: Send, code: ServerError, text: str
) -> None:
    """Refuse a message in its turn: clients match answers in order."""
    sequence_id = max(send.sequence_id, send.highest_sequence_id or 0)

    def refuse() -> None:
        session.pending_publishes -= 1
        if not session.closed and not producer.dropped:
            session.reply(replies.send_error(producer.producer_id, sequence_id, code, text))
        if session.reading_paused:
            session.resume_reading()

    # Behind the receipts of what was sent before. Its entry is let go of now; that it waits counts.
    session.pending_publishes += 1
    if session.pending_publishes >= limits.PENDING_PUBLISHES_PER_CONNECTION_MAX:
        session.hold_back()
    producer.after_pending(refuse)


def not_stored(
    session: "Session", topic: Topic, producer: Producer, last: int, error: Exception
) -> None:
    """A message was handed to storage and did not become durable."""
    if not isinstance(error, Terminated):
        # No answer: whether the entry is stored is unknown. The client is told that its
        # producer is closed and sends everything unanswered again, in order.
        topic.fail(error)
    elif not session.closed and not producer.dropped:
        code = ServerError.TopicTerminatedError
        session.reply(replies.send_error(producer.producer_id, last, code, str(error)))
