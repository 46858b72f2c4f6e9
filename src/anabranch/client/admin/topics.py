"""Topics: making and deleting them, their partitions, figures, and what they hold."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from anabranch.client.admin.calls import namespace_path, segment, topic_path
from anabranch.client.admin.documents import TopicStats, message_id_of
from anabranch.client.admin.namespace_policies import Policy
from anabranch.client.admin.policy_calls import PolicyCalls
from anabranch.client.admin.refusals import AdminNotFound
from anabranch.client.message import MessageId
from anabranch.errors import ProtocolError
from anabranch.ids import check_namespace_name
from anabranch.policies import from_json

T = TypeVar("T")


class Topics(PolicyCalls):
    """`AdminClient.topics`. All calls raise as `Calls.call` does."""

    def _page(self, name: str, page: str) -> str:
        return topic_path(name, page)

    async def policy_that_counts(self, topic: str, policy: Policy[T]) -> T | None:
        """One policy as it is lived by: the topic's, else its namespace's, else the broker's."""
        found = await self.get(topic_path(topic, policy.page), query={"applied": True})
        return None if found is None else policy.read(found)

    async def names(self, namespace: str, *, persistent: bool = True) -> list[str]:
        """The topics of a namespace; of partitioned ones the partitions."""
        return await self.get_names(_domain_path(namespace, persistent))

    async def names_of_partitioned(self, namespace: str, *, persistent: bool = True) -> list[str]:
        """The partitioned topics of a namespace."""
        return await self.get_names(f"{_domain_path(namespace, persistent)}/partitioned")

    async def create(self, topic: str, *, properties: Mapping[str, str] | None = None) -> None:
        """Make a topic that is not partitioned."""
        await self.call("PUT", topic_path(topic), dict(properties or {}))

    async def create_partitioned(self, topic: str, partitions: int) -> None:
        """Make a partitioned topic."""
        await self.call("PUT", topic_path(topic, "partitions"), partitions)

    async def add_partitions(self, topic: str, partitions: int) -> None:
        """Give a partitioned topic so many partitions in all."""
        await self.call("POST", topic_path(topic, "partitions"), partitions)

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it is not partitioned."""
        found = await self.get(topic_path(topic, "partitions"))
        if not isinstance(found, dict) or not isinstance(found.get("partitions"), int):
            raise ProtocolError(f"no number of partitions: {found!r}"[:200])
        return int(found["partitions"])

    async def delete(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic that nobody uses; with `force` also one in use."""
        await self.call("DELETE", topic_path(topic), query={"force": force})

    async def delete_partitioned(self, topic: str, *, force: bool = False) -> None:
        """Delete a partitioned topic with its partitions."""
        await self.call("DELETE", topic_path(topic, "partitions"), query={"force": force})

    async def stats(self, topic: str) -> TopicStats:
        """What came in, what is stored, who is connected."""
        return from_json(TopicStats, await self.get(topic_path(topic, "stats")))

    async def partitioned_stats(self, topic: str) -> TopicStats:
        """The same for all partitions of a topic together."""
        path = topic_path(topic, "partitioned-stats")
        return from_json(TopicStats, await self.get(path, query={"perPartition": True}))

    async def internal_stats(self, topic: str) -> dict[str, Any]:
        """Ledgers and cursors, as the server says it."""
        found = await self.get(topic_path(topic, "internalStats"))
        return dict(found)

    async def properties(self, topic: str) -> dict[str, str]:
        """Texts that belong to a topic."""
        return dict(await self.get(topic_path(topic, "properties")) or {})

    async def set_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Set texts that belong to a topic; those not named stay."""
        await self.call("PUT", topic_path(topic, "properties"), dict(properties))

    async def remove_property(self, topic: str, key: str) -> None:
        """Remove one of them."""
        await self.call("DELETE", topic_path(topic, "properties"), query={"key": key})

    async def terminate(self, topic: str) -> MessageId:
        """End a topic for good and return its last message; what it holds can be read."""
        return message_id_of((await self.call("POST", topic_path(topic, "terminate"))).json())

    async def unload(self, topic: str) -> None:
        """Close a topic where it is; whoever uses it opens it again."""
        await self.call("PUT", topic_path(topic, "unload"))

    async def truncate(self, topic: str) -> None:
        """Let go of everything that a topic holds."""
        await self.call("DELETE", topic_path(topic, "truncate"))

    async def last_message_id(self, topic: str) -> MessageId:
        """The last message of a topic."""
        return message_id_of(await self.get(topic_path(topic, "lastMessageId")))

    async def message_id_at(self, topic: str, time_ms: int) -> MessageId:
        """The first message published at or after a time."""
        return message_id_of(await self.get(topic_path(topic, f"messageid/{time_ms}")))

    async def permissions(self, topic: str) -> dict[str, list[str]]:
        """What each role may do with a topic."""
        found = await self.get(topic_path(topic, "permissions"))
        return {str(role): sorted(actions) for role, actions in (found or {}).items()}

    async def grant(self, topic: str, role: str, actions: Sequence[str]) -> None:
        """Let a role `produce`, `consume` and so on."""
        path = topic_path(topic, f"permissions/{segment(role)}")
        await self.call("POST", path, sorted(actions))

    async def revoke(self, topic: str, role: str) -> None:
        """Take back all that a role may do with a topic."""
        await self.call("DELETE", topic_path(topic, f"permissions/{segment(role)}"))

    async def exists(self, topic: str) -> bool:
        """Whether there is such a topic, partitioned or not."""
        try:
            await self.partitions(topic)
        except AdminNotFound:
            return False
        return True


def _domain_path(namespace: str, persistent: bool) -> str:
    check_namespace_name(namespace)
    pages = namespace_path(namespace).removeprefix("/namespaces")
    return f"/{'persistent' if persistent else 'non-persistent'}{pages}"
