"""The way to brokers: who owns a topic, and one connection to each broker that is needed."""

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch import limits
from anabranch.client.connection import BrokerConnection, BrokerRefused
from anabranch.client.credentials import Credentials
from anabranch.client.service_addresses import Address, ServiceAddresses, parse_service_url
from anabranch.errors import ConfigError, OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import BaseCommand, CommandLookupTopicResponse
from anabranch.ids import TopicName
from anabranch.runtime import Network
from anabranch.runtime.network import Tls
from anabranch.wire import encode, requests


class Brokers:
    """The brokers of a cluster, and those of other clusters that it refers to."""

    def __init__(
        self,
        network: Network,
        service_url: str,
        *,
        credentials: Credentials | None,
        tls: Tls | None,
        listener_name: str | None,
    ) -> None:
        """Raises ConfigError if the address is none."""
        self._network = network
        self._credentials = credentials
        self._tls = tls if tls is not None else Tls()
        self._listener_name = listener_name
        self._service = ServiceAddresses(service_url)
        self._others: dict[str, ServiceAddresses] = {}
        """Clusters that topics have moved to, by their service URL."""
        self.message_bytes_max = limits.MESSAGE_BYTES_MAX
        """What the brokers said last about metadata and payload of one message."""
        self.connections: dict[tuple[Address, str], BrokerConnection] = {}
        self._connecting: dict[tuple[Address, str], asyncio.Lock] = {}

    @property
    def secure(self) -> bool:
        """Whether the cluster is spoken to in TLS."""
        return self._service.secure

    async def any(self) -> BrokerConnection:
        """Return a connection to the broker whose turn it is.

        Raises:
            OutcomeUnknown: if nobody answered; to be tried again.
        """
        try:
            return await self._connect(self._service.present)
        except OutcomeUnknown:
            self._service.next()
            raise

    async def owner_of(self, topic: TopicName, service_url: str = "") -> BrokerConnection:
        """Look a topic's owner up and return a connection to it.

        Args:
            topic: a topic that is no partitioned one.
            service_url: of the cluster that has the topic by now, if it is another one.

        Raises:
            BrokerRefused: if the lookup was refused.
            OutcomeUnknown: if nobody answered; to be tried again.
        """
        service = self._service_at(service_url)
        try:
            return await self._look_up(topic, service)
        except (OutcomeUnknown, BrokerRefused):
            service.next()  # whoever was asked may be gone, or stopped, or cut off
            raise

    def _service_at(self, service_url: str) -> ServiceAddresses:
        if not service_url:
            return self._service
        if service_url not in self._others:
            self._others[service_url] = ServiceAddresses(service_url)
        return self._others[service_url]

    async def _look_up(self, topic: TopicName, service: ServiceAddresses) -> BrokerConnection:
        asked = service.present
        connection, authoritative = await self._connect(asked), False
        for _ in range(limits.LOOKUP_REDIRECTS_MAX):
            request_id = connection.new_request_id()
            lookup = requests.lookup(
                str(topic),
                request_id,
                authoritative=authoritative,
                listener_name=self._listener_name,
            )
            answer = await connection.request(request_id, [encode(lookup)])
            url = _url_of(answer, secure=asked.secure)
            # Through a proxy every broker is reached at the address that was asked.
            proxied = str(parse_service_url(url)) if answer.proxy_through_service_url else ""
            address = asked if proxied else parse_service_url(url)
            if answer.response == CommandLookupTopicResponse.Connect:
                return await self._connect(address, proxied)
            connection = await self._connect(address, proxied)
            authoritative = answer.authoritative
        raise OutcomeUnknown(
            f"lookup of {topic} was redirected {limits.LOOKUP_REDIRECTS_MAX} times"
        )

    async def at(self, service_url: str) -> BrokerConnection:
        """Return a connection to the broker that another one named.

        Raises:
            ConfigError: if that is no address, or a plain one and the cluster's is in TLS.
            OutcomeUnknown: if nobody answers there.
        """
        return await self._connect(parse_service_url(service_url))

    async def ask(self, command: Callable[[int], BaseCommand]) -> Any:
        """Ask any broker; `command` is given the request's id.

        Raises:
            BrokerRefused: if it was refused.
            OutcomeUnknown: if nobody answered.
        """
        connection = await self.any()
        request_id = connection.new_request_id()
        return await connection.request(request_id, [encode(command(request_id))])

    async def _connect(self, address: Address, proxied: str = "") -> BrokerConnection:
        if self.secure and not address.secure:
            raise ConfigError(
                f"a broker names {address}, and a client of pulsar+ssl:// shows nobody its"
                f" credentials without TLS; give that broker a TLS port"
            )
        key = address, proxied
        async with self._connecting.setdefault(key, asyncio.Lock()):
            known = self.connections.get(key)
            if known is not None and not known.closed:
                return known
            try:
                fresh = await BrokerConnection.open(
                    self._network,
                    address.host,
                    address.port,
                    tls=self._tls if address.secure else None,
                    credentials=self._credentials,
                    proxied=proxied,
                )
            except (OSError, TimeoutError) as error:
                raise OutcomeUnknown(f"nothing answers at {address}") from error
            self.connections[key] = fresh
            self.message_bytes_max = fresh.message_bytes_max
            return fresh

    def close(self) -> None:
        """Close the connections."""
        for connection in self.connections.values():
            connection.close()


def _url_of(answer: Any, *, secure: bool) -> str:
    """The address in the answer that is spoken to as the one before was."""
    wanted = answer.brokerServiceUrlTls if secure else answer.brokerServiceUrl
    return str(wanted or answer.brokerServiceUrl or answer.brokerServiceUrlTls)
