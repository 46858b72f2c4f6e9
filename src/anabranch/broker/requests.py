"""Requests of a client that are answered by one command: lookups, producers, subscriptions.

Each is a coroutine run as a supervised task of the broker. What it raises becomes Pulsar's own
kind of refusal for that command; anything outside the error tree is a bug and ends the process.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal

from anabranch.broker.consumer import Consumer
from anabranch.broker.dispatch import DISPATCHERS, EXCLUSIVE, TYPE_NAMES
from anabranch.broker.producer import Producer
from anabranch.broker.refusals import Refused, code_of
from anabranch.errors import AlreadyClosed, AnabranchError, InvalidName, ProtocolError
from anabranch.generated.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from anabranch.ids import Position, TopicName, check_subscription_name
from anabranch.telemetry import get_logger
from anabranch.wire import PROTOCOL_VERSION, Command, FeatureFlags, ServerError, refuse, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_log = get_logger("requests")
_SERVER_FEATURES: Final = FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
Handler = Callable[["Session", BaseCommand], Awaitable[None]]


def shake_hands(session: "Session", command: Command) -> None:
    """Welcome a client.

    Raises:
        ProtocolError: if it begins with anything else than CONNECT.
    """
    if not isinstance(command, BaseCommand) or command.type != BaseCommand.CONNECT:
        raise ProtocolError("the first command must be CONNECT")
    session.client_version = command.connect.client_version
    session.reply(
        replies.connected(
            session.broker.server_version,
            min(PROTOCOL_VERSION, command.connect.protocol_version),
            session.broker.settings.message_bytes_max,
            _SERVER_FEATURES,
        )
    )


def serve(session: "Session", command: BaseCommand) -> None:
    """Start serving a request; answers that need no waiting are given at once."""
    immediate = _IMMEDIATE.get(command.type)
    if immediate is not None:
        immediate(session, command)
        return
    handler = _REQUESTS.get(command.type)
    if handler is not None:
        name = f"{BaseCommand.Type.Name(command.type)} {session.peer}"
        session.broker.tasks.spawn(name, _answer(handler, session, command))
        return
    extension = session.broker.extensions.commands.get(command.type)
    if extension is not None:
        extension(session, command)
        return
    _refuse(session, command, ServerError.NotAllowedError, "this command is not served")


async def _answer(handler: Handler, session: "Session", command: BaseCommand) -> None:
    try:
        await handler(session, command)
    except AnabranchError as error:
        _refuse(session, command, code_of(error), str(error))


def _refuse(session: "Session", command: BaseCommand, code: ServerError, text: str) -> None:
    name = BaseCommand.Type.Name(command.type)
    _log.info("request_refused", command=name, peer=session.peer, reason=text)
    if session.closed:
        return
    refusal = refuse(command, code, text)
    if refusal is None:
        session.refuse_connection(f"{name}: {text}")
    else:
        session.reply(refusal)


# --- lookup ----------------------------------------------------------------------------------


async def _partition_metadata(session: "Session", command: BaseCommand) -> None:
    request = command.partitionMetadata
    topic = TopicName.parse(request.topic)
    namespaces = session.broker.namespaces
    await namespaces.require(topic)
    partitions = await namespaces.partitions_of(topic)
    # Clients ask like this whether a topic exists: a yes must not be given lightly.
    created = request.metadata_auto_creation_enabled and session.broker.settings.auto_create_topics
    if partitions == 0 and not created and not await session.broker.topics.exists(topic):
        raise Refused(ServerError.TopicNotFound, f"Topic {topic} does not exist")
    session.reply(replies.partition_metadata(request.request_id, partitions))


async def _lookup(session: "Session", command: BaseCommand) -> None:
    request = command.lookupTopic
    topic = TopicName.parse(request.topic)
    if request.advertised_listener_name:
        # Clients recognise this very wording as final.
        raise Refused(
            ServerError.ServiceNotReady,
            f"the broker do not have {request.advertised_listener_name} listener",
        )
    await session.broker.namespaces.require(topic)
    settings = session.broker.settings
    session.reply(
        replies.lookup_connect(request.request_id, settings.service_url, settings.service_url_tls)
    )


# --- producers -------------------------------------------------------------------------------


async def _open_producer(session: "Session", command: BaseCommand) -> None:
    request = command.producer
    producer_id = request.producer_id
    existing = session.producers.get(producer_id)
    if existing is not None and request.epoch <= existing[0].epoch:
        _producer_opened(session, request.request_id, existing[0])
        return
    if request.producer_access_mode != 0:
        raise Refused(ServerError.NotAllowedError, "only the Shared producer access mode is served")
    if request.initial_subscription_name:
        raise Refused(ServerError.NotAllowedError, "initial subscriptions are not served")
    token = _claim(session, ("producer", producer_id))
    try:
        topic = await session.broker.topics.open(TopicName.parse(request.topic), create=True)
        schema_version = await session.broker.schemas.for_producer(
            topic, request.schema if request.HasField("schema") else None
        )
        producer = Producer(
            session,
            producer_id=producer_id,
            name=request.producer_name or session.broker.new_producer_name(),
            epoch=request.epoch,
            schema_version=schema_version,
            disconnect=lambda: session.drop_producer(producer_id),
        )
        await topic.add_producer(producer)
    finally:
        overtaken = not _release(session, ("producer", producer_id), token)
    if overtaken:
        topic.remove_producer(producer)
        return
    session.producer_opened(producer, topic)
    _producer_opened(session, request.request_id, producer)


def _producer_opened(session: "Session", request_id: int, producer: Producer) -> None:
    session.reply(replies.producer_success(request_id, producer.name, -1, producer.schema_version))


def _close_producer(session: "Session", command: BaseCommand) -> None:
    request = command.close_producer
    session.creating.pop(("producer", request.producer_id), None)
    opened = session.producers.pop(request.producer_id, None)
    if opened is None:
        session.reply(replies.success(request.request_id))
        return
    producer, topic = opened

    def drained() -> None:
        topic.remove_producer(producer)
        if not session.closed:
            session.reply(replies.success(request.request_id))

    # Receipts of what was sent before the close come first, as the client expects.
    producer.after_pending(drained)


# --- consumers -------------------------------------------------------------------------------


async def _subscribe(session: "Session", command: BaseCommand) -> None:
    request = command.subscribe
    if request.consumer_id in session.consumers:
        session.reply(replies.success(request.request_id))
        return
    name = _checked_subscription(request)
    token = _claim(session, ("consumer", request.consumer_id))
    try:
        topic_name = TopicName.parse(request.topic)
        topic = await session.broker.topics.open(topic_name, create=request.force_topic_creation)
        if request.HasField("schema"):
            await session.broker.schemas.for_consumer(topic, request.schema)
        initial: Literal["latest", "earliest"] = "latest"
        if request.initialPosition == CommandSubscribe.Earliest:
            initial = "earliest"
        properties = {pair.key: pair.value for pair in request.subscription_properties}
        subscription = await topic.subscribe(name, initial=initial, properties=properties)
        consumer = Consumer(
            session,
            consumer_id=request.consumer_id,
            name=request.consumer_name or session.broker.new_consumer_name(),
            priority=request.priority_level,
            partition=topic_name.partition,
            epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
            disconnect=lambda: session.drop_consumer(request.consumer_id),
        )
        if request.subType == EXCLUSIVE:
            for other in list(subscription.consumers):
                if other.outlet is not session:
                    await other.outlet.is_alive()
        if topic.closed or session.closed or topic.subscriptions.get(name) is not subscription:
            raise AlreadyClosed(f"{topic_name} or its subscription {name} was closed meanwhile")
        subscription.add_consumer(consumer, request.subType)
    finally:
        overtaken = not _release(session, ("consumer", request.consumer_id), token)
    if overtaken:
        subscription.remove_consumer(consumer)
        return
    session.consumers[request.consumer_id] = (consumer, subscription, topic)
    session.reply(replies.success(request.request_id))


def _checked_subscription(request: CommandSubscribe) -> str:
    if not request.durable:
        raise Refused(ServerError.NotAllowedError, "non-durable subscriptions are not served")
    if request.subType not in DISPATCHERS:
        raise Refused(
            ServerError.NotAllowedError,
            f"{TYPE_NAMES[request.subType]} subscriptions are not served",
        )
    if request.read_compacted and request.subType != EXCLUSIVE:
        raise Refused(
            ServerError.NotAllowedError, "read_compacted is for single-active subscriptions only"
        )
    try:
        return check_subscription_name(request.subscription)
    except InvalidName as error:
        # Pulsar answers a bad subscription name with this code, which clients do not retry.
        raise Refused(ServerError.ProducerBusy, str(error)) from error


def _close_consumer(session: "Session", command: BaseCommand) -> None:
    request = command.close_consumer
    session.creating.pop(("consumer", request.consumer_id), None)
    opened = session.consumers.pop(request.consumer_id, None)
    if opened is not None:
        consumer, subscription, _ = opened
        subscription.remove_consumer(consumer)
    session.reply(replies.success(request.request_id))


async def _unsubscribe(session: "Session", command: BaseCommand) -> None:
    request = command.unsubscribe
    opened = session.consumers.get(request.consumer_id)
    if opened is None:
        raise Refused(ServerError.MetadataError, f"Consumer {request.consumer_id} is not open")
    consumer, subscription, topic = opened
    topic.detach_for_unsubscribe(subscription, consumer, request.force)
    del session.consumers[request.consumer_id]
    try:
        await topic.delete_subscription(subscription)
    except AnabranchError:
        # The client keeps its consumer when it is refused: tell it that there is none any more.
        session.reply(replies.close_consumer(request.consumer_id))
        raise
    session.reply(replies.success(request.request_id))


def _redeliver(session: "Session", command: BaseCommand) -> None:
    request = command.redeliverUnacknowledgedMessages
    opened = session.consumers.get(request.consumer_id)
    if opened is None:
        return
    consumer, subscription, _ = opened
    positions = [Position(place.ledgerId, place.entryId) for place in request.message_ids]
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    subscription.redeliver(consumer, positions or None, epoch)


# --- schemas and the rest --------------------------------------------------------------------


async def _get_schema(session: "Session", command: BaseCommand) -> None:
    request = command.getSchema
    topic = TopicName.parse(request.topic)
    version = request.schema_version if request.HasField("schema_version") else None
    schema, found = await session.broker.schemas.get(topic, version)
    session.reply(replies.get_schema_response(request.request_id, schema, found))


async def _get_or_create_schema(session: "Session", command: BaseCommand) -> None:
    request = command.getOrCreateSchema
    topic = await session.broker.topics.open(TopicName.parse(request.topic), create=True)
    version = await session.broker.schemas.for_producer(topic, request.schema)
    session.reply(replies.get_or_create_schema_response(request.request_id, version))


def _ping(session: "Session", command: BaseCommand) -> None:
    session.reply(replies.pong())


def _pong(session: "Session", command: BaseCommand) -> None:
    """Having been heard is all that counts."""


def _second_connect(session: "Session", command: BaseCommand) -> None:
    raise ProtocolError("CONNECT on a connection that is connected")


def _claim(session: "Session", key: tuple[str, int]) -> object:
    if key in session.creating:
        kind, number = key
        raise Refused(ServerError.ServiceNotReady, f"{kind} {number} is already being opened")
    token = object()
    session.creating[key] = token
    return token


def _release(session: "Session", key: tuple[str, int], token: object) -> bool:
    """Give the claim back; false if the client closed it or went away meanwhile."""
    if session.creating.get(key) is token:
        del session.creating[key]
        return not session.closed
    return False


_IMMEDIATE: Final[dict[int, Callable[["Session", BaseCommand], None]]] = {
    BaseCommand.CONNECT: _second_connect,
    BaseCommand.PING: _ping,
    BaseCommand.PONG: _pong,
    BaseCommand.CLOSE_PRODUCER: _close_producer,
    BaseCommand.CLOSE_CONSUMER: _close_consumer,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _redeliver,
}

_REQUESTS: Final[dict[int, Handler]] = {
    BaseCommand.PARTITIONED_METADATA: _partition_metadata,
    BaseCommand.LOOKUP: _lookup,
    BaseCommand.PRODUCER: _open_producer,
    BaseCommand.SUBSCRIBE: _subscribe,
    BaseCommand.UNSUBSCRIBE: _unsubscribe,
    BaseCommand.GET_SCHEMA: _get_schema,
    BaseCommand.GET_OR_CREATE_SCHEMA: _get_or_create_schema,
}
