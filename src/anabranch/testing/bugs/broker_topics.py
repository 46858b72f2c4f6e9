"""Planted bugs of what `anabranch.broker` knows of topics, namespaces and policies."""

from anabranch.broker.namespaces import Namespaces
from anabranch.broker.topic import Topic
from anabranch.broker.topic_lists import TopicLists
from anabranch.ids import TopicName
from anabranch.testing.planted import original, planted


@planted(
    "new_topics_are_never_partitioned",
    target="anabranch.broker.namespaces:Namespaces.creates_partitions",
)
async def new_topics_are_never_partitioned(self: Namespaces, topic: TopicName) -> int:
    """A namespace that wants new topics to be partitioned gets others."""
    await self.require(topic)
    return 0


@planted("topics_come_by_asking", target="anabranch.broker.namespaces:Namespaces.may_create")
async def topics_come_by_asking(self: Namespaces, topic: TopicName) -> bool:
    """Whoever asks for a topic creates it, allowed or not."""
    await original("topics_come_by_asking")(self, topic)
    return True


@planted("subscriptions_come_by_asking", target="anabranch.broker.topic:admit_subscription")
def subscriptions_come_by_asking(topic: Topic) -> None:
    """A consumer creates the subscription it names, allowed or not."""


@planted("topic_lists_are_stale", target="anabranch.broker.topic_lists:TopicLists.of_namespace")
async def topic_lists_are_stale(self: TopicLists, namespace: str, mode: int = 0) -> list[str]:
    """A list, once made, is the answer for good."""
    kept: dict[str, list[str]] = self.__dict__.setdefault("_kept", {})
    if namespace not in kept:
        kept[namespace] = await original("topic_lists_are_stale")(self, namespace, mode)
    return kept[namespace]
