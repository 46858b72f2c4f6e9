"""What is asked and decided of single policies, of a namespace or of a topic."""

from abc import abstractmethod
from typing import Any, TypeVar

from anabranch.client.admin.calls import Calls
from anabranch.client.admin.namespace_policies import Policy
from anabranch.policies import BacklogQuota, from_json, to_json

T = TypeVar("T")


class PolicyCalls(Calls):
    """Those of one noun. All calls raise as `Calls.call` does."""

    @abstractmethod
    def _page(self, name: str, page: str) -> str:
        """A page of what has that name."""

    async def policy(self, name: str, policy: Policy[T]) -> T | None:
        """One policy; None if nothing is decided."""
        found = await self.get(self._page(name, policy.page))
        return None if found is None else policy.read(found)

    async def set_policy(self, name: str, policy: Policy[T], value: T) -> None:
        """Decide one policy."""
        path, written = self._page(name, policy.page), policy.write(value)
        if policy.in_query:
            await self.call(policy.method, path, query={policy.in_query: written})
        else:
            await self.call(policy.method, path, written)

    async def clear_policy(self, name: str, policy: Policy[Any]) -> None:
        """Leave one policy to whoever decides else: of a topic its namespace, then the broker."""
        await self.call("DELETE", self._page(name, policy.page))

    async def backlog_quotas(self, name: str) -> dict[str, BacklogQuota]:
        """How much may wait, by what is counted (`destination_storage`, `message_age`)."""
        found = await self.get(self._page(name, "backlogQuotaMap"))
        return {str(kind): from_json(BacklogQuota, quota) for kind, quota in (found or {}).items()}

    async def set_backlog_quota(
        self, name: str, quota: BacklogQuota, *, kind: str = "destination_storage"
    ) -> None:
        """Decide how much may wait."""
        path = self._page(name, "backlogQuota")
        await self.call("POST", path, to_json(quota), query={"backlogQuotaType": kind})

    async def clear_backlog_quota(self, name: str, *, kind: str = "destination_storage") -> None:
        """Leave that to whoever decides else."""
        path = self._page(name, "backlogQuota")
        await self.call("DELETE", path, query={"backlogQuotaType": kind})
