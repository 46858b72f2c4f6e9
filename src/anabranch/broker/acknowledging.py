"""Serving ACK: taken over into the cursor at once, answered when durable if that was asked for."""

from functools import partial
from typing import TYPE_CHECKING

from anabranch.broker.refusals import code_of
from anabranch.broker.topic import Topic
from anabranch.errors import AlreadyClosed, CursorTooLarge, InputError
from anabranch.telemetry import get_logger
from anabranch.wire import Ack, ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_log = get_logger("session")


def serve_ack(session: "Session", ack: Ack) -> None:
    """Take acknowledgements of a consumer; those of one that is not open are passed over."""
    opened = session.consumers.get(ack.consumer_id)
    if opened is None:
        return
    consumer, subscription, topic = opened
    if ack.txn is not None:
        _refuse(session, ack, ServerError.NotAllowedError, "transactions are not served")
        return
    try:
        subscription.acknowledge(consumer, ack)
    except InputError as error:
        _refuse(session, ack, ServerError.MetadataError, str(error))
        return
    if ack.request_id is not None:
        answer = partial(_answer, session, topic, ack.consumer_id, ack.request_id)
        subscription.cursor.flush(answer)


def _refuse(session: "Session", ack: Ack, code: ServerError, text: str) -> None:
    _log.info("ack_refused", consumer=ack.consumer_id, reason=text)
    if ack.request_id is not None:
        refusal = (code, text)
        session.reply(replies.ack_response(ack.consumer_id, ack.request_id, refusal, txn=ack.txn))


def _answer(
    session: "Session", topic: Topic, consumer_id: int, request_id: int, error: Exception | None
) -> None:
    refusal = None
    if isinstance(error, AlreadyClosed):
        # The subscription was deleted under it, or the topic is closed anyway.
        refusal = (ServerError.MetadataError, str(error))
    elif isinstance(error, CursorTooLarge):
        # What is stored is untouched: it is this acknowledgement alone that cannot be kept.
        refusal = (code_of(error), str(error))
    elif error is not None:
        topic.fail(error)
        return
    if not session.closed:
        session.reply(replies.ack_response(consumer_id, request_id, refusal))
