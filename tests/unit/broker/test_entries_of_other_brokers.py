"""Entries that a broker of Pulsar stored, with something of its own in front of each."""

import struct

import pytest

from anabranch.broker.consumer import Consumer, Delivery
from anabranch.generated.pulsar_api_pb2 import BrokerEntryMetadata
from anabranch.ids import Position
from anabranch.runtime.network import Buffer
from anabranch.wire import Decoder, Message, MessageMetadata, build_entry


class Written:
    """A connection that keeps what is written."""

    messages_out = 0
    writable = True

    def __init__(self) -> None:
        self.octets = b""

    def write_out(self, parts: list[Buffer]) -> None:
        self.octets += b"".join(parts)

    async def is_alive(self) -> bool:
        return True


@pytest.mark.goal(
    "core.L8", part="broker metadata stays inside", broken_by="broker_metadata_reaches_clients"
)
def test_what_a_broker_put_in_front_is_not_sent() -> None:
    index = BrokerEntryMetadata(broker_timestamp=5, index=7).SerializeToString()
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    sent = build_entry(metadata, b"one")
    in_front = struct.pack(">HI", 0x0E02, len(index)) + index + sent
    outlet = Written()
    consumer = Consumer(
        outlet, consumer_id=1, name="c", priority=0, partition=-1, epoch=None,
        disconnect=lambda: None,
    )  # fmt: skip
    consumer.deliver(
        [Delivery(Position(3, n), entry, 1, 0, None) for n, entry in enumerate((in_front, sent))]
    )
    got = list(Decoder().feed(outlet.octets))
    assert [bytes(each.entry) for each in got if isinstance(each, Message)] == [sent, sent]


def test_an_entry_that_ends_within_what_is_in_front_is_sent_as_it_is() -> None:
    damaged = struct.pack(">HI", 0x0E02, 900) + b"cut short"
    outlet = Written()
    consumer = Consumer(
        outlet, consumer_id=1, name="c", priority=0, partition=-1, epoch=None,
        disconnect=lambda: None,
    )  # fmt: skip
    consumer.deliver([Delivery(Position(3, 0), damaged, 1, 0, None)])
    assert outlet.octets.endswith(damaged)
