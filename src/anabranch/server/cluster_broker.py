"""One broker of a cluster: like a standalone server, but what it serves it shares with others."""

from typing import Final

from anabranch.errors import ConfigError
from anabranch.ledgers.addresses import BOOKKEEPER
from anabranch.metadata.oxia.address import SCHEME as OXIA
from anabranch.metadata.served.addresses import SCHEME as SERVED
from anabranch.metadata.zookeeper.addresses import SCHEME as ZOOKEEPER
from anabranch.ownership import ClusterOwnership, Ownership
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.server.sole_server import refuse_beside

_SHARED_METADATA: Final = (ZOOKEEPER, OXIA, SERVED)


class ClusterBroker(Standalone):
    """A broker that owns bundles by locks in the shared metadata store."""

    _creates_defaults = False

    async def _ownership(self) -> Ownership:
        """See `Standalone._ownership`.

        Raises:
            ConfigError: if nobody has prepared the metadata store for this cluster.
            ConflictError: if a standalone server takes all its topics for its own.
        """
        metadata, cluster = self._stores.metadata, self._settings.cluster
        await refuse_beside(metadata)
        if not await metadata.exists(f"/admin/clusters/{cluster}"):
            place, apart = self._settings.metadata_url, ""
            if self._settings.has_configuration_store:
                place = self._settings.configuration_metadata_url
                apart = f" --configuration-metadata-url {place}"
            raise ConfigError(
                f"there is no cluster {cluster} in {place}: prepare it "
                f"once with `anabranch cluster init --cluster {cluster} "
                f"--metadata-url {self._settings.metadata_url}{apart}`, or name another with "
                "--cluster"
            )
        return ClusterOwnership(metadata, self._runtime, self._tasks, self._address())

    async def _start_broker(self) -> None:
        """See `Standalone._start_broker`.

        Raises:
            ConflictError: if a standalone server began while this broker did.
        """
        await super()._start_broker()
        await refuse_beside(self._stores.metadata)


def check_shared(settings: Settings) -> None:
    """Refuse stores that other brokers cannot reach.

    Raises:
        ConfigError: naming the setting.
    """
    if settings.metadata_url.partition(":")[0] not in _SHARED_METADATA:
        raise ConfigError(
            f"--metadata-url {settings.metadata_url} is for one process alone: brokers of a "
            "cluster need one that all reach, such as zk:HOST:PORT or oxia://HOST:PORT/NAMESPACE"
        )
    if not settings.ledgers_url.startswith(BOOKKEEPER):
        raise ConfigError(
            f"--ledgers-url {settings.ledgers_url} is for one process alone: brokers of a "
            "cluster need bookies, such as bookkeeper:?ensemble=3&write=3&ack=2"
        )
