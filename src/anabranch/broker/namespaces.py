"""Tenants and namespaces as Pulsar keeps them in the metadata store, and how topics come to be.

What is there is read through `policies`; here it is decided what a client may find or create.
"""

from anabranch import limits
from anabranch.broker.policies import PolicySource
from anabranch.broker.refusals import Refused
from anabranch.errors import BadVersion, FormatError
from anabranch.ids import TopicName
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.policies import (
    ClusterData,
    JsonDocument,
    LocalPolicies,
    NamespacePolicies,
    TenantInfo,
    encode,
    even_bundles,
    paths,
)
from anabranch.policies.effective import auto_topic_creation
from anabranch.wire import ServerError

_OF_THE_SYSTEM = "__"
"""What the names of topics begin with that no client asked for."""


class Namespaces:
    """Reads (and, for a new cluster, writes) what exists."""

    def __init__(
        self, store: MetadataStore, policies: PolicySource, *, cluster: str, service_url: str
    ) -> None:
        self.policies = policies
        self._store = store
        self._cluster = cluster
        self._service_url = service_url

    async def initialise(self) -> None:
        """Create the cluster and the default tenant and namespace where they are missing."""
        bundles = even_bundles()
        documents: dict[str, JsonDocument] = {
            paths.cluster_path(self._cluster): ClusterData(broker_service_url=self._service_url),
            paths.tenant_path("public"): TenantInfo(allowed_clusters=(self._cluster,)),
            paths.namespace_path("public/default"): NamespacePolicies(
                replication_clusters=(self._cluster,), bundles=bundles
            ),
            paths.local_policies_path("public/default"): LocalPolicies(bundles=bundles),
        }
        for path, document in documents.items():
            try:
                await self._store.put(path, encode(document), ABSENT)
            except BadVersion:
                continue  # there from an earlier start, perhaps changed by an operator

    async def has_tenant(self, tenant: str) -> bool:
        """Whether there is a tenant of that name."""
        return await self._store.exists(paths.tenant_path(tenant))

    async def require(self, topic: TopicName) -> NamespacePolicies:
        """Return the policies of the topic's namespace.

        Raises:
            Refused: with TopicNotFound, as Pulsar answers, if there is no such namespace.
        """
        policies = await self.policies.namespace(topic.namespace_name)
        if policies is None:
            raise Refused(
                ServerError.TopicNotFound, f"namespace {topic.namespace_name} does not exist"
            )
        return policies

    async def partitions_of(self, topic: TopicName) -> int:
        """Return how many partitions a topic has; 0 for one that is not partitioned."""
        if topic.partition >= 0:
            return 0
        return await self._partitions_of_whole(topic)

    async def _partitions_of_whole(self, topic: TopicName) -> int:
        document = await self.policies.partitioned(topic)
        if document is None:
            return 0
        if not 0 <= document.partitions <= limits.PARTITIONS_MAX:
            raise FormatError(
                f"{paths.partitioned_topic_path(topic)} declares {document.partitions} partitions"
            )
        return document.partitions

    async def is_declared(self, topic: TopicName) -> bool:
        """Whether it is one of the partitions that a partitioned topic was created with."""
        return 0 <= topic.partition < await self._partitions_of_whole(topic)

    async def creates_partitions(self, topic: TopicName) -> int:
        """Make a new topic partitioned if its namespace wants that; return its partitions.

        Raises:
            Refused: with TopicNotFound if topics are not created when they are asked for.
        """
        rule = auto_topic_creation(self.policies.defaults, await self.require(topic))
        if not rule.allow:
            raise Refused(ServerError.TopicNotFound, f"Topic {topic} does not exist")
        if rule.partitions == 0 or topic.partition >= 0:
            return 0
        await self.require_room(topic, rule.partitions)
        return (await self.policies.create_partitioned(topic, rule.partitions)).partitions

    async def require_room(self, topic: TopicName, adding: int = 1) -> None:
        """Make sure that the topic's namespace may have so many topics more.

        Raises:
            Refused: if it may not.
        """
        chosen = (await self.require(topic)).topics_per_namespace_max
        most = self.policies.defaults.topics_per_namespace_max if chosen is None else chosen
        if most <= 0 or not topic.is_persistent or topic.local.startswith(_OF_THE_SYSTEM):
            return
        path = f"{MANAGED_LEDGERS}/{topic.namespace_name}/{topic.domain}"
        names = await self._store.children(path)
        if sum(not name.startswith(_OF_THE_SYSTEM) for name in names) + adding > most:
            raise Refused(
                ServerError.NotAllowedError, "Exceed maximum number of topics in namespace."
            )

    async def may_create(self, topic: TopicName) -> bool:
        """Whether a topic that is not there may come to be because a client asks for it.

        Raises:
            Refused: if it is a partition beyond those its topic has.
        """
        if topic.partition >= 0:
            partitions = await self._partitions_of_whole(topic)
            if 0 < partitions <= topic.partition:
                raise Refused(
                    ServerError.NotAllowedError,
                    f"Illegal topic partition name {topic} with max allowed {partitions} "
                    "partitions",
                )
            if partitions:
                return True
        namespace = await self.require(topic)
        return auto_topic_creation(self.policies.defaults, namespace).allow
