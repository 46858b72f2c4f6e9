"""A producer of a partitioned topic: one per partition, and a choice for each message."""

import asyncio
from typing import TYPE_CHECKING, Unpack

from anabranch.client.limits import PARTITIONS_REFRESH_S
from anabranch.client.message import MessageId
from anabranch.client.opening import open_together
from anabranch.client.producer import TopicProducer
from anabranch.client.questions import partition_of, partitions_of
from anabranch.client.routing import Routes
from anabranch.client.send_options import SendOptions
from anabranch.client.settings import ProducerSettings
from anabranch.errors import AnabranchError
from anabranch.ids import TopicName
from anabranch.telemetry import get_logger

if TYPE_CHECKING:
    from anabranch.client.client import Client

_log = get_logger("client")


class PartitionedProducer:
    """Publishes messages to the partitions of a topic. A `Producer`.

    What is bounded is bounded for each partition.
    """

    def __init__(
        self, client: "Client", topic: TopicName, settings: ProducerSettings, routes: Routes
    ) -> None:
        self.topic = topic
        self._client = client
        self._settings = settings
        self._routes = routes
        self._partitions: list[TopicProducer] = []
        self._closed = False

    async def open(self, partitions: int) -> None:
        """Open a producer for each partition. Raises as `Client.producer`."""
        await self._add(partitions)
        self._client.tasks.spawn(f"partitions of {self.topic}", self._follow())

    async def _add(self, partitions: int) -> None:
        have = len(self._partitions)
        fresh = [
            TopicProducer(self._client, partition_of(self.topic, index), self._settings)
            for index in range(have, partitions)
        ]
        await open_together(self._client, fresh)
        self._partitions += fresh

    async def _follow(self) -> None:
        """See from time to time whether there are more partitions."""
        while not self._closed:
            await asyncio.sleep(PARTITIONS_REFRESH_S)
            try:
                count = await partitions_of(self._client, self.topic)
                if not self._closed and count > len(self._partitions):
                    await self._add(count)
            except AnabranchError as error:
                _log.warning("partitions_not_seen", topic=str(self.topic), error=str(error))

    @property
    def name(self) -> str:
        """See `Producer.name`."""
        return self._partitions[0].name

    @property
    def attachments(self) -> int:
        """See `Producer.attachments`."""
        return sum(each.attachments for each in self._partitions)

    @property
    def next_sequence_id(self) -> int:
        """See `Producer.next_sequence_id`; that of the partition which is furthest."""
        return max(each.next_sequence_id for each in self._partitions)

    @property
    def partitions(self) -> int:
        """How many partitions it publishes to."""
        return len(self._partitions)

    async def send(self, value: bytes | None, **about: Unpack[SendOptions]) -> MessageId:
        """See `Producer.send`."""
        return await (await self.send_soon(value, **about))

    async def send_soon(
        self, value: bytes | None, **about: Unpack[SendOptions]
    ) -> asyncio.Future[MessageId]:
        """See `Producer.send_soon`."""
        count = len(self._partitions)
        # What gathers in a batch stays together; the next batch goes to the next partition.
        stay = self._partitions[self._routes.at(count)].is_gathering
        chosen = self._routes.choose(about.get("key"), count, stay=stay)
        return await self._partitions[chosen].send_soon(value, **about)

    async def flush(self) -> None:
        """See `Producer.flush`."""
        await asyncio.gather(*(each.flush() for each in self._partitions))

    async def close(self) -> None:
        """See `Producer.close`."""
        self._closed = True
        await asyncio.gather(*(each.close() for each in self._partitions))
