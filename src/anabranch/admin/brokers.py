"""Brokers: which there are, what they are set to, and how busy they are."""

from typing import Final
from urllib.parse import urlsplit

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.owners import redirect, registered
from anabranch.admin.refusals import RestRefused
from anabranch.broker.limits import TOPICS_PER_SLICE
from anabranch.ownership.addresses import BROKERS
from anabranch.runtime import slices
from anabranch.security import Right
from anabranch.telemetry.metrics import LINES_PER_SLICE, STILL_COUNTING

_ROOT: Final = "/admin/v2/brokers"


def own_id(call: Call) -> str:
    """The name of this broker: host and port of its web interface."""
    return urlsplit(call.served.web_url or call.served.web_url_tls).netloc


async def list_brokers(call: Call) -> object:
    """The brokers that are registered; this one alone where none do."""
    return await call.served.metadata.children(BROKERS) or [own_id(call)]


async def leader(call: Call) -> object:
    """The broker that decides for all."""
    found = await call.broker.ownership.leader()
    if found is None:
        raise RestRefused(404, "Couldn't find leader broker")
    return {"serviceUrl": found.web_url or found.web_url_tls, "brokerId": found.broker_id}


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
    settings = call.served.configuration()
    place = settings.get("metadata_url", "")
    configuration = settings.get("configuration_metadata_url") or place
    return {
        "zookeeperServers": place,
        "configurationStoreServers": configuration,
        "metadataStoreUrl": place,
        "configurationMetadataStoreUrl": configuration,
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


async def owned_namespaces(call: Call) -> object:
    """The bundles that this broker has; another one is to be asked itself."""
    if call.names["broker"] != own_id(call):
        address = await registered(call, call.names["broker"])
        if address is None:
            raise RestRefused(404, f"there is no broker {call.names['broker'][:200]}")
        raise redirect(call, address, take=False)
    held = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return {str(bundle): held for bundle in call.broker.ownership.owned()}


async def topics_here(call: Call) -> object:
    """What goes through the topics that are open here, by namespace and domain."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    async for topic in slices.in_slices(call.broker.topics.all(), TOPICS_PER_SLICE):
        name, out = topic.name, [each.traffic for each in topic.subscriptions.values()]
        space = found.setdefault(name.namespace_name, {}).setdefault(name.domain, {})
        space[str(name)] = {
            "producerCount": len(topic.producers),
            "msgInCount": topic.traffic.messages,
            "bytesInCount": topic.traffic.bytes,
            "msgOutCount": sum(each.messages for each in out),
            "bytesOutCount": sum(each.bytes for each in out),
            "msgRateIn": topic.traffic.per_second[0],
            "msgThroughputIn": topic.traffic.per_second[1],
            "msgRateOut": sum(each.per_second[0] for each in out),
            "msgThroughputOut": sum(each.per_second[1] for each in out),
            "storageSize": topic.ledger.size_bytes,
        }
    return found


async def figures(call: Call) -> object:
    """Every figure there is, as JSON."""
    return [
        {"dimensions": dict(sample.labels), "metrics": {metric.name + sample.suffix: sample.value}}
        for metric in call.served.metrics()
        async for sample in slices.in_slices(metric.samples, LINES_PER_SLICE)
        if sample is not STILL_COUNTING
    ]


async def check_quotas(call: Call) -> None:
    """Look now for backlogs that are too large, and for all else that only time brings."""
    await call.broker.upkeep.look_after_all()


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
    _endpoint("/admin/v2/broker-stats/topics", topics_here, "What goes through topics here"),
    _endpoint("/admin/v2/broker-stats/destinations", topics_here, "The same by its older name"),
    _endpoint("/admin/v2/broker-stats/metrics", figures, "Every figure"),
    _endpoint(f"{_ROOT}/backlog-quota-check", check_quotas, "Look at backlogs now"),
    _endpoint(f"{_ROOT}/{{cluster}}/{{broker}}/ownedNamespaces", owned_namespaces, "Its bundles"),
)
