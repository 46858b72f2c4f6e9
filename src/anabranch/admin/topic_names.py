"""Which topics a namespace has, by the metadata and by what is open here."""

from anabranch.admin.endpoints import Call
from anabranch.errors import InvalidName
from anabranch.ids import TopicName, decode_segment
from anabranch.policies.paths import partitioned_topics_path

_MANAGED_LEDGERS = "/managed-ledgers"


async def names_in(call: Call, mode: str = "ALL") -> list[str]:
    """Full names of the topics of the namespace in the path, sorted; partitions one by one."""
    found: list[str] = []
    namespace = call.namespace
    if mode in ("PERSISTENT", "ALL"):
        path = f"{_MANAGED_LEDGERS}/{namespace}/persistent"
        names = map(decode_segment, await call.served.metadata.children(path))
        found += (f"persistent://{namespace}/{name}" for name in names)
    if mode in ("NON_PERSISTENT", "ALL"):
        found += (
            str(topic.name)
            for topic in call.broker.topics.all()
            if not topic.name.is_persistent and topic.name.namespace_name == namespace
        )
    return sorted(name for name in found if not name.rpartition("/")[2].startswith("__"))


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
