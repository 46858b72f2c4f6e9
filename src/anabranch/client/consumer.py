"""A consumer: a queue filled by permits, and acknowledgements with an answer."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from anabranch.client.attachment import Attachment
from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.errors import OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import CommandAck, CommandSubscribe
from anabranch.ids import Position, TopicName
from anabranch.wire import (
    AckedId,
    Message,
    ack,
    encode,
    flow,
    payload_of,
    read_metadata,
    requests,
)

if TYPE_CHECKING:
    from anabranch.client.client import Client

_TYPES = {"exclusive": CommandSubscribe.Exclusive, "shared": CommandSubscribe.Shared}
_POSITIONS = {"latest": CommandSubscribe.Latest, "earliest": CommandSubscribe.Earliest}


class Received(NamedTuple):
    """A message as it arrived."""

    position: Position
    payload: bytes
    key: str | None
    producer_name: str
    sequence_id: int
    redelivery_count: int


class Consumer(Attachment):
    """Receives from one subscription. Reads entries of one message, as our producer writes them."""

    def __init__(
        self,
        client: "Client",
        topic: TopicName,
        subscription: str,
        *,
        subscription_type: Literal["exclusive", "shared"],
        initial_position: Literal["latest", "earliest"],
        queue_messages: int,
    ) -> None:
        super().__init__(client, topic)
        self._subscription = subscription
        self._type = _TYPES[subscription_type]
        self._initial = _POSITIONS[initial_position]
        self._queue_messages = queue_messages
        self._id = client.new_id()
        self._name = client.runtime.entropy.token_hex(5)
        self._queue: deque[Received] = deque()
        self._arrived = asyncio.Event()
        self._taken = 0
        # Raised by every rewind; what was on its way before it is dropped. Ordered types only:
        # elsewhere nothing is sent twice by a redelivery.
        self._epoch = 0 if subscription_type == "exclusive" else None

    async def receive(self) -> Received:
        """Return the next message, waiting for one.

        Raises:
            AlreadyClosed: when the consumer is closed.
        """
        while not self._queue:
            self.check_open()
            self._arrived.clear()
            await self._arrived.wait()
        message = self._queue.popleft()
        self._made_room(1)
        return message

    def _made_room(self, count: int) -> None:
        self._taken += count
        if self._taken >= max(1, self._queue_messages // 2):
            self._permit(self._taken)

    def _permit(self, count: int) -> None:
        self._taken = 0
        if self.connection is not None:
            self.connection.write([flow(self._id, count)])

    async def acknowledge(self, position: Position, *, cumulative: bool = False) -> None:
        """Acknowledge and return when that is durable.

        Raises:
            OutcomeUnknown: if no answer came; the message may come again.
            BrokerRefused: if the broker refused.
        """
        self.check_open()
        connection = self.connection
        if connection is None:
            raise OutcomeUnknown("not connected")
        request_id = connection.new_request_id()
        kind = CommandAck.Cumulative if cumulative else CommandAck.Individual
        acked = AckedId(position.ledger_id, position.entry_id, None, None)
        await connection.request(request_id, [ack(self._id, kind, [acked], request_id)])

    def redeliver(self) -> None:
        """Ask for everything unacknowledged again."""
        dropped = len(self._queue)
        self._queue.clear()
        if self._epoch is not None:
            self._epoch += 1
        if self.connection is not None:
            again = requests.redeliver(self._id, consumer_epoch=self._epoch)
            self.connection.write([encode(again)])
            # Only for what was dropped: the broker still counts on the rest of its permits.
            self._made_room(dropped)

    async def attach(self, connection: BrokerConnection) -> None:
        """See `Attachment.attach`."""
        self._queue.clear()
        self._taken = 0
        request_id = connection.new_request_id()
        connection.consumers[self._id] = self
        try:
            await connection.request(
                request_id,
                [
                    encode(
                        requests.subscribe(
                            str(self.topic),
                            self._subscription,
                            self._type,
                            self._id,
                            request_id,
                            consumer_name=self._name,
                            initial_position=self._initial,
                            consumer_epoch=self._epoch,
                        )
                    )
                ],
            )
        except BaseException:
            connection.consumers.pop(self._id, None)
            raise
        if connection.closed or self._id not in connection.consumers:
            raise OutcomeUnknown("closed right after it was opened")
        if self.closed:
            del connection.consumers[self._id]
            request_id = connection.new_request_id()
            connection.write([encode(requests.close_consumer(self._id, request_id))])
            return
        self.connection = connection
        self._permit(self._queue_messages)

    def on_message(self, message: Message) -> None:
        """See `MessageTaker.on_message`."""
        if self._epoch is not None and message.consumer_epoch != self._epoch:
            self._made_room(1)
            return
        metadata = read_metadata(message.entry)
        self._queue.append(
            Received(
                Position(message.ledger_id, message.entry_id),
                bytes(payload_of(message.entry)),
                metadata.partition_key,
                metadata.producer_name,
                metadata.sequence_id,
                message.redelivery_count,
            )
        )
        self._arrived.set()

    def gave_up(self, error: Exception) -> None:
        """See `Attachment.gave_up`."""
        self._arrived.set()

    async def close(self) -> None:
        """Close on the broker; unacknowledged messages go to others."""
        if self.closed:
            return
        self.closed = True
        connection, self.connection = self.connection, None
        if connection is not None:
            request_id = connection.new_request_id()
            with suppress(OutcomeUnknown, BrokerRefused):  # it is gone either way
                await connection.request(
                    request_id, [encode(requests.close_consumer(self._id, request_id))]
                )
            connection.consumers.pop(self._id, None)
        self.let_go()
        self._arrived.set()
