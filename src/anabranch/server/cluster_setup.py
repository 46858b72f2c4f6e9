"""Preparing a metadata store for a cluster: the nodes that Pulsar's brokers and bookies expect.

The same nodes as Pulsar's `initialize-cluster-metadata` writes, so that either tool can be used and
brokers of either kind find what they need. What is there already stays; tenants and namespaces that
other clusters share are opened to this one.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from anabranch.errors import BadVersion, ConfigError, FormatError, OutcomeUnknown
from anabranch.metadata.store import ABSENT, Expected, MetadataStore
from anabranch.ownership.bundles import equal_boundaries
from anabranch.runtime import Runtime

_TENANTS: Final = ("public", "pulsar")
_SYSTEM_BUNDLES: Final = 4
_COORDINATORS: Final = (
    "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
)
_COORDINATORS_COUNT: Final = 16
_LEDGERS: Final = "/ledgers"
_TRIES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class ClusterSetup:
    """What an operator says about a new cluster."""

    cluster: str
    web_service_url: str = ""
    broker_service_url: str = ""
    bundles: int = 4

    def __post_init__(self) -> None:
        name = self.cluster
        if not name or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in name):
            raise ConfigError(f"--cluster {name!r} may have letters, digits, '-', '_' and '.' only")


class Done(NamedTuple):
    """What became of one node."""

    path: str
    what: str
    """`created`, `extended` by this cluster, or `there` as it should be."""


class _Wanted(NamedTuple):
    path: str
    value: bytes
    shared_list: str = ""
    """The list of clusters to which this one belongs, in a document that is there already."""


async def set_up(
    store: MetadataStore, runtime: Runtime, setup: ClusterSetup, *, dry_run: bool
) -> list[Done]:
    """Write what is missing, or only say what that is.

    Raises:
        FormatError: naming the node, if one that is there is no such document.
        BadVersion: if others go on changing the same nodes.
    """
    return [
        await _bring_about(store, wanted, setup.cluster, dry_run=dry_run)
        for wanted in _wanted(setup, runtime.entropy.token_hex(16))
    ]


async def _bring_about(
    store: MetadataStore, wanted: _Wanted, cluster: str, *, dry_run: bool
) -> Done:
    path = wanted.path
    for _ in range(_TRIES_MAX):
        node = await store.get(path)
        expected: Expected = ABSENT
        if node is None:
            what, value = "created", wanted.value
        else:
            extended = _extended(wanted, node.value, cluster)
            if extended is None:
                return Done(path, "there")
            what, value, expected = "extended", extended, node.stat.version
        if dry_run:
            return Done(path, what)
        try:
            await store.put(path, value, expected)
        except (BadVersion, OutcomeUnknown):
            continue  # the next look shows what came of it
        return Done(path, what)
    raise BadVersion(f"{path} is being changed by others all the time")


def _extended(wanted: _Wanted, value: bytes, cluster: str) -> bytes | None:
    if not wanted.shared_list:
        return None
    try:
        document = json.loads(value)
        clusters = document.setdefault(wanted.shared_list, [])
        if cluster in clusters:
            return None
        clusters.append(cluster)
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(f"{wanted.path} is no document of Pulsar: {error}") from error
    return _encode(document)


def _wanted(setup: ClusterSetup, instance: str) -> Iterator[_Wanted]:
    parts = (instance[:8], instance[8:12], instance[12:16], instance[16:20], instance[20:])
    yield _Wanted(_LEDGERS, b"")
    yield _Wanted(f"{_LEDGERS}/available", b"")
    yield _Wanted(f"{_LEDGERS}/available/readonly", b"")
    yield _Wanted(f"{_LEDGERS}/INSTANCEID", "-".join(parts).encode())
    yield _Wanted("/bookies", b"{}")
    urls = {
        "serviceUrl": setup.web_service_url,
        "brokerServiceUrl": setup.broker_service_url,
    }
    known = {name: url for name, url in urls.items() if url}
    yield _Wanted(f"/admin/clusters/{setup.cluster}", _encode(known))
    tenant = {"adminRoles": [], "allowedClusters": [setup.cluster]}
    for name in _TENANTS:
        yield _Wanted(f"/admin/policies/{name}", _encode(tenant), "allowedClusters")
    for name, bundles in (("public/default", setup.bundles), ("pulsar/system", _SYSTEM_BUNDLES)):
        boundaries = equal_boundaries(bundles)
        namespace = {
            "replication_clusters": [setup.cluster],
            "bundles": {"boundaries": boundaries, "numBundles": bundles},
        }
        yield _Wanted(f"/admin/policies/{name}", _encode(namespace), "replication_clusters")
    yield _Wanted(_COORDINATORS, _encode({"partitions": _COORDINATORS_COUNT}))


def _encode(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
