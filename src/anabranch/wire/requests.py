"""Builders of what a client asks for. SEND, ACK and FLOW are written by `encoder`."""

from collections.abc import Iterable, Mapping

from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire.commands import PROTOCOL_VERSION


def _pairs(mapping: Mapping[str, str] | None) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in (mapping or {}).items()]


def connect(
    client_version: str,
    *,
    protocol_version: int = PROTOCOL_VERSION,
    auth_method: str = "none",
    auth_data: bytes | None = None,
    features: pb.FeatureFlags | None = None,
    proxy_to_broker_url: str | None = None,
) -> pb.BaseCommand:
    """Open the conversation."""
    return pb.BaseCommand(
        type=pb.BaseCommand.CONNECT,
        connect=pb.CommandConnect(
            client_version=client_version,
            protocol_version=protocol_version,
            auth_method_name=auth_method,
            auth_data=auth_data,
            feature_flags=features if features is not None else pb.FeatureFlags(),
            proxy_to_broker_url=proxy_to_broker_url,
        ),
    )


def auth_response(client_version: str, *, method: str, data: bytes) -> pb.BaseCommand:
    """Answer a challenge; both fields of the answer are required by brokers."""
    return pb.BaseCommand(
        type=pb.BaseCommand.AUTH_RESPONSE,
        authResponse=pb.CommandAuthResponse(
            client_version=client_version,
            response=pb.AuthData(auth_method_name=method, auth_data=data),
            protocol_version=PROTOCOL_VERSION,
        ),
    )


def partition_metadata(topic: str, request_id: int, *, auto_create: bool = True) -> pb.BaseCommand:
    """Ask how many partitions a topic has."""
    return pb.BaseCommand(
        type=pb.BaseCommand.PARTITIONED_METADATA,
        partitionMetadata=pb.CommandPartitionedTopicMetadata(
            topic=topic, request_id=request_id, metadata_auto_creation_enabled=auto_create
        ),
    )


def lookup(
    topic: str,
    request_id: int,
    *,
    authoritative: bool = False,
    listener_name: str | None = None,
) -> pb.BaseCommand:
    """Ask which broker serves a topic."""
    return pb.BaseCommand(
        type=pb.BaseCommand.LOOKUP,
        lookupTopic=pb.CommandLookupTopic(
            topic=topic,
            request_id=request_id,
            authoritative=authoritative,
            advertised_listener_name=listener_name,
        ),
    )


def producer(
    topic: str,
    producer_id: int,
    request_id: int,
    *,
    name: str | None = None,
    name_is_users: bool | None = None,
    epoch: int = 0,
    properties: Mapping[str, str] | None = None,
    schema: pb.Schema | None = None,
    access_mode: pb.ProducerAccessMode = pb.Shared,
    topic_epoch: int | None = None,
    encrypted: bool = False,
    txn_enabled: bool = False,
    initial_subscription: str | None = None,
) -> pb.BaseCommand:
    """Ask to produce.

    `name_is_users` is false for a name that the broker gave and a reconnecting producer keeps.
    """
    return pb.BaseCommand(
        type=pb.BaseCommand.PRODUCER,
        producer=pb.CommandProducer(
            topic=topic,
            producer_id=producer_id,
            request_id=request_id,
            producer_name=name,
            user_provided_producer_name=name is not None
            if name_is_users is None
            else name_is_users,
            epoch=epoch,
            metadata=_pairs(properties),
            schema=schema,
            producer_access_mode=access_mode,
            topic_epoch=topic_epoch,
            encrypted=encrypted,
            txn_enabled=txn_enabled,
            initial_subscription_name=initial_subscription,
        ),
    )


def subscribe(
    topic: str,
    subscription: str,
    sub_type: pb.CommandSubscribe.SubType,
    consumer_id: int,
    request_id: int,
    *,
    consumer_name: str | None = None,
    priority_level: int = 0,
    durable: bool = True,
    start_message_id: pb.MessageIdData | None = None,
    start_rollback_s: int = 0,
    initial_position: pb.CommandSubscribe.InitialPosition = pb.CommandSubscribe.Latest,
    properties: Mapping[str, str] | None = None,
    subscription_properties: Mapping[str, str] | None = None,
    read_compacted: bool = False,
    replicated: bool = False,
    create_topic: bool = True,
    schema: pb.Schema | None = None,
    key_shared: pb.KeySharedMeta | None = None,
    consumer_epoch: int | None = None,
) -> pb.BaseCommand:
    """Ask to consume."""
    return pb.BaseCommand(
        type=pb.BaseCommand.SUBSCRIBE,
        subscribe=pb.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=sub_type,
            consumer_id=consumer_id,
            request_id=request_id,
            consumer_name=consumer_name,
            priority_level=priority_level,
            durable=durable,
            start_message_id=start_message_id,
            start_message_rollback_duration_sec=start_rollback_s,
            initialPosition=initial_position,
            metadata=_pairs(properties),
            subscription_properties=_pairs(subscription_properties),
            read_compacted=read_compacted,
            replicate_subscription_state=replicated,
            force_topic_creation=create_topic,
            schema=schema,
            keySharedMeta=key_shared,
            consumer_epoch=consumer_epoch,
        ),
    )


def unsubscribe(consumer_id: int, request_id: int, *, force: bool = False) -> pb.BaseCommand:
    """Ask to delete the subscription of a consumer."""
    return pb.BaseCommand(
        type=pb.BaseCommand.UNSUBSCRIBE,
        unsubscribe=pb.CommandUnsubscribe(
            consumer_id=consumer_id, request_id=request_id, force=force
        ),
    )


def close_producer(producer_id: int, request_id: int) -> pb.BaseCommand:
    """Stop producing."""
    return pb.BaseCommand(
        type=pb.BaseCommand.CLOSE_PRODUCER,
        close_producer=pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id),
    )


def close_consumer(consumer_id: int, request_id: int) -> pb.BaseCommand:
    """Stop consuming; the subscription stays."""
    return pb.BaseCommand(
        type=pb.BaseCommand.CLOSE_CONSUMER,
        close_consumer=pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id),
    )


def redeliver(
    consumer_id: int,
    ids: Iterable[pb.MessageIdData] = (),
    *,
    consumer_epoch: int | None = None,
) -> pb.BaseCommand:
    """Ask for messages again; without ids for everything that is not acknowledged."""
    return pb.BaseCommand(
        type=pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(
            consumer_id=consumer_id, message_ids=ids, consumer_epoch=consumer_epoch
        ),
    )


def seek(consumer_id: int, request_id: int, where: pb.MessageIdData) -> pb.BaseCommand:
    """Move a subscription to a message."""
    return pb.BaseCommand(
        type=pb.BaseCommand.SEEK,
        seek=pb.CommandSeek(consumer_id=consumer_id, request_id=request_id, message_id=where),
    )


def seek_to_time(consumer_id: int, request_id: int, publish_time_ms: int) -> pb.BaseCommand:
    """Move a subscription to the first message published at or after a time."""
    return pb.BaseCommand(
        type=pb.BaseCommand.SEEK,
        seek=pb.CommandSeek(
            consumer_id=consumer_id, request_id=request_id, message_publish_time=publish_time_ms
        ),
    )


def last_message_id(consumer_id: int, request_id: int) -> pb.BaseCommand:
    """Ask for the last message of a consumer's topic."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_LAST_MESSAGE_ID,
        getLastMessageId=pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id),
    )


def consumer_stats(consumer_id: int, request_id: int) -> pb.BaseCommand:
    """Ask for the figures of a consumer."""
    return pb.BaseCommand(
        type=pb.BaseCommand.CONSUMER_STATS,
        consumerStats=pb.CommandConsumerStats(request_id=request_id, consumer_id=consumer_id),
    )


def topics_of_namespace(
    namespace: str,
    request_id: int,
    *,
    mode: pb.CommandGetTopicsOfNamespace.Mode = pb.CommandGetTopicsOfNamespace.PERSISTENT,
    pattern: str | None = None,
    topics_hash: str | None = None,
) -> pb.BaseCommand:
    """Ask for the topics of a namespace."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
        getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(
            request_id=request_id,
            namespace=namespace,
            mode=mode,
            topics_pattern=pattern,
            topics_hash=topics_hash,
        ),
    )


def get_schema(topic: str, request_id: int, schema_version: bytes | None = None) -> pb.BaseCommand:
    """Ask for a version of a topic's schema; for the newest if none is named."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_SCHEMA,
        getSchema=pb.CommandGetSchema(
            request_id=request_id, topic=topic, schema_version=schema_version
        ),
    )


def get_or_create_schema(topic: str, request_id: int, schema: pb.Schema) -> pb.BaseCommand:
    """Ask for the version of a schema, adding it if it is new."""
    return pb.BaseCommand(
        type=pb.BaseCommand.GET_OR_CREATE_SCHEMA,
        getOrCreateSchema=pb.CommandGetOrCreateSchema(
            request_id=request_id, topic=topic, schema=schema
        ),
    )
