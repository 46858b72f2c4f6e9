"""Acknowledgements on their way: gathered and sent together, or sent at once and answered.

What is gathered is kept over a lost connection and sent first thing on the next one, so that less
comes twice.
"""

import asyncio
from collections.abc import Callable

from anabranch import limits
from anabranch.client.batch_acks import BatchAcks
from anabranch.client.connection import BrokerConnection
from anabranch.client.message import MessageId
from anabranch.errors import OutcomeUnknown
from anabranch.ids import Position
from anabranch.wire import CUMULATIVE, INDIVIDUAL, AckedId, ack


class Acking:
    """The acknowledgements of one consumer."""

    def __init__(self, consumer_id: int, connection: Callable[[], BrokerConnection | None]) -> None:
        self._consumer_id = consumer_id
        self._connection = connection
        self.batches = BatchAcks()
        self._group: dict[Position, AckedId] = {}
        self._up_to: AckedId | None = None
        self._timer: asyncio.TimerHandle | None = None

    def soon(self, message_id: MessageId, *, cumulative: bool) -> None:
        """Acknowledge with the next group."""
        if cumulative:
            self._up_to = self.batches.acknowledge_cumulative(message_id)
        elif len(self._group) < limits.ACK_GROUP_IDS_MAX:
            acked = self.batches.acknowledge(message_id)
            self._group[message_id.position] = acked
        if len(self._group) >= limits.ACK_GROUP_IDS_MAX:
            self.send()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.ACK_GROUP_DELAY_S, self.send)

    async def and_wait(self, message_id: MessageId, *, cumulative: bool) -> None:
        """Acknowledge and return when that is durable.

        Raises:
            OutcomeUnknown: if no answer came.
            BrokerRefused: if the broker refused.
        """
        connection = self._connection()
        if connection is None:
            raise OutcomeUnknown("not connected")
        if cumulative:
            kind, acked = CUMULATIVE, self.batches.acknowledge_cumulative(message_id)
        else:
            kind, acked = INDIVIDUAL, self.batches.acknowledge(message_id)
        self.send()
        request_id = connection.new_request_id()
        frame = ack(self._consumer_id, kind, [acked], request_id)
        await connection.request(request_id, [frame])

    def send(self) -> None:
        """Send what is gathered, if there is a connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection = self._connection()
        if connection is None:
            return
        if self._up_to is not None:
            connection.write_soon([ack(self._consumer_id, CUMULATIVE, [self._up_to])])
            self._up_to = None
        if self._group:
            connection.write_soon([ack(self._consumer_id, INDIVIDUAL, self._group.values())])
            self._group = {}

    def forget(self) -> None:
        """Drop what is gathered: the subscription was moved, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._group = {}
        self._up_to = None
        self.batches = BatchAcks()
