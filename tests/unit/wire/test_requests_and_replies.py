"""Every builder makes a command that the decoder accepts, and refusals answer in kind."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from anabranch import wire
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire import BaseCommand, Decoder, ServerError, replies, requests

WHERE = wire.message_id(5, 9)
SCHEMA = pb.Schema(name="s", schema_data=b"{}", type=pb.Schema.Json)
BY_NAME: dict[str, Any] = {
    "code": ServerError.MetadataError,
    "schema": SCHEMA,
    "sub_type": pb.CommandSubscribe.Shared,
    "where": WHERE,
    "last": WHERE,
    "topics": ["a", "b"],
    "new": ["a"],
    "deleted": [],
    "stats": pb.CommandConsumerStatsResponse(request_id=1),
    "method": "token",
    "data": b"secret",
    "schema_version": b"\x00",
    "is_active": True,
}
TEXTS = """
    text name topic subscription namespace topics_hash broker_url client_version server_version
"""


BUILDERS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": function
    for module in (requests, replies)
    for name, function in vars(module).items()
    if inspect.isfunction(function)
    and function.__module__ == module.__name__
    and not name.startswith("_")
}


def build(function: Callable[..., BaseCommand]) -> BaseCommand:
    """Call with something for every argument that has no default."""
    arguments = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty:
            arguments[name] = BY_NAME.get(name, name if name in TEXTS.split() else 3)
    return function(**arguments)


@pytest.mark.parametrize("function", BUILDERS.values(), ids=BUILDERS.keys())
def test_what_is_built_is_accepted(function: Callable[..., BaseCommand]) -> None:
    command = build(function)
    assert Decoder().feed(wire.encode(command)) == [command]


def test_java_finds_the_fields_it_reads_without_looking() -> None:
    admitted = replies.producer_success(1, "p").producer_success
    assert admitted.HasField("schema_version")
    assert admitted.last_sequence_id == -1
    assert not admitted.HasField("topic_epoch")
    assert replies.partition_metadata(1, 0).partitionMetadataResponse.HasField("partitions")
    failed = replies.lookup_failed(1, ServerError.MetadataError, "why").lookupTopicResponse
    assert failed.message == "why"
    assert replies.ping().HasField("ping")


def test_closing_by_the_broker_answers_no_request() -> None:
    assert replies.close_producer(1).close_producer.request_id == 2**64 - 1
    assert replies.close_consumer(1).close_consumer.request_id == 2**64 - 1
    assert replies.handshake_error(ServerError.AuthenticationError, "no").error.request_id == (
        2**64 - 1
    )


def test_a_name_that_the_user_gave_is_marked_as_such() -> None:
    assert requests.producer("t", 1, 1, name="mine").producer.user_provided_producer_name
    assert not requests.producer("t", 1, 1).producer.user_provided_producer_name
    kept = requests.producer("t", 1, 1, name="given", name_is_users=False).producer
    assert not kept.user_provided_producer_name


@pytest.mark.parametrize("number", [-1, 0, 2**63 - 1, -(2**63)])
def test_signed_ids_survive_the_wire(number: int) -> None:
    assert wire.signed(wire.unsigned(number)) == number
    assert wire.signed(wire.message_id(number, 0).ledgerId) == number


def requests_of_all_kinds() -> Iterable[BaseCommand]:
    """One command of every type, with all that is required."""
    for kind in BaseCommand.Type.values():
        command = BaseCommand(type=BaseCommand.Type.Name(kind))
        fill(getattr(command, BaseCommand.DESCRIPTOR.fields_by_number[kind].name))
        yield command


def fill(message: Any) -> None:
    message.SetInParent()
    for field in message.DESCRIPTOR.fields:
        if field.is_required and field.message_type is not None:
            fill(getattr(message, field.name))
        elif field.is_required:
            value: Any = 0
            if field.type == field.TYPE_STRING:
                value = "x"
            elif field.type == field.TYPE_BYTES:
                value = b"x"
            setattr(message, field.name, 77 if field.name == "request_id" else value)


ANSWERS = {
    "LOOKUP": "LOOKUP_RESPONSE",
    "PARTITIONED_METADATA": "PARTITIONED_METADATA_RESPONSE",
    "CONSUMER_STATS": "CONSUMER_STATS_RESPONSE",
    "GET_SCHEMA": "GET_SCHEMA_RESPONSE",
    "GET_OR_CREATE_SCHEMA": "GET_OR_CREATE_SCHEMA_RESPONSE",
    "NEW_TXN": "NEW_TXN_RESPONSE",
    "ADD_PARTITION_TO_TXN": "ADD_PARTITION_TO_TXN_RESPONSE",
    "ADD_SUBSCRIPTION_TO_TXN": "ADD_SUBSCRIPTION_TO_TXN_RESPONSE",
    "END_TXN": "END_TXN_RESPONSE",
    "END_TXN_ON_PARTITION": "END_TXN_ON_PARTITION_RESPONSE",
    "END_TXN_ON_SUBSCRIPTION": "END_TXN_ON_SUBSCRIPTION_RESPONSE",
    "TC_CLIENT_CONNECT_REQUEST": "ERROR",
    "SUBSCRIBE": "ERROR",
    "PRODUCER": "ERROR",
    "UNSUBSCRIBE": "ERROR",
    "CLOSE_PRODUCER": "ERROR",
    "CLOSE_CONSUMER": "ERROR",
    "SEEK": "ERROR",
    "GET_LAST_MESSAGE_ID": "ERROR",
    "GET_TOPICS_OF_NAMESPACE": "ERROR",
    "WATCH_TOPIC_LIST": "ERROR",
    "WATCH_TOPIC_LIST_CLOSE": "ERROR",
}


@pytest.mark.parametrize(
    "command",
    list(requests_of_all_kinds()),
    ids=lambda command: BaseCommand.Type.Name(command.type),
)
def test_every_request_is_refused_in_kind(command: BaseCommand) -> None:
    answer = wire.refuse(command, ServerError.NotAllowedError, "not here")
    expected = ANSWERS.get(BaseCommand.Type.Name(command.type))
    if expected is None:
        assert answer is None
        return
    assert answer is not None
    assert BaseCommand.Type.Name(answer.type) == expected
    (decoded,) = Decoder().feed(wire.encode(answer))
    assert isinstance(decoded, BaseCommand)
    body = getattr(decoded, BaseCommand.DESCRIPTOR.fields_by_number[decoded.type].name)
    assert body.request_id == 77
    names = body.DESCRIPTOR.fields_by_name
    assert getattr(body, "error" if "error" in names else "error_code") == 22
    assert getattr(body, "message" if "message" in names else "error_message") == "not here"


def test_a_refused_transaction_is_named() -> None:
    command = BaseCommand(type=BaseCommand.END_TXN)
    command.endTxn.request_id = 1
    command.endTxn.txnid_most_bits = 2
    command.endTxn.txnid_least_bits = 3
    answer = wire.refuse(command, ServerError.TransactionNotFound, "gone")
    assert answer is not None
    body = answer.endTxnResponse
    assert (body.txnid_most_bits, body.txnid_least_bits) == (2, 3)
