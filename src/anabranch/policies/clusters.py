"""The documents of clusters and tenants."""

from dataclasses import dataclass

from anabranch.policies.json_documents import JsonDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterData(JsonDocument):
    """`/admin/clusters/CLUSTER`: where it is reached; credentials stay among what is unknown."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    proxy_service_url: str | None = None
    proxy_protocol: str | None = None
    peer_cluster_names: tuple[str, ...] | None = None
    listener_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantInfo(JsonDocument):
    """`/admin/policies/TENANT`."""

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
