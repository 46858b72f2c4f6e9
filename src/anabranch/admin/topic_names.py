"""Which topics a namespace has, by the metadata and by what is open here."""

from anabranch.admin.endpoints import Call
from anabranch.broker.limits import NAMES_PER_SLICE
from anabranch.errors import InvalidName
from anabranch.ids import TopicName, decode_segment
from anabranch.policies.paths import partitioned_topics_path
from anabranch.runtime import slices

_MANAGED_LEDGERS = "/managed-ledgers"


async def names_in(call: Call, mode: str = "ALL") -> list[str]:
    """Full names of the topics of the namespace in the path, sorted; partitions one by one."""
    found: list[str] = []
    namespace = call.namespace
    if mode in ("PERSISTENT", "ALL"):
        path = f"{_MANAGED_LEDGERS}/{namespace}/persistent"
        children = await call.served.metadata.children(path)
        async for stored in slices.in_slices(children, NAMES_PER_SLICE):
            local = decode_segment(stored)
            if not local.startswith("__"):
                found.append(f"persistent://{namespace}/{local}")
    if mode in ("NON_PERSISTENT", "ALL"):
        async for topic in slices.in_slices(call.broker.topics.all(), NAMES_PER_SLICE):
            name = topic.name
            is_here = name.namespace_name == namespace and not name.is_persistent
            if is_here and not name.local.startswith("__"):
                found.append(str(name))
    return sorted(found)


async def partitioned_names_in(call: Call, domain: str = "") -> list[str]:
    """Full names of the partitioned topics of the namespace in the path, sorted."""
    found: list[str] = []
    for each in (domain,) if domain else ("persistent", "non-persistent"):
        path = partitioned_topics_path(call.namespace, each)
        names = map(decode_segment, await call.served.metadata.children(path))
        found += (f"{each}://{call.namespace}/{name}" for name in names)
    return sorted(found)


def parsed(names: list[str]) -> list[TopicName]:
    """The names that may be used; what somebody else stored under others is left alone."""
    topics = []
    for name in names:
        try:
            topics.append(TopicName.parse(name))
        except InvalidName:
            continue
    return topics
