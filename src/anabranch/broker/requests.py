"""Requests of a client that are answered by one command: lookups, schemas.

What consumers ask is served by `consuming.py`, what producers ask by `producing.py`;
here is how all of them come to be answered.

Each is a coroutine run as a supervised task of the broker. What it raises becomes Pulsar's own
kind of refusal for that command; anything outside the error tree is a bug and ends the connection.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from anabranch.broker import consuming, producing, topic_requests
from anabranch.broker.access import answer_challenge
from anabranch.broker.consumer_figures import consumer_figures
from anabranch.broker.extensions import CommandHandler
from anabranch.broker.refusals import Refused, code_of, sayable
from anabranch.broker.transactions import COMMANDS as TRANSACTION_COMMANDS
from anabranch.broker.transactions import NOT_ENABLED
from anabranch.errors import AnabranchError, ProtocolError
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import TopicName
from anabranch.telemetry import get_logger
from anabranch.wire import PROTOCOL_VERSION, Command, FeatureFlags, ServerError, refuse, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_log = get_logger("requests")
OLDEST_PROTOCOL_VERSION: Final = 11
"""Clients of earlier ones cannot read the checksums that stored messages carry."""
_SERVER_FEATURES: Final = FeatureFlags(
    supports_get_partitioned_metadata_without_auto_creation=True, supports_topic_watchers=True
)
Handler = Callable[["Session", BaseCommand], Awaitable[None]]


def shake_hands(session: "Session", command: Command) -> None:
    """Welcome a client.

    Raises:
        ProtocolError: if it begins with anything else than CONNECT.
    """
    if not isinstance(command, BaseCommand) or command.type != BaseCommand.CONNECT:
        raise ProtocolError("the first command must be CONNECT")
    session.client_version = command.connect.client_version
    if command.connect.protocol_version < OLDEST_PROTOCOL_VERSION:
        session.refuse_connection(
            f"protocol version {command.connect.protocol_version} is not spoken here: versions "
            f"from {OLDEST_PROTOCOL_VERSION} on are",
            ServerError.UnsupportedVersionError,
        )
        return
    if not session.access.admit(command.connect):
        return
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
    extension = session.broker.extensions.commands.get(command.type)
    if handler is None and extension is not None:
        handler = _extended(extension)
    if handler is not None:
        name = f"{BaseCommand.Type.Name(command.type)} {session.peer}"
        session.request_begun()
        session.broker.tasks.spawn(name, _answer(handler, session, command))
        return
    text = NOT_ENABLED if command.type in TRANSACTION_COMMANDS else "this command is not served"
    _refuse(session, command, ServerError.NotAllowedError, text)


async def _answer(handler: Handler, session: "Session", command: BaseCommand) -> None:
    try:
        await session.access.check(command)
        await handler(session, command)
    except AnabranchError as error:
        _refuse(session, command, code_of(error), sayable(str(error)))
    except Exception as error:  # noqa: BLE001 - shown, counted, and given up on
        session.broker.mishaps.met_by(session, command, error)
    finally:
        session.request_ended()


def _extended(extension: CommandHandler) -> Handler:
    async def serve_extended(session: "Session", command: BaseCommand) -> None:
        extension(session, command)

    return serve_extended


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
    found = await session.broker.ownership.locate(topic, authoritative=request.authoritative)
    answer = replies.lookup_connect if found.is_owner else replies.lookup_redirect
    urls = found.broker.service_url, found.broker.service_url_tls
    session.reply(answer(request.request_id, *urls, authoritative=found.authoritative))


# --- schemas and the rest --------------------------------------------------------------------


async def _get_schema(session: "Session", command: BaseCommand) -> None:
    request = command.getSchema
    topic = TopicName.parse(request.topic)
    version = request.schema_version if request.HasField("schema_version") else None
    schema, found = await session.broker.schemas.get(topic, version)
    session.reply(replies.get_schema_response(request.request_id, schema, found))


async def _get_or_create_schema(session: "Session", command: BaseCommand) -> None:
    request = command.getOrCreateSchema
    topic = await session.broker.topics.open(TopicName.parse(request.topic), create=False)
    version = await session.broker.schemas.for_producer(topic, request.schema)
    session.reply(replies.get_or_create_schema_response(request.request_id, version))


def _ping(session: "Session", command: BaseCommand) -> None:
    session.reply(replies.pong())


def _pong(session: "Session", command: BaseCommand) -> None:
    """Having been heard is all that counts."""


def _second_connect(session: "Session", command: BaseCommand) -> None:
    raise ProtocolError("CONNECT on a connection that is connected")


_IMMEDIATE: Final[dict[int, Callable[["Session", BaseCommand], None]]] = {
    BaseCommand.CONNECT: _second_connect,
    BaseCommand.PING: _ping,
    BaseCommand.PONG: _pong,
    BaseCommand.AUTH_RESPONSE: answer_challenge,
    BaseCommand.CLOSE_PRODUCER: producing.close_producer,
    BaseCommand.CLOSE_CONSUMER: consuming.close_consumer,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: consuming.redeliver,
    BaseCommand.CONSUMER_STATS: consumer_figures,
}

_REQUESTS: Final[dict[int, Handler]] = {
    BaseCommand.PARTITIONED_METADATA: topic_requests.partition_metadata,
    BaseCommand.GET_TOPICS_OF_NAMESPACE: topic_requests.topics_of_namespace,
    BaseCommand.WATCH_TOPIC_LIST: topic_requests.watch_topic_list,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: topic_requests.close_topic_list_watch,
    BaseCommand.LOOKUP: _lookup,
    BaseCommand.PRODUCER: producing.open_producer,
    BaseCommand.SUBSCRIBE: consuming.subscribe,
    BaseCommand.UNSUBSCRIBE: consuming.unsubscribe,
    BaseCommand.SEEK: consuming.seek,
    BaseCommand.GET_LAST_MESSAGE_ID: consuming.get_last_message_id,
    BaseCommand.GET_SCHEMA: _get_schema,
    BaseCommand.GET_OR_CREATE_SCHEMA: _get_or_create_schema,
}
