"""The right kind of "no" for any request, so that no client waits for an answer that never comes.

The C++ client matches an ERROR with few kinds of requests; all others have to be refused with
their own response. Nothing but that choice lives here.
"""

from collections.abc import Callable

from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire import replies

_Builder = Callable[[int, pb.ServerError, str], pb.BaseCommand]

_OWN_FAILURE: dict[int, _Builder] = {
    pb.BaseCommand.LOOKUP: replies.lookup_failed,
    pb.BaseCommand.PARTITIONED_METADATA: replies.partition_metadata_failed,
    pb.BaseCommand.CONSUMER_STATS: replies.consumer_stats_failed,
    pb.BaseCommand.GET_SCHEMA: replies.get_schema_failed,
    pb.BaseCommand.GET_OR_CREATE_SCHEMA: replies.get_or_create_schema_failed,
}

_TRANSACTION_RESPONSE = {
    pb.BaseCommand.NEW_TXN: pb.BaseCommand.NEW_TXN_RESPONSE,
    pb.BaseCommand.ADD_PARTITION_TO_TXN: pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN: pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
    pb.BaseCommand.END_TXN: pb.BaseCommand.END_TXN_RESPONSE,
    pb.BaseCommand.END_TXN_ON_PARTITION: pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
    pb.BaseCommand.END_TXN_ON_SUBSCRIPTION: pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
}

_ANSWERED_BY_ERROR = (
    pb.BaseCommand.SUBSCRIBE,
    pb.BaseCommand.PRODUCER,
    pb.BaseCommand.UNSUBSCRIBE,
    pb.BaseCommand.CLOSE_PRODUCER,
    pb.BaseCommand.CLOSE_CONSUMER,
    pb.BaseCommand.SEEK,
    pb.BaseCommand.GET_LAST_MESSAGE_ID,
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
    pb.BaseCommand.WATCH_TOPIC_LIST,
    pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE,
    pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST,
)


def _field_name(kind: int) -> str:
    return pb.BaseCommand.DESCRIPTOR.fields_by_number[kind].name


def refuse(command: pb.BaseCommand, code: pb.ServerError, text: str) -> pb.BaseCommand | None:
    """Build the answer that makes the request fail at its sender.

    None means that the command is no request: nobody waits for an answer, and a peer that sends
    it here is not understood. Close the connection.
    """
    kind = command.type
    if kind in _ANSWERED_BY_ERROR:
        return replies.error(_request_id(command), code, text)
    if kind in _OWN_FAILURE:
        return _OWN_FAILURE[kind](_request_id(command), code, text)
    if kind in _TRANSACTION_RESPONSE:
        return _refuse_transaction(command, code, text)
    return None


def _request_id(command: pb.BaseCommand) -> int:
    request_id: int = getattr(command, _field_name(command.type)).request_id
    return request_id


def _refuse_transaction(command: pb.BaseCommand, code: pb.ServerError, text: str) -> pb.BaseCommand:
    request = getattr(command, _field_name(command.type))
    kind = _TRANSACTION_RESPONSE[command.type]
    answer = pb.BaseCommand(type=kind)
    # Transaction messages name alike what they have alike.
    response = getattr(answer, _field_name(kind))
    response.request_id = request.request_id
    response.error = code
    response.message = text
    if "txnid_most_bits" in request.DESCRIPTOR.fields_by_name:
        response.txnid_most_bits = request.txnid_most_bits
        response.txnid_least_bits = request.txnid_least_bits
    return answer
