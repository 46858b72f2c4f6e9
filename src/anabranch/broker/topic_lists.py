"""Which topics a namespace has, as clients are told: by list, by hash, and by what changed.

Stored topics are found in the metadata, others among those that are open here. Topics of the
system are never listed.
"""

from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from anabranch.broker.limits import NAMES_PER_SLICE
from anabranch.broker.policies import PolicySource
from anabranch.broker.refusals import Refused
from anabranch.broker.topics import Topics
from anabranch.errors import InvalidName
from anabranch.ids import TopicName, decode_segment
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import slices
from anabranch.wire import ServerError

PERSISTENT: Final = 0
NON_PERSISTENT: Final = 1
ALL: Final = 2
"""Pulsar's numbers of what may be asked for."""
_SYSTEM_NAMES: Final = (
    "__change_events", "__transaction_buffer_snapshot", "__transaction_buffer_snapshot_segments",
    "__transaction_buffer_snapshot_indexes", "transaction_coordinator_assign",
    "__transaction_log_",
)  # fmt: skip
_SYSTEM_SUFFIX: Final = "__transaction_pending_ack"


class TopicLists:
    """Lists the topics of namespaces."""

    def __init__(
        self,
        store: MetadataStore,
        managed_ledgers: ManagedLedgers,
        topics: Topics,
        policies: PolicySource,
    ) -> None:
        self.store = store
        self._managed_ledgers = managed_ledgers
        self._topics = topics
        self._policies = policies

    async def of_namespace(self, namespace: str, mode: int = PERSISTENT) -> list[str]:
        """Full names, sorted; of a partitioned topic its partitions.

        Raises:
            Refused: if there is no such namespace.
        """
        await self._require(namespace)
        found: list[str] = []
        if mode in (PERSISTENT, ALL):
            names = await self._stored(namespace)
            async for stored in slices.in_slices(names, NAMES_PER_SLICE):
                name = f"persistent://{namespace}/{decode_segment(stored)}"
                if is_listed(name):
                    found.append(name)
        if mode in (NON_PERSISTENT, ALL):
            async for topic in slices.in_slices(self._topics.all(), NAMES_PER_SLICE):
                name = str(topic.name)
                is_here = topic.name.namespace_name == namespace and not topic.name.is_persistent
                if is_here and is_listed(name):
                    found.append(name)
        return sorted(found)

    async def stored(self, namespace: str) -> list[str]:
        """The names of all stored topics as they are in the metadata, also those never listed.

        Raises:
            Refused: if there is no such namespace.
        """
        await self._require(namespace)
        return await self._stored(namespace)

    async def _stored(self, namespace: str) -> list[str]:
        prefix = f"{namespace}/persistent"
        names = await self._managed_ledgers.list(prefix)
        return [name[len(prefix) + 1 :] for name in names]

    async def _require(self, namespace: str) -> None:
        if await self._policies.namespace(namespace) is None:
            raise Refused(ServerError.TopicNotFound, f"namespace {namespace} does not exist")


def is_listed(name: str) -> bool:
    """Whether clients are told of a topic: not if it belongs to Pulsar itself.

    Pulsar may have stored names that are refused here; nobody could ask for those topics.
    """
    try:
        local = TopicName.parse(name).partitioned_local
    except InvalidName:
        return False
    return not (local.startswith(_SYSTEM_NAMES) or local.endswith(_SYSTEM_SUFFIX))


def hash_of(names: Iterable[str]) -> str:
    """The hash by which a client sees that a list has not changed."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()
