"""Entries of a range, through the broker: as they are stored, in order, none missing.

A reader without memory is attached at the place where the range begins, and attached again behind
the last entry that came when the connection is lost. What comes is compared with what has to come.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from anabranch.client.attachment import Attachment
from anabranch.client.client import Client
from anabranch.client.connection import BrokerConnection
from anabranch.client.packing import messages_charged
from anabranch.client.permits import Permits
from anabranch.errors import OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import CommandSubscribe
from anabranch.ids import TopicName
from anabranch.wire import Message, encode, flow, message_id, requests
from pyspark_anabranch.entry_rows import MissingEntry, StoredEntry
from pyspark_anabranch.limits import FEED_QUEUE_BYTES, FEED_QUEUE_MESSAGES
from pyspark_anabranch.places import Span


class EntryFeed(Attachment):
    """The entries of some spans of a topic."""

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        spans: Sequence[Span],
        *,
        queue_bytes: int = FEED_QUEUE_BYTES,
    ) -> None:
        super().__init__(client, topic)
        self._id = client.new_id()
        self._name = f"spark-{client.runtime.entropy.token_hex(5)}"
        self._spans = deque(spans)
        self._next = spans[0].first
        self._left = sum(span.entries for span in spans)
        self._queue: list[StoredEntry] = []
        self._queued_bytes = 0
        self._charged = 0
        self._permits = Permits(FEED_QUEUE_MESSAGES, queue_bytes)
        self._arrived = asyncio.Event()
        self._problem: Exception | None = None

    @property
    def place(self) -> str:
        """Where the next entry is that has to come."""
        return f"{self._spans[0].ledger_id}:{self._next}" if self._spans else "the end"

    async def entries(self, bytes_max: int, wait_s: float) -> list[StoredEntry]:
        """Return the next entries, about so many bytes or less; none at the end of the range.

        Raises:
            MissingEntry: if one did not come, or another came in its place.
            AnabranchError: if the broker does not serve the topic any more.
        """
        while self._left and self._queued_bytes < bytes_max and not self._is_full():
            if self._problem is not None:
                raise self._problem
            self._arrived.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._arrived.wait()
            except TimeoutError:
                raise MissingEntry(
                    f"{self.topic}: nothing came for {wait_s:g} s; "
                    f"the next entry has to be {self.place}"
                ) from self._trouble
        taken, self._queue = self._queue, []
        self._permits.taken(self._charged, self._queued_bytes)
        self._queued_bytes = self._charged = 0
        self._permit()
        return taken

    def _is_full(self) -> bool:
        """Whether nothing more comes before something is taken: many messages may be few bytes."""
        return bool(self._queue) and self._permits.outstanding <= 0

    def on_message(self, message: Message) -> None:
        """See `MessageTaker.on_message`."""
        if not self._left or self._problem is not None:
            return
        span = self._spans[0]
        place, due = (message.ledger_id, message.entry_id), (span.ledger_id, self._next)
        charged = messages_charged(message)
        if place < due:  # the broker begins where it was told to, with that entry or behind it
            self._permits.arrived(charged, 0, 0)
            self._permit()
            return
        if place > due:
            self._fail(
                MissingEntry(
                    f"{self.topic}: entry {due[0]}:{due[1]} has to come next, "
                    f"and the broker sent {place[0]}:{place[1]}"
                )
            )
            return
        size = len(message.entry)
        self._queue.append(StoredEntry(*place, message.entry))
        self._queued_bytes += size
        self._charged += charged
        self._permits.arrived(charged, charged, size)
        self._left -= 1
        self._next += 1
        if self._next == span.until:
            self._spans.popleft()
            self._next = self._spans[0].first if self._spans else 0
        self._permit()
        self._arrived.set()

    def _permit(self) -> None:
        if self._left and self.connection is not None and (count := self._permits.due()):
            self.connection.write_soon([flow(self._id, count)])

    def _fail(self, problem: Exception) -> None:
        self._problem = problem
        self._arrived.set()

    async def attach(self, connection: BrokerConnection) -> None:
        """See `Attachment.attach`."""
        if not self._left:
            return
        # Permits of the old connection are gone with it; what is queued stays.
        self._permits.outstanding = 0
        request_id = connection.new_request_id()
        connection.consumers[self._id] = self
        wanted = requests.subscribe(
            str(self.topic),
            self._name,
            CommandSubscribe.Exclusive,
            self._id,
            request_id,
            consumer_name=self._name,
            durable=False,
            # Brokers differ in whether the entry named comes; the one before it does no harm.
            start_message_id=message_id(self._spans[0].ledger_id, self._next - 1),
        )
        try:
            await connection.request(request_id, [encode(wanted)])
        except BaseException:
            self.detach(connection)
            raise
        if connection.closed or self._id not in connection.consumers:
            raise OutcomeUnknown("closed right after it was opened")
        if self.closed:
            self.detach(connection)
            return
        self.connection = connection
        self._permit()

    def on_writable(self) -> None:
        """See `Attached.on_writable`; what a reader writes is small."""

    def detach(self, connection: BrokerConnection) -> None:
        """See `Attachment.detach`."""
        connection.consumers.pop(self._id, None)
        request_id = connection.new_request_id()
        connection.write([encode(requests.close_consumer(self._id, request_id))])

    def gave_up(self, error: Exception) -> None:
        """See `Attachment.gave_up`."""
        if self._left:
            self._fail(error)
