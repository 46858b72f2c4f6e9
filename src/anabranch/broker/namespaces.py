"""Tenants, namespaces and partitioned topics as Pulsar keeps them in the metadata store."""

import json
from typing import Final

from anabranch import limits
from anabranch.broker.refusals import Refused
from anabranch.errors import BadVersion, FormatError
from anabranch.ids import TopicName
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.wire import ServerError

_BUNDLE_BOUNDARIES: Final = [
    "0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff",
]  # fmt: skip
PRODUCER_NAME_COUNTER: Final = "/counters/producer-name"


class Namespaces:
    """Reads (and, for a new cluster, writes) what exists."""

    def __init__(self, store: MetadataStore, *, cluster: str, service_url: str) -> None:
        self._store = store
        self._cluster = cluster
        self._service_url = service_url

    async def initialise(self) -> None:
        """Create the cluster and the default tenant and namespace where they are missing."""
        bundles = {"boundaries": _BUNDLE_BOUNDARIES, "numBundles": len(_BUNDLE_BOUNDARIES) - 1}
        documents: dict[str, object] = {
            f"/admin/clusters/{self._cluster}": {"brokerServiceUrl": self._service_url},
            "/admin/policies/public": {"adminRoles": [], "allowedClusters": [self._cluster]},
            "/admin/policies/public/default": {
                "replication_clusters": [self._cluster],
                "bundles": bundles,
            },
            "/admin/local-policies/public/default": {"bundles": bundles},
        }
        for path, document in documents.items():
            try:
                await self._store.put(path, json.dumps(document).encode(), ABSENT)
            except BadVersion:
                continue  # there from an earlier start, perhaps changed by an operator

    async def require(self, topic: TopicName) -> None:
        """Check that the topic's namespace exists.

        Raises:
            Refused: with TopicNotFound, as Pulsar answers.
        """
        path = f"/admin/policies/{topic.namespace_name}"
        if not await self._store.exists(path):
            raise Refused(
                ServerError.TopicNotFound, f"namespace {topic.namespace_name} does not exist"
            )

    async def partitions_of(self, topic: TopicName) -> int:
        """Return how many partitions a topic has; 0 for one that is not partitioned."""
        path = (
            f"/admin/partitioned-topics/{topic.namespace_name}/{topic.domain}/{topic.encoded_local}"
        )
        node = await self._store.get(path)
        if node is None:
            return 0
        try:
            partitions = int(json.loads(node.value)["partitions"])
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path} is no partitioned-topic document: {error}") from error
        if not 0 <= partitions <= limits.PARTITIONS_MAX:
            raise FormatError(f"{path} declares {partitions} partitions")
        return partitions

    async def next_instance(self) -> int:
        """Take a number no earlier broker of this cluster has had, for generated names."""
        while True:
            node = await self._store.get(PRODUCER_NAME_COUNTER)
            number = int(node.value or b"0") if node is not None else 0
            expected = node.stat.version if node is not None else ABSENT
            try:
                await self._store.put(PRODUCER_NAME_COUNTER, str(number + 1).encode(), expected)
            except BadVersion:
                continue
            return number
