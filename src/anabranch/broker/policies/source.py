"""The policy documents of the metadata store, cached, and who wants to know of changes.

Reads are answered from memory as long as the store says nothing else. A change made anywhere is
told to the listener by the name of the namespace or topic it concerns; None if it may be any.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial

from anabranch.errors import BadVersion, InputError, NotFound
from anabranch.ids import TopicName, decode_segment
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.store import ABSENT, Event, EventKind, MetadataStore
from anabranch.policies import (
    NamespacePolicies,
    PartitionedTopic,
    TopicPolicies,
    decode,
    encode,
    paths,
)
from anabranch.policies.effective import EffectivePolicies, PolicyDefaults, resolve
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

Changed = Callable[[str | None], None]
"""Called with `TENANT/NAMESPACE`, with a topic's full name without partition, or with None."""


class PolicySource:
    """What the store says about namespaces, topics and partitions."""

    def __init__(
        self, store: MetadataStore, runtime: Runtime, *, cluster: str, defaults: PolicyDefaults
    ) -> None:
        self.defaults = defaults
        self._store = store
        self._cluster = cluster
        self._namespaces: MetadataCache[NamespacePolicies] = MetadataCache(
            store,
            runtime,
            decode=partial(decode, NamespacePolicies),
            encode=encode,
            prefix=paths.TENANTS,
        )
        self._topics: MetadataCache[TopicPolicies] = MetadataCache(
            store,
            runtime,
            decode=partial(decode, TopicPolicies),
            encode=encode,
            prefix=paths.TOPIC_POLICIES,
        )
        self._partitioned: MetadataCache[PartitionedTopic] = MetadataCache(
            store,
            runtime,
            decode=partial(decode, PartitionedTopic),
            encode=encode,
            prefix=paths.PARTITIONED_TOPICS,
        )

    def start(self, tasks: Tasks, changed: Changed) -> None:
        """Begin to listen to the store; before anything is read."""
        for cache in (self._namespaces, self._topics, self._partitioned):
            cache.start(tasks)
        for prefix in (paths.TENANTS, paths.TOPIC_POLICIES):
            events = self._store.watch(prefix)
            tasks.spawn(f"watch {prefix}", self._hear(events, prefix, changed))

    async def _hear(self, events: AsyncIterator[Event], prefix: str, changed: Changed) -> None:
        async for event in events:
            if event.kind is EventKind.GAP:
                changed(None)
                continue
            # The caches hear of it by streams of their own, which may be behind this one.
            cache = self._namespaces if prefix == paths.TENANTS else self._topics
            cache.invalidate(event.path)
            name = _named_by(prefix, event.path)
            if name is not None:
                changed(name)

    # --- reading ------------------------------------------------------------------------------

    async def namespace(self, name: str) -> NamespacePolicies | None:
        """The policies of `TENANT/NAMESPACE`; None if there is no such namespace.

        Raises:
            FormatError: if what is stored is no such document.
        """
        return await self._namespaces.get(paths.namespace_path(name))

    async def topic(self, topic: TopicName) -> TopicPolicies | None:
        """A topic's own policies, if it has any.

        Raises:
            FormatError: if what is stored is no such document.
        """
        return await self._topics.get(paths.topic_policies_path(topic))

    async def partitioned(self, topic: TopicName) -> PartitionedTopic | None:
        """What is known of a partitioned topic; None if it is none.

        Raises:
            FormatError: if what is stored is no such document.
        """
        return await self._partitioned.get(paths.partitioned_topic_path(topic))

    async def partitioned_names(self, namespace: str, domain: str) -> list[str]:
        """Local names of the partitioned topics of a namespace, sorted as they are stored."""
        children = await self._partitioned.children(
            paths.partitioned_topics_path(namespace, domain)
        )
        return [decode_segment(child) for child in children]

    async def effective(self, topic: TopicName) -> EffectivePolicies:
        """What counts for a topic now."""
        namespace = await self.namespace(topic.namespace_name)
        own = await self.topic(topic)
        return resolve(self.defaults, namespace or NamespacePolicies(), own, cluster=self._cluster)

    # --- writing ------------------------------------------------------------------------------

    async def create_partitioned(self, topic: TopicName, partitions: int) -> PartitionedTopic:
        """Make a topic partitioned, unless somebody did so first; return what it is then.

        Raises:
            InputError: if the number of partitions is not at least 1.
        """
        if partitions < 1:
            raise InputError(f"a partitioned topic needs at least 1 partition, not {partitions}")
        path = paths.partitioned_topic_path(topic)
        document = PartitionedTopic(partitions=partitions)
        try:
            await self._partitioned.put(path, document, ABSENT)
        except BadVersion:
            present = await self._partitioned.get(path)
            return document if present is None else present
        return document

    async def forget(self, topic: TopicName) -> None:
        """A topic is deleted; its policies go too, unless it is one partition of several."""
        if topic.partition < 0:
            try:
                await self._store.delete(paths.topic_policies_path(topic))
            except NotFound:
                return


def _named_by(prefix: str, path: str) -> str | None:
    """Whom a document is about; None for a tenant's, which no topic lives by."""
    parts = path[len(prefix) + 1 :].split("/")
    if prefix == paths.TENANTS:
        return "/".join(parts) if len(parts) == 2 else None
    if len(parts) != 4:
        return None
    tenant, namespace, domain, local = parts
    return f"{domain}://{tenant}/{namespace}/{decode_segment(local)}"
