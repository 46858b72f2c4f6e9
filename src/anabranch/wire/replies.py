"""Builders of what a broker answers and announces.

Optional fields that the Java client reads without looking are always set, even when empty.
"""

from collections.abc import Iterable

from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire.commands import NO_REQUEST_ID


def connected(
    server_version: str,
    protocol_version: int,
    max_message_size: int,
    features: pb.FeatureFlags | None = None,
) -> pb.BaseCommand:
    """Welcome a client; without a server version the C++ client hangs up."""
    return pb.BaseCommand(
        type=pb.BaseCommand.CONNECTED,
        connected=pb.CommandConnected(
            server_version=server_version,
            protocol_version=protocol_version,
            max_message_size=max_message_size,
            feature_flags=features if features is not None else pb.FeatureFlags(),
        ),
    )


def auth_challenge(
    server_version: str, protocol_version: int, *, method: str, data: bytes
) -> pb.BaseCommand:
    """Ask the client to prove who it is, or to prove it again."""
    return pb.BaseCommand(
        type=pb.BaseCommand.AUTH_CHALLENGE,
        authChallenge=pb.CommandAuthChallenge(
            server_version=server_version,
            protocol_version=protocol_version,
            challenge=pb.AuthData(auth_method_name=method, auth_data=data),
        ),
    )


def success(request_id: int, schema: pb.Schema | None = None) -> pb.BaseCommand:
    """Say yes."""
    return pb.BaseCommand(
        type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=request_id, schema=schema)
    )


def error(request_id: int, code: pb.ServerError, text: str) -> pb.BaseCommand:
    """Say no to a request that has no answer of its own; see `refusal` for those that have."""
    return pb.BaseCommand(
        type=pb.BaseCommand.ERROR,
        error=pb.CommandError(request_id=request_id, error=code, message=text),
    )


def handshake_error(code: pb.ServerError, text: str) -> pb.BaseCommand:
    """Refuse a CONNECT, which has no request id. The connection is closed after it."""
    return error(NO_REQUEST_ID, code, text)


def producer_success(
    request_id: int,
    name: str,
    last_sequence_id: int = -1,
    schema_version: bytes = b"",
    topic_epoch: int | None = None,
    ready: bool = True,
) -> pb.BaseCommand:
    """Admit a producer; with `ready` false it waits, and is told again under the same request."""
    return pb.BaseCommand(
        type=pb.BaseCommand.PRODUCER_SUCCESS,
        producer_success=pb.CommandProducerSuccess(
            request_id=request_id,
            producer_name=name,
            last_sequence_id=last_sequence_id,
            schema_version=schema_version,
            topic_epoch=topic_epoch,
            producer_ready=ready,
        ),
    )


def send_error(
    producer_id: int, sequence_id: int, code: pb.ServerError, text: str
) -> pb.BaseCommand:
    """Refuse an entry; `sequence_id` is the highest that it carried."""
    return pb.BaseCommand(
        type=pb.BaseCommand.SEND_ERROR,
        send_error=pb.CommandSendError(
            producer_id=producer_id, sequence_id=sequence_id, error=code, message=text
        ),
    )


def partition_metadata(request_id: int, partitions: int) -> pb.BaseCommand:
    """Say how many partitions a topic has; 0 for a topic without."""
    return pb.BaseCommand(
        type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=pb.CommandPartitionedTopicMetadataResponse(
            request_id=request_id,
            partitions=partitions,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
        ),
    )


def partition_metadata_failed(request_id: int, code: pb.ServerError, text: str) -> pb.BaseCommand:
    """Refuse to say how many partitions a topic has."""
    return pb.BaseCommand(
        type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=pb.CommandPartitionedTopicMetadataResponse(
            request_id=request_id,
            response=pb.CommandPartitionedTopicMetadataResponse.Failed,
            error=code,
            message=text,
        ),
    )


def lookup_connect(
    request_id: int,
    broker_url: str,
    broker_url_tls: str = "",
    *,
    authoritative: bool = True,
    proxy_through_service_url: bool = False,
) -> pb.BaseCommand:
    """Name the broker that serves a topic."""
    return pb.BaseCommand(
        type=pb.BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=pb.CommandLookupTopicResponse(
            request_id=request_id,
            brokerServiceUrl=broker_url,
            brokerServiceUrlTls=broker_url_tls,
            response=pb.CommandLookupTopicResponse.Connect,
            authoritative=authoritative,
            proxy_through_service_url=proxy_through_service_url,
        ),
    )


def lookup_redirect(
    request_id: int, broker_url: str, broker_url_tls: str = "", *, authoritative: bool = False
) -> pb.BaseCommand:
    """Name the broker that knows more; `authoritative` makes it take the topic."""
    return pb.BaseCommand(
        type=pb.BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=pb.CommandLookupTopicResponse(
            request_id=request_id,
            brokerServiceUrl=broker_url,
            brokerServiceUrlTls=broker_url_tls,
            response=pb.CommandLookupTopicResponse.Redirect,
            authoritative=authoritative,
        ),
    )


def lookup_failed(request_id: int, code: pb.ServerError, text: str) -> pb.BaseCommand:
    """Refuse a lookup. Only MetadataError is retried by every client on the same connection."""
    return pb.BaseCommand(
        type=pb.BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=pb.CommandLookupTopicResponse(
            request_id=request_id,
            response=pb.CommandLookupTopicResponse.Failed,
            error=code,
            message=text,
        ),
    )


def ack_response(
    consumer_id: int,
    request_id: int,
    error: tuple[pb.ServerError, str] | None = None,
    *,
    txn: tuple[int, int] | None = None,
) -> pb.BaseCommand:
    """Say that an acknowledgement is durable, or why it is not."""
    answer = pb.CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    if error is not None:
        answer.error, answer.message = error
    if txn is not None:
        answer.txnid_most_bits, answer.txnid_least_bits = txn
    return pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE, ackResponse=answer)


def close_producer(
    producer_id: int, *, url: str | None = None, url_tls: str | None = None
) -> pb.BaseCommand:
    """Detach a producer, which reconnects: at once if told where to."""
    return pb.BaseCommand(
        type=pb.BaseCommand.CLOSE_PRODUCER,
        close_producer=pb.CommandCloseProducer(
            producer_id=producer_id,
            request_id=NO_REQUEST_ID,
            assignedBrokerServiceUrl=url,
            assignedBrokerServiceUrlTls=url_tls,
        ),
    )


def close_consumer(
    consumer_id: int, *, url: str | None = None, url_tls: str | None = None
) -> pb.BaseCommand:
    """Detach a consumer, which reconnects: at once if told where to."""
    return pb.BaseCommand(
        type=pb.BaseCommand.CLOSE_CONSUMER,
        close_consumer=pb.CommandCloseConsumer(
            consumer_id=consumer_id,
            request_id=NO_REQUEST_ID,
            assignedBrokerServiceUrl=url,
            assignedBrokerServiceUrlTls=url_tls,
        ),
    )


def topic_migrated_producer(
    producer_id: int, broker_url: str | None, broker_url_tls: str | None = None
) -> pb.BaseCommand:
    """Send a producer to another cluster; a close must follow."""
    return _topic_migrated(
        producer_id, pb.CommandTopicMigrated.Producer, broker_url, broker_url_tls
    )


def topic_migrated_consumer(
    consumer_id: int, broker_url: str | None, broker_url_tls: str | None = None
) -> pb.BaseCommand:
    """Send a consumer to another cluster; a close must follow."""
    return _topic_migrated(
        consumer_id, pb.CommandTopicMigrated.Consumer, broker_url, broker_url_tls
    )


def _topic_migrated(
    resource_id: int,
    kind: pb.CommandTopicMigrated.ResourceType,
    broker_url: str | None,
    broker_url_tls: str | None,
) -> pb.BaseCommand:
    return pb.BaseCommand(
        type=pb.BaseCommand.TOPIC_MIGRATED,
        topicMigrated=pb.CommandTopicMigrated(
            resource_id=resource_id,
            resource_type=kind,
            brokerServiceUrl=broker_url,
            brokerServiceUrlTls=broker_url_tls,
        ),
    )


def ping() -> pb.BaseCommand:
    """Ask whether the peer is there. The empty sub-message must be present."""
    return pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())


def pong() -> pb.BaseCommand:
    """Answer a ping."""
    return pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())


def active_consumer_change(consumer_id: int, *, is_active: bool) -> pb.BaseCommand:
    """Tell a consumer of a failover subscription whether it is the one that gets messages."""
    return pb.BaseCommand(
        type=pb.BaseCommand.ACTIVE_CONSUMER_CHANGE,
        active_consumer_change=pb.CommandActiveConsumerChange(
            consumer_id=consumer_id, is_active=is_active
        ),
    )


def reached_end_of_topic(consumer_id: int) -> pb.BaseCommand:
    """Say that no message will ever follow. Closes the connection of C++ clients: not for them."""
    return pb.BaseCommand(
        type=pb.BaseCommand.REACHED_END_OF_TOPIC,
        reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=consumer_id),
    )


def last_message_id(
    request_id: int, last: pb.MessageIdData, mark_delete: pb.MessageIdData | None = None
) -> pb.BaseCommand:
    """Name the last message of a topic, and up to where the subscription is done."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
        getLastMessageIdResponse=pb.CommandGetLastMessageIdResponse(
            request_id=request_id, last_message_id=last, consumer_mark_delete_position=mark_delete
        ),
    )


def topics_of_namespace(
    request_id: int,
    topics: Iterable[str],
    *,
    topics_hash: str | None = None,
    filtered: bool = False,
    changed: bool = True,
) -> pb.BaseCommand:
    """List the topics of a namespace; partitions are listed one by one."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        getTopicsOfNamespaceResponse=pb.CommandGetTopicsOfNamespaceResponse(
            request_id=request_id,
            topics=topics,
            topics_hash=topics_hash,
            filtered=filtered,
            changed=changed,
        ),
    )


def watch_topic_list_success(
    request_id: int, watcher_id: int, topics: Iterable[str], topics_hash: str
) -> pb.BaseCommand:
    """Start a watch with the topics that match now."""
    return pb.BaseCommand(
        type=pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        watchTopicListSuccess=pb.CommandWatchTopicListSuccess(
            request_id=request_id, watcher_id=watcher_id, topic=topics, topics_hash=topics_hash
        ),
    )


def watch_topic_update(
    watcher_id: int, *, new: Iterable[str], deleted: Iterable[str], topics_hash: str
) -> pb.BaseCommand:
    """Tell a watcher what came and went."""
    return pb.BaseCommand(
        type=pb.BaseCommand.WATCH_TOPIC_UPDATE,
        watchTopicUpdate=pb.CommandWatchTopicUpdate(
            watcher_id=watcher_id, new_topics=new, deleted_topics=deleted, topics_hash=topics_hash
        ),
    )


def get_schema_response(
    request_id: int, schema: pb.Schema, schema_version: bytes
) -> pb.BaseCommand:
    """Hand out a schema."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_SCHEMA_RESPONSE,
        getSchemaResponse=pb.CommandGetSchemaResponse(
            request_id=request_id, schema=schema, schema_version=schema_version
        ),
    )


def get_schema_failed(request_id: int, code: pb.ServerError, text: str) -> pb.BaseCommand:
    """Say why there is no schema."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_SCHEMA_RESPONSE,
        getSchemaResponse=pb.CommandGetSchemaResponse(
            request_id=request_id, error_code=code, error_message=text
        ),
    )


def get_or_create_schema_response(request_id: int, schema_version: bytes) -> pb.BaseCommand:
    """Name the version under which a schema is kept."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
        getOrCreateSchemaResponse=pb.CommandGetOrCreateSchemaResponse(
            request_id=request_id, schema_version=schema_version
        ),
    )


def get_or_create_schema_failed(request_id: int, code: pb.ServerError, text: str) -> pb.BaseCommand:
    """Say why a schema is not kept."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
        getOrCreateSchemaResponse=pb.CommandGetOrCreateSchemaResponse(
            request_id=request_id, error_code=code, error_message=text
        ),
    )


def consumer_stats_response(stats: pb.CommandConsumerStatsResponse) -> pb.BaseCommand:
    """Hand out the figures of a consumer; `stats` carries the request id."""
    return pb.BaseCommand(type=pb.BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats)


def consumer_stats_failed(request_id: int, code: pb.ServerError, text: str) -> pb.BaseCommand:
    """Say why there are no figures."""
    return consumer_stats_response(
        pb.CommandConsumerStatsResponse(request_id=request_id, error_code=code, error_message=text)
    )
