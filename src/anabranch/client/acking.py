"""Acknowledgements on their way: gathered and sent together, or sent at once and answered.

What is gathered is kept over a lost connection and sent first thing on the next one, so that less
comes twice.
"""

import asyncio
from collections.abc import Callable

from anabranch.client.batch_acks import BatchAcks, acked_id
from anabranch.client.connection import BrokerConnection
from anabranch.client.limits import ACK_GROUP_DELAY_S, ACK_GROUP_IDS_MAX
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
        self._group: dict[Position, tuple[int, int]] = {}
        """Entries, with the messages that are left of them and their size."""
        self._up_to: AckedId | None = None
        self._up_to_id: MessageId | None = None
        self._timer: asyncio.TimerHandle | None = None

    def soon(self, message_id: MessageId, *, cumulative: bool) -> None:
        """Acknowledge with the next group."""
        ledger_id, entry_id, _, batch_index, batch_size, _, _ = message_id
        position = Position(ledger_id, entry_id)
        if cumulative:
            left = self.batches.acknowledge_cumulative(position, batch_index, batch_size)
            if self._up_to_id is None or message_id >= self._up_to_id:
                self._up_to_id = message_id
                self._up_to = acked_id(position, left, batch_size)
        elif len(self._group) < ACK_GROUP_IDS_MAX:
            left = self.batches.acknowledge(position, batch_index, batch_size)
            self._group[position] = (left, batch_size)
        if len(self._group) >= ACK_GROUP_IDS_MAX:
            self.send()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ACK_GROUP_DELAY_S, self.send)

    async def and_wait(self, message_id: MessageId, *, cumulative: bool) -> None:
        """Acknowledge and return when that is durable.

        Raises:
            OutcomeUnknown: if no answer came.
            BrokerRefused: if the broker refused.
        """
        connection = self._connection()
        if connection is None:
            raise OutcomeUnknown("not connected")
        _, _, _, batch_index, batch_size, _, _ = message_id
        position = message_id.position
        note = self.batches.acknowledge_cumulative if cumulative else self.batches.acknowledge
        acked = acked_id(position, note(position, batch_index, batch_size), batch_size)
        self.send()
        request_id = connection.new_request_id()
        kind = CUMULATIVE if cumulative else INDIVIDUAL
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
            self._up_to = self._up_to_id = None
        if self._group:
            ids = [acked_id(entry, left, size) for entry, (left, size) in self._group.items()]
            connection.write_soon([ack(self._consumer_id, INDIVIDUAL, ids)])
            self._group = {}

    def forget(self) -> None:
        """Drop what is gathered: the subscription was moved, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._group = {}
        self._up_to = self._up_to_id = None
        self.batches = BatchAcks()
