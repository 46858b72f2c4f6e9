"""Brokers: which there are, what they are set to, and how busy they are."""

from typing import Final
from urllib.parse import urlsplit

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.security import Right

_ROOT: Final = "/admin/v2/brokers"
BROKERS: Final = "/loadbalance/brokers"
"""Where brokers of a cluster register."""


def own_id(call: Call) -> str:
    """The name of this broker: host and port of its web interface."""
    return urlsplit(call.served.web_url).netloc


async def list_brokers(call: Call) -> object:
    """The brokers that are registered; this one alone where none do."""
    return await call.served.metadata.children(BROKERS) or [own_id(call)]


async def leader(call: Call) -> object:
    """The broker that decides for all."""
    return {"serviceUrl": call.served.web_url, "brokerId": own_id(call)}


async def changed_configuration(_: Call) -> object:
    """What was changed while running: nothing can be."""
    return {}


async def changeable_configuration(_: Call) -> object:
    """What can be changed while running: nothing."""
    return []


async def runtime_configuration(call: Call) -> object:
    """Every setting, secrets masked."""
    return call.served.configuration()


async def internal_configuration(call: Call) -> object:
    """Where the metadata and the ledgers are, for tools that look into both."""
    place = call.served.configuration().get("metadata_url", "")
    return {
        "zookeeperServers": place,
        "configurationStoreServers": place,
        "metadataStoreUrl": place,
        "configurationMetadataStoreUrl": place,
        "ledgersRootPath": "/ledgers",
    }


async def load_report(call: Call) -> object:
    """How busy this broker is, in the figures it counts."""
    now = call.broker.statistics()
    return {
        "brokerId": own_id(call),
        "webServiceUrl": call.served.web_url,
        "pulsarServiceUrl": call.broker.settings.service_url,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "numTopics": now.topics,
        "numConsumers": now.consumers,
        "numProducers": now.producers,
    }


def _endpoint(path: str, serve: object, words: str, right: Right = Right.SUPERUSER) -> Endpoint:
    return Endpoint("GET", path, right, serve, words)  # type: ignore[arg-type]


BROKER_ENDPOINTS: Final = (
    _endpoint(_ROOT, list_brokers, "The brokers of this cluster"),
    _endpoint(f"{_ROOT}/{{cluster}}", list_brokers, "The brokers of a cluster"),
    _endpoint(f"{_ROOT}/leaderBroker", leader, "The broker that decides"),
    _endpoint(f"{_ROOT}/configuration", changeable_configuration, "Settings that can change"),
    _endpoint(f"{_ROOT}/configuration/values", changed_configuration, "Settings that were changed"),
    _endpoint(f"{_ROOT}/configuration/runtime", runtime_configuration, "Every setting"),
    _endpoint(f"{_ROOT}/internal-configuration", internal_configuration, "Where the stores are"),
    _endpoint("/admin/v2/broker-stats/load-report", load_report, "How busy this broker is"),
)
