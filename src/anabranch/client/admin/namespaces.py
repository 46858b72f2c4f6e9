"""Namespaces: making and deleting them, their policies and permissions."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from anabranch.client.admin.calls import namespace_path, segment
from anabranch.client.admin.policy_calls import PolicyCalls
from anabranch.ids import check_part
from anabranch.policies import NamespacePolicies, from_json

T = TypeVar("T")


class Namespaces(PolicyCalls):
    """`AdminClient.namespaces`. All calls raise as `Calls.call` does."""

    def _page(self, name: str, page: str) -> str:
        return namespace_path(name, page)

    async def names(self, tenant: str) -> list[str]:
        """The namespaces of a tenant, `tenant/namespace`."""
        return await self.get_names(f"/namespaces/{segment(check_part('tenant', tenant))}")

    async def create(
        self, namespace: str, *, bundles: int = 0, clusters: Sequence[str] = ()
    ) -> None:
        """Make a namespace; without `bundles` with as many as the cluster says."""
        policies: dict[str, Any] = {}
        if bundles:
            policies["bundles"] = {"numBundles": bundles}
        if clusters:
            policies["replication_clusters"] = list(clusters)
        await self.call("PUT", namespace_path(namespace), policies)

    async def delete(self, namespace: str, *, force: bool = False) -> None:
        """Delete a namespace without topics; with `force` also one that has some."""
        await self.call("DELETE", namespace_path(namespace), query={"force": force})

    async def topics(self, namespace: str) -> list[str]:
        """The topics of a namespace; of partitioned ones the partitions."""
        return await self.get_names(namespace_path(namespace, "topics"))

    async def unload(self, namespace: str) -> None:
        """Close all topics where they are; whoever uses them opens them again."""
        await self.call("PUT", namespace_path(namespace, "unload"))

    async def clear_backlog(self, namespace: str, subscription: str = "") -> None:
        """Pass over everything that waits, in all subscriptions or in those of a name."""
        page = f"clearBacklog/{segment(subscription)}" if subscription else "clearBacklog"
        await self.call("POST", namespace_path(namespace, page))

    # --- policies ----------------------------------------------------------------------------

    async def policies(self, namespace: str) -> NamespacePolicies:
        """All that is decided for a namespace."""
        return from_json(NamespacePolicies, await self.get(namespace_path(namespace)))

    # --- permissions -------------------------------------------------------------------------

    async def permissions(self, namespace: str) -> Mapping[str, Sequence[str]]:
        """What each role may do."""
        found = await self.get(namespace_path(namespace, "permissions"))
        return {str(role): sorted(actions) for role, actions in (found or {}).items()}

    async def grant(self, namespace: str, role: str, actions: Sequence[str]) -> None:
        """Let a role `produce`, `consume` and so on."""
        path = namespace_path(namespace, f"permissions/{segment(role)}")
        await self.call("POST", path, sorted(actions))

    async def revoke(self, namespace: str, role: str) -> None:
        """Take back all that a role may do."""
        await self.call("DELETE", namespace_path(namespace, f"permissions/{segment(role)}"))
