"""Clusters as documents: where each is reached."""

from typing import Any, Final

from anabranch.admin.endpoints import EMPTY, Call, Endpoint
from anabranch.admin.refusals import RestRefused
from anabranch.errors import InvalidName, NotFound
from anabranch.ids import check_part
from anabranch.policies import ClusterData, TenantInfo, to_json
from anabranch.policies.paths import CLUSTERS, TENANTS, cluster_path, tenant_path
from anabranch.security import Right

_ROOT: Final = "/admin/v2/clusters"
_ONE: Final = f"{_ROOT}/{{cluster}}"
_DEFAULTS: Final = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}
_SECRETS: Final = (
    "authenticationParameters",
    "brokerClientTlsTrustStorePassword",
    "brokerClientTlsKeyStorePassword",
)


async def list_clusters(call: Call) -> object:
    """The names, sorted."""
    # "global" is where Pulsar once kept what all clusters share.
    return [name for name in await call.served.metadata.children(CLUSTERS) if name != "global"]


async def get_cluster(call: Call) -> object:
    """One cluster's document, without its secrets."""
    return {**_DEFAULTS, **without_secrets(to_json(await existing_cluster(call)))}


def without_secrets(shown: dict[str, Any]) -> dict[str, Any]:
    """A cluster's document as anybody may see it."""
    return {key: shown[key] for key in shown if key not in _SECRETS}


async def create_cluster(call: Call) -> object:
    """Another cluster that is known here."""
    data = call.document(ClusterData)
    if not await call.documents.create(cluster_path(_name(call)), data):
        raise RestRefused(409, "Cluster already exists")
    return EMPTY


async def update_cluster(call: Call) -> object:
    """Another address of a cluster."""
    data = call.document(ClusterData)
    try:
        await call.documents.change(ClusterData, cluster_path(_name(call)), lambda _: data)
    except NotFound:
        raise RestRefused(404, "Cluster does not exist") from None
    return EMPTY


async def delete_cluster(call: Call) -> None:
    """The end of a cluster that no tenant uses."""
    name = _name(call)
    await existing_cluster(call)
    for tenant in await call.served.metadata.children(TENANTS):
        info = await call.documents.get(TenantInfo, tenant_path(tenant))
        if info is not None and name in info.allowed_clusters:
            raise RestRefused(412, "Cluster not empty")
    if not await call.documents.delete(cluster_path(name)):
        raise RestRefused(404, "Cluster does not exist")


async def get_peers(call: Call) -> object:
    """Clusters that hold the same data."""
    peers = (await existing_cluster(call)).peer_cluster_names
    return EMPTY if peers is None else list(peers)


def _name(call: Call) -> str:
    try:
        return check_part("Cluster", call.names["cluster"])
    except InvalidName:
        raise RestRefused(412, "Cluster name is not valid") from None


async def existing_cluster(call: Call, status: int = 404) -> ClusterData:
    """The document of the cluster in the path.

    Raises:
        RestRefused: with `status`, if there is no such cluster.
    """
    found = await call.documents.get(ClusterData, cluster_path(_name(call)))
    if found is None:
        raise RestRefused(status, "Cluster does not exist")
    return found


CLUSTER_ENDPOINTS: Final = (
    Endpoint("GET", _ROOT, Right.KNOWN, list_clusters, "All clusters"),
    Endpoint("GET", _ONE, Right.SUPERUSER, get_cluster, "Where a cluster is reached"),
    Endpoint("PUT", _ONE, Right.SUPERUSER, create_cluster, "Make a cluster known"),
    Endpoint("POST", _ONE, Right.SUPERUSER, update_cluster, "Change a cluster"),
    Endpoint("DELETE", _ONE, Right.SUPERUSER, delete_cluster, "Forget a cluster nobody uses"),
    Endpoint("GET", f"{_ONE}/peers", Right.SUPERUSER, get_peers, "Clusters with the same data"),
)
