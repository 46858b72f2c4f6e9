"""Tenants and clusters."""

from collections.abc import Sequence

from anabranch.client.admin.calls import Calls, segment, tenant_path
from anabranch.ids import check_part
from anabranch.policies import ClusterData, TenantInfo, from_json, to_json


class Tenants(Calls):
    """`AdminClient.tenants`. All calls raise as `Calls.call` does."""

    async def names(self) -> list[str]:
        """The names of all tenants."""
        return await self.get_names("/tenants")

    async def info(self, tenant: str) -> TenantInfo:
        """Who administers a tenant, and in which clusters it may be."""
        return from_json(TenantInfo, await self.get(tenant_path(tenant)))

    async def create(
        self, tenant: str, *, clusters: Sequence[str], admin_roles: Sequence[str] = ()
    ) -> None:
        """Make a tenant."""
        await self.call("PUT", tenant_path(tenant), _document(clusters, admin_roles))

    async def update(
        self, tenant: str, *, clusters: Sequence[str], admin_roles: Sequence[str] = ()
    ) -> None:
        """Change a tenant; what is not named is taken from it."""
        await self.call("POST", tenant_path(tenant), _document(clusters, admin_roles))

    async def delete(self, tenant: str) -> None:
        """Delete a tenant that has no namespaces."""
        await self.call("DELETE", tenant_path(tenant))


def _document(clusters: Sequence[str], admin_roles: Sequence[str]) -> dict[str, object]:
    return to_json(TenantInfo(admin_roles=tuple(admin_roles), allowed_clusters=tuple(clusters)))


class Clusters(Calls):
    """`AdminClient.clusters`. All calls raise as `Calls.call` does."""

    async def names(self) -> list[str]:
        """The names of all clusters."""
        return await self.get_names("/clusters")

    async def info(self, cluster: str) -> ClusterData:
        """Where a cluster is reached."""
        path = f"/clusters/{segment(check_part('cluster', cluster))}"
        return from_json(ClusterData, await self.get(path))

    async def brokers(self, cluster: str) -> list[str]:
        """The brokers of a cluster that are alive, HOST:PORT of their web interface."""
        return await self.get_names(f"/brokers/{segment(check_part('cluster', cluster))}")

    async def check_health(self) -> None:
        """Return if the broker that is asked takes messages. Raises AdminRefused if not."""
        await self.call("GET", "/brokers/health")
