"""What clients ask about topics rather than of them: how many partitions, which there are."""

from typing import TYPE_CHECKING

from anabranch.broker.refusals import Refused
from anabranch.broker.topic_lists import hash_of
from anabranch.broker.transactions import refuse_coordinators
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import TopicName, check_namespace_name
from anabranch.wire import ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session


async def partition_metadata(session: "Session", command: BaseCommand) -> None:
    """Say how many partitions a topic has; a new one may become partitioned by that."""
    request = command.partitionMetadata
    topic = TopicName.parse(request.topic)
    refuse_coordinators(topic)
    namespaces = session.broker.namespaces
    await namespaces.require(topic)
    partitions = await namespaces.partitions_of(topic)
    if partitions == 0 and not await session.broker.topics.exists(topic):
        # Clients ask like this whether a topic exists: a yes must not be given lightly.
        if not request.metadata_auto_creation_enabled:
            raise Refused(ServerError.TopicNotFound, f"Topic {topic} does not exist")
        if topic.partition < 0 or not await namespaces.may_create(topic):
            partitions = await namespaces.creates_partitions(topic)
    session.reply(replies.partition_metadata(request.request_id, partitions))


async def topics_of_namespace(session: "Session", command: BaseCommand) -> None:
    """List the topics of a namespace, or say that the list is the one the client has.

    A pattern is left to the client, which matches anyway: it is told that nothing was filtered.
    """
    request = command.getTopicsOfNamespace
    namespace = check_namespace_name(request.namespace)
    names = await session.broker.topic_lists.of_namespace(namespace, request.mode)
    known = hash_of(names)
    changed = not request.HasField("topics_hash") or request.topics_hash != known
    session.reply(
        replies.topics_of_namespace(
            request.request_id,
            names if changed else (),
            filtered=False,
            topics_hash=known,
            changed=changed,
        )
    )


async def watch_topic_list(session: "Session", command: BaseCommand) -> None:
    """Begin to tell a client of topics that come and go."""
    request = command.watchTopicList
    namespace = check_namespace_name(request.namespace)
    names, known = await session.broker.topic_watchers.add(
        session, request.watcher_id, namespace, request.topics_pattern
    )
    unchanged = request.HasField("topics_hash") and request.topics_hash == known
    session.reply(
        replies.watch_topic_list_success(
            request.request_id, request.watcher_id, () if unchanged else names, known
        )
    )


async def close_topic_list_watch(session: "Session", command: BaseCommand) -> None:
    """Tell a client of topics no more."""
    request = command.watchTopicListClose
    session.broker.topic_watchers.remove(session, request.watcher_id)
    session.reply(replies.success(request.request_id))
