"""Between which clusters namespaces and topics are replicated: this one alone.

Other clusters can be known and allowed; messages do not go there, so naming them as places of
replication is refused, not stored.
"""

from typing import Any, Final

from anabranch.admin import namespaces, topic_policies
from anabranch.admin.endpoints import EMPTY, Call, Endpoint
from anabranch.admin.refusals import RestRefused
from anabranch.policies import TenantInfo
from anabranch.policies.paths import CLUSTERS, tenant_path
from anabranch.security import Right

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


async def get_clusters(call: Call) -> object:
    """The clusters a namespace is replicated between."""
    return list((await namespaces.existing(call)).replication_clusters)


async def set_clusters(call: Call) -> object:
    """Name the clusters of a namespace; replication to others is not served."""
    await namespaces.change(call, replication_clusters=await _wanted(call))
    return EMPTY


async def get_clusters_of_topic(call: Call) -> object:
    """The same of a topic, if it has clusters of its own."""
    found = (await topic_policies.existing(call)).replication_clusters
    if found is None and call.flag("applied"):
        found = (await namespaces.existing(call)).replication_clusters
    return EMPTY if found is None else list(found)


async def set_clusters_of_topic(call: Call) -> None:
    """Name the clusters of a topic; replication to others is not served."""
    await topic_policies.change(call, replication_clusters=await _wanted(call))


async def clear_clusters_of_topic(call: Call) -> None:
    """Leave it to the namespace."""
    await topic_policies.change(call, replication_clusters=None)


async def get_allowed(call: Call) -> object:
    """The clusters that a namespace may be used in."""
    return list((await namespaces.existing(call)).allowed_clusters)


async def set_allowed(call: Call) -> None:
    """Name the clusters that a namespace may be used in, out of those of its tenant."""
    wanted = _names(call)
    if "global" in wanted:
        raise RestRefused(412, "Cannot specify global in the list of allowed clusters")
    policies = await namespaces.existing(call)
    tenant = await call.documents.get(TenantInfo, tenant_path(call.tenant)) or TenantInfo()
    for name in wanted:
        if name not in tenant.allowed_clusters:
            raise RestRefused(403, f"Cluster {name} is not in the list of allowed clusters list "
                                   f"for tenant [{call.tenant}]")  # fmt: skip
    if not set(policies.replication_clusters) <= set(wanted):
        raise RestRefused(
            400,
            "Allowed clusters do not contain the replication cluster "
            f"[{', '.join(policies.replication_clusters)}]. Please remove the replication cluster "
            "if the cluster is not allowed for this namespace",
        )
    await namespaces.change(call, allowed_clusters=wanted)


async def _wanted(call: Call) -> tuple[str, ...]:
    wanted = _names(call)
    known = await call.served.metadata.children(CLUSTERS)
    wrong = [name for name in wanted if name not in known]
    if wrong:
        raise RestRefused(403, f"Invalid cluster id: {wrong[0]}")
    if wanted != (call.served.cluster,):
        raise RestRefused(405, "replication between clusters is not supported by this broker")
    return wanted


def _names(call: Call) -> tuple[str, ...]:
    found = call.json()
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
        raise RestRefused(412, "the body has to be a list of clusters")
    return tuple(found)


def _row(method: str, path: str, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, path, Right.ADMINISTER, serve, words)


REPLICATION_ENDPOINTS: Final = (
    _row("GET", f"{_NAMESPACE}/replication", get_clusters, "Clusters of a namespace"),
    _row("POST", f"{_NAMESPACE}/replication", set_clusters, "Set the clusters of a namespace"),
    _row("GET", f"{_NAMESPACE}/allowedClusters", get_allowed, "Clusters it may be used in"),
    _row("POST", f"{_NAMESPACE}/allowedClusters", set_allowed, "Set where it may be used"),
    _row("GET", f"{_TOPIC}/replication", get_clusters_of_topic, "Clusters of a topic"),
    _row("POST", f"{_TOPIC}/replication", set_clusters_of_topic, "Set the clusters of a topic"),
    _row("DELETE", f"{_TOPIC}/replication", clear_clusters_of_topic, "Leave it to the namespace"),
)
