"""Serving ACK: taken over into the cursor at once, answered when durable if that was asked for."""

from functools import partial
from typing import TYPE_CHECKING

from anabranch.broker.refusals import code_of
from anabranch.broker.transactions import NOT_ACKNOWLEDGED
from anabranch.errors import InputError
from anabranch.telemetry import get_logger
from anabranch.wire import Ack, ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_log = get_logger("session")


def serve_ack(session: "Session", ack: Ack) -> None:
    """Take acknowledgements of a consumer."""
    opened = session.consumers.get(ack.consumer_id)
    if opened is None:
        # Closed by us a moment ago, perhaps. Nobody who waits for an answer waits in vain.
        _refuse(session, ack, ServerError.ConsumerNotFound, f"no consumer {ack.consumer_id}")
        return
    consumer, subscription, _ = opened
    if ack.txn is not None:
        _refuse(session, ack, ServerError.NotAllowedError, NOT_ACKNOWLEDGED)
        return
    try:
        subscription.acknowledge(consumer, ack)
    except InputError as error:
        _refuse(session, ack, ServerError.MetadataError, str(error))
        return
    if ack.request_id is not None:
        answer = partial(_answer, session, ack.consumer_id, ack.request_id)
        subscription.cursor.flush(answer)


def _refuse(session: "Session", ack: Ack, code: ServerError, text: str) -> None:
    _log.info("ack_refused", consumer=ack.consumer_id, reason=text)
    if ack.request_id is not None:
        refusal = (code, text)
        session.reply(replies.ack_response(ack.consumer_id, ack.request_id, refusal, txn=ack.txn))


def _answer(session: "Session", consumer_id: int, request_id: int, error: Exception | None) -> None:
    # A write that failed is tried again with the next one; if the log itself is lost the managed
    # ledger says so, and the topic is closed. Either way it is this client that has to know.
    refusal = None if error is None else (code_of(error), str(error))
    if not session.closed:
        session.reply(replies.ack_response(consumer_id, request_id, refusal))
