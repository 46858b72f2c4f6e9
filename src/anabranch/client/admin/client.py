"""The admin client: an address of the web interface, and the nouns that can be asked about."""

from types import TracebackType

from anabranch.client.admin.metadata_migration import MetadataMigration
from anabranch.client.admin.namespaces import Namespaces
from anabranch.client.admin.schemas import Schemas
from anabranch.client.admin.subscriptions import Subscriptions
from anabranch.client.admin.tenants import Clusters, Tenants
from anabranch.client.admin.topics import Topics
from anabranch.client.admin.web import WebClient
from anabranch.client.credentials import Credentials
from anabranch.client.limits import ADMIN_TIMEOUT_S
from anabranch.client.machine import machine
from anabranch.runtime import Runtime
from anabranch.runtime.network import Tls


class AdminClient:
    """Administers a cluster through the web interface of its brokers.

        async with AdminClient("http://127.0.0.1:8080") as admin:
            await admin.topics.create_partitioned("orders", 3)

    A call that is refused raises `AdminRefused` with the status and the server's reason.
    """

    def __init__(
        self,
        web_url: str,
        runtime: Runtime | None = None,
        *,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        timeout_s: float = ADMIN_TIMEOUT_S,
    ) -> None:
        """Nothing is connected yet.

        Args:
            web_url: `http://host:port` or `https://host:port` of any broker.
            runtime: the doors to the network; those of the machine if none is given.
            credentials: who this client is, a `Token` or `Basic`.
            tls: whom to trust, and a certificate to be known by; else what the machine trusts.
            timeout_s: how long an answer may take.

        Raises:
            ConfigError: if the address is none.
        """
        doors = runtime if runtime is not None else machine()
        self._web = WebClient(
            doors.network, web_url, credentials=credentials, tls=tls, timeout_s=timeout_s
        )
        self.clusters = Clusters(self._web)
        self.tenants = Tenants(self._web)
        self.namespaces = Namespaces(self._web)
        self.topics = Topics(self._web)
        self.subscriptions = Subscriptions(self._web)
        self.schemas = Schemas(self._web)
        self.metadata_migration = MetadataMigration(self._web)

    async def __aenter__(self) -> "AdminClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._web.close()
