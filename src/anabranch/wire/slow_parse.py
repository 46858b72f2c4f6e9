"""Parsing by protobuf: every command in every legal form, and the words for every illegal one."""

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from anabranch.errors import ProtocolError
from anabranch.generated.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandMessage,
    CommandSend,
    CommandSendReceipt,
    MessageIdData,
)
from anabranch.wire.commands import (
    Ack,
    AckedId,
    Buffer,
    Command,
    Flow,
    Message,
    Send,
    SendReceipt,
    signed,
)

_FIELD_OF_TYPE = {
    number: BaseCommand.DESCRIPTOR.fields_by_number[number].name
    for number in BaseCommand.Type.values()
}
_WITH_ENTRY = (BaseCommand.SEND, BaseCommand.MESSAGE)


def parse_command(command_bytes: Buffer, entry: memoryview | None) -> Command:
    """Read a BaseCommand; `entry` is what follows it in the frame, None if nothing does.

    Raises:
        ProtocolError: saying which rule the peer broke.
    """
    command = parse_base_command(command_bytes)
    kind = command.type
    if (kind in _WITH_ENTRY) != (entry is not None):
        name = BaseCommand.Type.Name(kind)
        raise ProtocolError(
            f"{name} has bytes after the command" if entry is not None else f"{name} has no entry"
        )
    if kind == BaseCommand.SEND and entry is not None:
        return _send(command.send, entry)
    if kind == BaseCommand.MESSAGE and entry is not None:
        return _message(command.message, entry)
    if kind == BaseCommand.ACK:
        return _ack(command.ack)
    if kind == BaseCommand.FLOW:
        return Flow(command.flow.consumer_id, command.flow.messagePermits)
    if kind == BaseCommand.SEND_RECEIPT:
        return _send_receipt(command.send_receipt)
    return command


def parse_base_command(command_bytes: Buffer) -> BaseCommand:
    """Read the protobuf and check what protobuf does not.

    Raises:
        ProtocolError: if it is malformed, incomplete, or not what its type says.
    """
    command = BaseCommand()
    try:
        command.ParseFromString(bytes(command_bytes))
    except DecodeError as error:
        raise ProtocolError(f"a command of {len(command_bytes)} bytes is malformed") from error
    if not command.HasField("type"):
        raise ProtocolError("a command has no type, or one that this server does not know")
    field = _FIELD_OF_TYPE[command.type]
    if not command.HasField(field):
        raise ProtocolError(f"{BaseCommand.Type.Name(command.type)} lacks its field {field!r}")
    if not command.IsInitialized():
        kind = BaseCommand.Type.Name(command.type)
        raise ProtocolError(f"{kind} lacks {missing_fields(command)}")
    require_text(command)
    return command


def missing_fields(message: ProtobufMessage) -> str:
    """Name the required fields that are not set."""
    names: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]
    return ", ".join(names)


def require_text(message: ProtobufMessage) -> None:
    """Refuse strings that are not UTF-8; protobuf would show them to callers as bytes.

    Raises:
        ProtocolError: naming the field.
    """
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                require_text(part)
        elif field.type == FieldDescriptor.TYPE_STRING:
            for part in value if field.is_repeated else (value,):
                if not isinstance(part, str):
                    raise ProtocolError(f"{field.full_name} is not UTF-8")


def _txn(command: CommandSend | CommandAck) -> tuple[int, int] | None:
    if command.HasField("txnid_most_bits") and command.HasField("txnid_least_bits"):
        return command.txnid_most_bits, command.txnid_least_bits
    return None


def _send(send: CommandSend, entry: memoryview) -> Send:
    return Send(
        send.producer_id,
        send.sequence_id,
        send.num_messages,
        send.highest_sequence_id if send.HasField("highest_sequence_id") else None,
        send.is_chunk,
        send.marker,
        _txn(send),
        entry,
    )


def _send_receipt(receipt: CommandSendReceipt) -> SendReceipt:
    known = receipt.HasField("message_id")
    return SendReceipt(
        receipt.producer_id,
        receipt.sequence_id,
        signed(receipt.message_id.ledgerId) if known else -1,
        signed(receipt.message_id.entryId) if known else -1,
        receipt.highest_sequence_id if receipt.HasField("highest_sequence_id") else None,
    )


def _message(message: CommandMessage, entry: memoryview) -> Message:
    where = message.message_id
    return Message(
        message.consumer_id,
        signed(where.ledgerId),
        signed(where.entryId),
        where.partition,
        message.redelivery_count,
        tuple(message.ack_set) or None,
        message.consumer_epoch if message.HasField("consumer_epoch") else None,
        entry,
    )


def _acked_id(where: MessageIdData) -> AckedId:
    return AckedId(
        signed(where.ledgerId),
        signed(where.entryId),
        tuple(where.ack_set) or None,
        where.batch_size if where.HasField("batch_size") else None,
    )


def _ack(ack: CommandAck) -> Ack:
    return Ack(
        ack.consumer_id,
        ack.ack_type,
        [_acked_id(where) for where in ack.message_id],
        ack.request_id if ack.HasField("request_id") else None,
        ack.validation_error if ack.HasField("validation_error") else None,
        _txn(ack),
    )
