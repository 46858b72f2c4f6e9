"""What the metadata say of the topic that a path names, and of its partitions."""

from anabranch.admin.endpoints import Call
from anabranch.admin.refusals import RestRefused
from anabranch.ids import TopicName
from anabranch.policies import NamespacePolicies, PartitionedTopic
from anabranch.policies.paths import namespace_path, partitioned_topic_path


async def require_namespace(call: Call) -> None:
    """Refuse a path whose namespace does not exist."""
    if await call.documents.get(NamespacePolicies, namespace_path(call.namespace)) is None:
        raise RestRefused(404, "Namespace not found")


async def partitioned(call: Call) -> PartitionedTopic | None:
    """What is known of the topic in the path as a partitioned one."""
    if call.topic.partition >= 0:
        return None
    return await call.documents.get(PartitionedTopic, partitioned_topic_path(call.topic))


async def parts(call: Call) -> list[TopicName]:
    """The partitions of the topic in the path, or the topic itself if it has none."""
    document = await partitioned(call)
    if document is None or not document.partitions:
        return [call.topic]
    return [partition_of(call.topic, index) for index in range(document.partitions)]


def partition_of(topic: TopicName, index: int) -> TopicName:
    """The name of one partition."""
    return TopicName(
        topic.domain, topic.tenant, topic.namespace, f"{topic.local}-partition-{index}"
    )
