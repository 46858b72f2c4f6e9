"""What the decoder yields: five hot commands as plain tuples, all others as protobuf messages.

The types live here, and how ids travel. Ledger and entry ids are signed (-1 travels as 2**64 - 1);
every other number is as it is on the wire.
"""

from typing import NamedTuple

from anabranch.generated.pulsar_api_pb2 import BaseCommand, MessageIdData

Buffer = bytes | bytearray | memoryview

NO_REQUEST_ID = 2**64 - 1
"""The request id of what nobody asked for: a close by the broker, an error in the handshake."""

PROTOCOL_VERSION = 21
"""The newest protocol version that this codec speaks."""

INDIVIDUAL = 0
CUMULATIVE = 1


class Send(NamedTuple):
    """A producer publishes one entry."""

    producer_id: int
    sequence_id: int
    num_messages: int
    highest_sequence_id: int | None
    is_chunk: bool
    marker: bool
    txn: tuple[int, int] | None
    """(most, least) bits of the transaction, if both were sent."""
    entry: memoryview
    """Everything after the command, as stored; a view of the received bytes."""


class SendReceipt(NamedTuple):
    """An entry is stored. Ids of -1 mean that it was a duplicate."""

    producer_id: int
    sequence_id: int
    ledger_id: int
    entry_id: int
    highest_sequence_id: int | None


class Message(NamedTuple):
    """One entry for a consumer."""

    consumer_id: int
    ledger_id: int
    entry_id: int
    partition: int
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    """Words of a bit set whose ones are the messages of a batch still to be shown."""
    consumer_epoch: int | None
    entry: memoryview


class AckedId(NamedTuple):
    """One acknowledged entry, or the part of a batch that `ack_set` leaves out."""

    ledger_id: int
    entry_id: int
    ack_set: tuple[int, ...] | None
    batch_size: int | None


class Ack(NamedTuple):
    """A consumer is done with some messages."""

    consumer_id: int
    ack_type: int
    message_ids: list[AckedId]
    request_id: int | None
    validation_error: int | None
    txn: tuple[int, int] | None


class Flow(NamedTuple):
    """A consumer has room for so many more messages."""

    consumer_id: int
    permits: int


Command = Send | Ack | Flow | Message | SendReceipt | BaseCommand


def signed(number: int) -> int:
    """Read a uint64 of the wire as the signed number that it stands for."""
    return number - 2**64 if number >> 63 else number


def unsigned(number: int) -> int:
    """Undo `signed`, for protobuf's uint64 fields."""
    return number & (2**64 - 1)


def message_id(
    ledger_id: int, entry_id: int, *, partition: int = -1, batch_index: int = -1
) -> MessageIdData:
    """Name a message; ids may be negative."""
    return MessageIdData(
        ledgerId=unsigned(ledger_id),
        entryId=unsigned(entry_id),
        partition=partition,
        batch_index=batch_index,
    )
