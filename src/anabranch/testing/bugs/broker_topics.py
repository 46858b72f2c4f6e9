"""Planted bugs of what `anabranch.broker` knows of topics, namespaces and policies."""

from collections.abc import Iterable
from dataclasses import replace

from anabranch.broker.consumer import Consumer
from anabranch.broker.deduplication import PublishDone
from anabranch.broker.dispatch import SharedDispatcher
from anabranch.broker.namespaces import Namespaces
from anabranch.broker.non_persistent import NonPersistentSubscription, NonPersistentTopic
from anabranch.broker.producer import Producer
from anabranch.broker.topic import Topic
from anabranch.broker.topic_lists import TopicLists
from anabranch.broker.topic_watchers import _Watcher
from anabranch.broker.watched_names import MatchedNames, News, WatchedNames
from anabranch.ids import Position, TopicName
from anabranch.policies import AutoTopicCreation, NamespacePolicies
from anabranch.policies.effective import PolicyDefaults
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted
from anabranch.wire import Send


@planted(
    "new_topics_are_never_partitioned",
    target="anabranch.broker.namespaces:Namespaces.creates_partitions",
)
async def new_topics_are_never_partitioned(self: Namespaces, topic: TopicName) -> int:
    """A namespace that wants new topics to be partitioned gets others."""
    await self.require(topic)
    return 0


@planted("topics_come_by_asking", target="anabranch.broker.namespaces:auto_topic_creation")
def topics_come_by_asking(
    defaults: PolicyDefaults, namespace: NamespacePolicies
) -> AutoTopicCreation:
    """Whoever asks for a topic creates it, allowed or not."""
    rule: AutoTopicCreation = original("topics_come_by_asking")(defaults, namespace)
    return replace(rule, allow=True)


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


@planted(
    "what_nobody_takes_is_kept",
    target="anabranch.broker.non_persistent:NonPersistentSubscription.offer",
)
def what_nobody_takes_is_kept(
    self: NonPersistentSubscription, position: Position, entry: Buffer
) -> None:
    """An entry that finds nobody to take it goes out before the next that does."""
    kept: list[tuple[Position, Buffer]] = self.__dict__.setdefault("_kept", [])
    kept.append((position, entry))
    while kept and self.consumers and self.consumers[0].can_take:
        original("what_nobody_takes_is_kept")(self, *kept.pop(0))


@planted(
    "only_one_subscription_gets_it",
    target="anabranch.broker.non_persistent:NonPersistentTopic.publish",
)
def only_one_subscription_gets_it(
    self: NonPersistentTopic, producer: Producer, send: Send, done: PublishDone
) -> None:
    """An entry that is not stored goes to the first subscription alone."""
    hidden = dict(list(self.subscriptions.items())[1:])
    for name in hidden:
        del self.subscriptions[name]
    original("only_one_subscription_gets_it")(self, producer, send, done)
    self.subscriptions.update(hidden)


@planted("what_passes_is_held", target="anabranch.broker.dispatch:SharedDispatcher.acknowledged")
def what_passes_is_held(
    self: SharedDispatcher, consumer: Consumer, positions: Iterable[Position]
) -> None:
    """Consumers hold what was sent to them for good."""


@planted(
    "partitioned_topics_are_not_seen",
    target="anabranch.broker.namespaces:Namespaces.partitions_of",
)
async def partitioned_topics_are_not_seen(self: Namespaces, topic: TopicName) -> int:
    """Every topic is one that has no partitions."""
    return 0


@planted("deleted_topics_are_not_told", target="anabranch.broker.topic_watchers:_Watcher.tell")
def deleted_topics_are_not_told(self: _Watcher, news: News) -> None:
    """Watchers hear of topics that come, and never of one that goes."""
    original("deleted_topics_are_not_told")(self, news._replace(gone=[]))


@planted(
    "watchers_go_through_all_at_once", target="anabranch.broker.watched_names:WatchedNames._all_of"
)
async def watchers_go_through_all_at_once(
    self: WatchedNames[_Watcher], matched: MatchedNames[_Watcher]
) -> list[str]:
    """All names of a namespace are held against a pattern in one go."""
    names = [TopicName.parse(name) for name in self._full_names.values() if name]
    return [
        str(name)
        for name in names
        if matched.pattern.matches(f"{name.namespace_name}/{name.partitioned_local}")
    ]
