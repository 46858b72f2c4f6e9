"""Sends that a broker must refuse: entries whose checksum is wrong, on a producer of their own."""

import asyncio
from typing import Any

from anabranch.client import BrokerRefused, Client
from anabranch.client.connection import BrokerConnection
from anabranch.errors import OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.ids import TopicName
from anabranch.verify import payload
from anabranch.verify.history import HistoryWriter
from anabranch.verify.records import Outcome, Place, Send, Sent
from anabranch.wire import SendReceipt, build_entry, encode, requests, send_frame

NUMBER_OFFSET = 1_000_000
"""Added to a producer's number: its spoiled sends are those of another producer."""


class SpoiledSender:
    """Sends one spoiled entry at a time. No library would, so it speaks for itself."""

    def __init__(self, task: dict[str, Any], client: Client, history: HistoryWriter) -> None:
        self._task = task
        self._client = client
        self._history = history
        self._number = NUMBER_OFFSET + task["producer"]
        self._id = client.new_id()
        self._name = f"verify-{task['run']}-{self._number}"
        self._seq = 0
        self._connection: BrokerConnection | None = None
        self._answer: asyncio.Future[tuple[Outcome, Place | None, str]] | None = None
        self.counts = dict.fromkeys(Outcome, 0)

    async def send_one(self) -> None:
        """Send one spoiled entry and put on record what the broker said."""
        connection = await self._attached()
        if connection is None:
            return  # there is nobody to refuse it
        self._seq += 1
        data, crc = payload.build(
            run=self._task["run"], producer=self._number, epoch=0, seq=self._seq, key="spoiled"
        )
        metadata = MessageMetadata(
            producer_name=self._name,
            sequence_id=self._seq,
            publish_time=self._client.runtime.clock.wall_ms(),
            partition_key="spoiled",
        )
        entry = bytearray(build_entry(metadata, data))
        entry[2] ^= 0xFF  # the first byte of the checksum, behind the magic number
        self._history.append(Send(self._number, 0, self._seq, "spoiled", crc))
        self._history.flush()
        self._answer = asyncio.get_running_loop().create_future()
        connection.write(send_frame(self._id, self._seq, 1, bytes(entry)))
        outcome, place, error = await self._answer
        self._history.append(Sent(self._number, 0, self._seq, outcome, place, error))
        self.counts[outcome] += 1

    async def _attached(self) -> BrokerConnection | None:
        if self._connection is not None:
            return self._connection
        try:
            connection = await self._client.brokers.owner_of(TopicName.parse(self._task["topic"]))
            request_id = connection.new_request_id()
            connection.producers[self._id] = self
            wanted = requests.producer(
                self._task["topic"], self._id, request_id, name=self._name, name_is_users=True
            )
            await connection.request(request_id, [encode(wanted)])
        except (OutcomeUnknown, BrokerRefused):
            return None
        self._connection = connection
        return connection

    def _settle(self, outcome: Outcome, place: Place | None, error: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((outcome, place, error))

    def on_receipt(self, receipt: SendReceipt) -> None:
        """See `ReceiptTaker.on_receipt`: the broker took it, which the histories will show."""
        place = Place(-1, receipt.ledger_id, receipt.entry_id, -1)
        self._settle(Outcome.OK, place, "")

    def on_send_error(self, sequence_id: int, code: int, text: str) -> None:
        """See `ReceiptTaker.on_send_error`: a refusal of the only attempt is certain."""
        self._settle(Outcome.FAIL, None, f"{code}: {text}")

    def on_writable(self) -> None:
        """See `Attached.on_writable`."""

    def on_connection_lost(self) -> None:
        """See `Attached.on_connection_lost`."""
        self._connection = None
        self._settle(Outcome.UNKNOWN, None, "the connection was lost")

    def on_migrated(self, url: str, url_tls: str) -> None:
        """See `Attached.on_migrated`: what is spoiled stays where it is."""

    def on_closed_by_broker(self, next_url: str) -> None:
        """See `Attached.on_closed_by_broker`: the next attempt looks it up."""
        del next_url
        self.on_connection_lost()
