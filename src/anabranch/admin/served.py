"""What the web interface asks of the server it belongs to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from anabranch.broker import Broker
from anabranch.ids import TopicName
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.operation import Operation
from anabranch.runtime.network import Network, Tls
from anabranch.security import Authentication, Authorization
from anabranch.telemetry.metrics import Metric


@dataclass(frozen=True, slots=True)
class TopicAddress:
    """Where a topic is served."""

    broker_url: str
    broker_url_tls: str
    """Empty where there is no such port; clients cannot bear a missing one."""
    http_url: str
    http_url_tls: str
    is_owner: bool = True
    """If not, that broker is to be asked, and takes the topic."""


class Served(Protocol):
    """The server, as the web interface sees it.

    `broker` and `metadata` are there once it is ready, and are not asked for before.
    """

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        ...

    @property
    def web_url(self) -> str:
        """Where this very interface is reached."""
        ...

    @property
    def web_url_tls(self) -> str:
        """The same in TLS; empty where there is no such port."""
        ...

    @property
    def broker(self) -> Broker:
        """What serves the topics."""
        ...

    @property
    def metadata(self) -> MetadataStore:
        """Where the documents are."""
        ...

    @property
    def metadata_migration(self) -> Operation | None:
        """How that store is replaced; None where it cannot be."""
        ...

    @property
    def configuration_migration(self) -> Operation | None:
        """The same of the configuration store; None also where that is no store of its own."""
        ...

    @property
    def authentication(self) -> Authentication | None:
        """Who tells who is calling; None where nobody is asked."""
        ...

    @property
    def authorization(self) -> Authorization | None:
        """Who tells what they may; None where everybody may everything."""
        ...

    @property
    def network(self) -> Network:
        """The way to other brokers."""
        ...

    @property
    def peer_tls(self) -> Tls | None:
        """How other brokers are asked that have TLS alone; None where they have none."""
        ...

    def why_not_ready(self) -> str | None:
        """Return the reason, or None while requests are served."""
        ...

    async def why_unhealthy(self) -> str | None:
        """Return the reason, or None if a write is accepted right now."""
        ...

    def degraded(self) -> str | None:
        """Return what does not work as it should though requests are served, or None."""
        ...

    async def locate(self, topic: TopicName, *, authoritative: bool) -> TopicAddress:
        """Return where a topic is served; `authoritative`: here, if nowhere else.

        Raises:
            NotFound: if its namespace does not exist.
        """
        ...

    async def partitions_of(self, topic: TopicName) -> int:
        """Return how many partitions a topic has, 0 if it is not partitioned."""
        ...

    def configuration(self) -> dict[str, str]:
        """Return the settings in use, secrets masked."""
        ...

    def metrics(self) -> Iterable[Metric]:
        """Return every figure there is."""
        ...
