"""Staying attached to the owner of a topic: look up, attach, notice the loss, back off, again.

Producers and consumers both are attachments; what differs is `attach`, the one request that opens
them on a fresh connection.
"""

import asyncio
from typing import TYPE_CHECKING

from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.client.limits import RECONNECT_DELAY_S_MAX, RECONNECT_DELAY_S_MIN
from anabranch.errors import AlreadyClosed, ConfigError, OutcomeUnknown, Unreachable
from anabranch.generated.pulsar_api_pb2 import ServerError
from anabranch.ids import TopicName

if TYPE_CHECKING:
    from anabranch.client.client import Client

_FINAL = frozenset(
    {
        ServerError.AuthorizationError,
        ServerError.IncompatibleSchema,
        ServerError.InvalidTopicName,
        ServerError.NotAllowedError,
        ServerError.ProducerFenced,
        ServerError.TopicNotFound,
        ServerError.TopicTerminatedError,
    }
)
"""Refusals that trying again does not change."""
_FINAL_AT_FIRST = frozenset(
    {
        ServerError.AuthenticationError,
        ServerError.ConsumerAssignError,
        ServerError.ConsumerBusy,
        ServerError.ProducerBusy,
    }
)
"""Final for a new one; one that was attached before is perhaps only waiting for its own ghost."""


def is_final(code: int, *, first: bool) -> bool:
    """Whether trying again does not change a refusal; `first` of one that was never attached."""
    return code in _FINAL or (first and code in _FINAL_AT_FIRST)


class Attachment:
    """Keeps one producer or consumer attached until it is closed."""

    def __init__(self, client: "Client", topic: TopicName) -> None:
        self.client = client
        self.topic = topic
        self.connection: BrokerConnection | None = None
        self.closed = False
        self._next_url = ""
        """Where the last broker said that this one is served now; good for one attempt."""
        self._cluster_url = ""
        """The cluster that the topic has moved to, if it has."""
        self._lost = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.attachments = 0
        """How often it was attached. What was unanswered when it was lost may be there twice."""
        self._trouble: Exception | None = None
        """Why it is not attached, or why it never will be again."""

    async def attach(self, connection: BrokerConnection) -> None:
        """Open on a fresh connection."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close on the broker."""
        raise NotImplementedError

    def gave_up(self, error: Exception) -> None:
        """The broker will never have this one back."""
        raise NotImplementedError

    def detach(self, connection: BrokerConnection) -> None:
        """Tell the broker that this one is closed, without waiting for an answer."""
        raise NotImplementedError

    @property
    def open_timeout_s(self) -> float | None:
        """How long to wait for the first attachment; None for ever."""
        return self.client.open_timeout_s

    async def start(self) -> None:
        """Attach for the first time and stay attached.

        Raises:
            BrokerRefused: if the broker does not want it.
            Unreachable: if no broker took it in time.
        """
        self.client.tasks.spawn(f"attach {self.topic}", self._stay_attached())
        try:
            async with asyncio.timeout(self.open_timeout_s):
                await self._ready
        except TimeoutError:
            self.abandon()
            raise Unreachable(
                f"{self.topic} could not be opened within {self.open_timeout_s:g} s: "
                f"{self._trouble}"
            ) from self._trouble
        except asyncio.CancelledError:
            # Perhaps in the very moment in which it was attached.
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close without waiting for anybody."""
        self.closed = True
        connection, self.connection = self.connection, None
        if connection is not None:
            self.detach(connection)
        self.let_go()
        self.gave_up(AlreadyClosed(f"closed: {self.topic}"))

    def on_connection_lost(self) -> None:
        """See `Attached.on_connection_lost`."""
        self.connection = None
        self._lost.set()

    def on_closed_by_broker(self, next_url: str) -> None:
        """See `Attached.on_closed_by_broker`."""
        self._next_url = next_url
        self.on_connection_lost()

    def on_migrated(self, url: str, url_tls: str) -> None:
        """See `Attached.on_migrated`."""
        if wanted := url_tls if self.client.brokers.secure else url:
            self._cluster_url = wanted

    async def _find_broker(self) -> BrokerConnection:
        next_url, self._next_url = self._next_url, ""
        if next_url:
            return await self.client.brokers.at(next_url)
        return await self.client.brokers.owner_of(self.topic, self._cluster_url)

    async def _stay_attached(self) -> None:
        delay_s = RECONNECT_DELAY_S_MIN
        while not self.closed:
            self._lost.clear()
            try:
                await self.attach(await self._find_broker())
            except OutcomeUnknown as error:
                self._trouble = error
            except BrokerRefused as error:
                self._trouble = error
                if is_final(error.code, first=self.attachments == 0):
                    self.end(error)
                    return
            except ConfigError as error:
                self.end(error)  # an address this client cannot use
                return
            else:
                self.attachments += 1
                self._trouble = None
                delay_s = RECONNECT_DELAY_S_MIN
                if not self._ready.done():
                    self._ready.set_result(None)
                await self._lost.wait()
                if self.closed:
                    return
                if self._next_url:
                    continue  # somebody waits for it there
            await asyncio.sleep(delay_s * self.client.runtime.entropy.uniform(0.9, 1.1))
            delay_s = min(2 * delay_s, RECONNECT_DELAY_S_MAX)

    def let_go(self) -> None:
        """Stop staying attached; whoever waits for the first time is told."""
        self.client.forget(self)
        self._lost.set()
        if not self._ready.done():
            self._ready.set_exception(AlreadyClosed(f"closed: {self.topic}"))

    def end(self, error: Exception) -> None:
        """Close because of something that trying again does not change."""
        self.closed = True
        self.connection = None
        self._trouble = error
        self._lost.set()
        self.client.forget(self)
        if not self._ready.done():
            self._ready.set_exception(error)
        self.gave_up(error)

    def check_open(self) -> None:
        """Raise AlreadyClosed if it is."""
        if self.closed:
            why = f": {self._trouble}" if self._trouble is not None else ""
            raise AlreadyClosed(f"{self.topic} is closed{why}") from self._trouble
