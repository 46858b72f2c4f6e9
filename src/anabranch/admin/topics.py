"""Topics: which there are, making and deleting them, their partitions, what ends or moves them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from anabranch import limits
from anabranch.admin.endpoints import DOMAINS, EMPTY, Call, Endpoint
from anabranch.admin.owners import on_every_part, opened, require_here, stored
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_access import partition_of, partitioned, require_namespace
from anabranch.admin.topic_names import names_in, partitioned_names_in
from anabranch.broker import topic_operations
from anabranch.broker.refusals import Refused
from anabranch.errors import NotFound
from anabranch.ids import Position
from anabranch.policies import PartitionedTopic
from anabranch.policies.paths import partitioned_topic_path
from anabranch.security import Right
from anabranch.wire import ServerError

_ROOT: Final = "/admin/v2/{domain}/{tenant}/{namespace}"
_ONE: Final = f"{_ROOT}/{{topic}}"
_SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"


def message_id(position: Position, partition: int = -1) -> dict[str, int]:
    """A position as Pulsar's JSON."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": partition,
        "batchIndex": -1,
        "batchSize": 0,
    }


async def list_topics(call: Call) -> object:
    """The topics of a namespace and a domain, partitions one by one."""
    domain = call.names["domain"]
    await _require(call)
    return await names_in(call, "PERSISTENT" if domain == DOMAINS[0] else "NON_PERSISTENT")


async def list_partitioned(call: Call) -> object:
    """The partitioned topics of a namespace."""
    domain = call.names["domain"]
    await _require(call)
    return await partitioned_names_in(call, domain)


async def _require(call: Call) -> None:
    try:
        await require_namespace(call)
    except RestRefused:
        raise RestRefused(404, "Namespace does not exist") from None


async def create_topic(call: Call) -> None:
    """A topic that is not partitioned, with properties if the body has some."""
    topic = call.topic
    await require_namespace(call)
    properties = _properties(call)
    _refuse_shadow(properties)
    await require_here(call)
    if await partitioned(call) is not None or await call.broker.topics.exists(topic):
        raise RestRefused(409, "This topic already exists")
    await _require_room(call, 1, status=409)
    made = await call.broker.topics.create(topic)
    if properties and topic.is_persistent:
        await made.ledger.set_properties(properties)


async def _require_room(call: Call, adding: int, *, status: int) -> None:
    try:
        await call.broker.namespaces.require_room(call.topic, adding)
    except Refused as error:
        raise RestRefused(status, str(error)) from None


async def delete_topic(call: Call) -> None:
    """The end of a topic that nobody uses."""
    if await partitioned(call) is not None:
        raise RestRefused(
            409,
            f"{call.topic} is a partitioned topic, instead of calling delete topic, "
            "please call delete-partitioned-topic.",
        )
    await opened(call)
    try:
        await call.broker.topics.delete(call.topic, force=call.flag("force"))
    except Refused as error:
        if error.code == ServerError.TopicNotFound:
            raise RestRefused(404, f"Topic {call.topic} not found") from None
        raise


# --- partitions ------------------------------------------------------------------------------


async def get_partitions(call: Call) -> object:
    """How many partitions a topic has."""
    document = await partitioned(call)
    if document is None:
        # Clients that look up over HTTP ask before they create.
        may_create = call.flag("checkAllowAutoCreation") and (
            await call.broker.namespaces.may_create(call.topic)
        )
        if not may_create and not await call.broker.topics.exists(call.topic):
            raise RestRefused(404, f"Topic {call.topic} not found")
        return {"partitions": 0, "deleted": False}
    answer: dict[str, Any] = {"partitions": document.partitions, "deleted": document.deleted}
    return answer | ({"properties": dict(document.properties)} if document.properties else {})


async def create_partitioned(call: Call) -> None:
    """A partitioned topic and its partitions."""
    await require_namespace(call)
    count, properties = _wanted_partitions(call)
    _refuse_shadow(properties)
    if call.topic.partition >= 0:
        raise RestRefused(412, "Partitioned Topic Name should not contain '-partition-'")
    if await call.broker.topics.exists(call.topic):
        raise RestRefused(409, "This topic already exists")
    await _require_room(call, count, status=412)
    document = PartitionedTopic(partitions=count, properties=properties)
    if not await call.documents.create(partitioned_topic_path(call.topic), document):
        raise RestRefused(409, "This topic already exists")
    if not call.flag("createLocalTopicOnly"):
        await _create_partitions(call, count)


async def update_partitioned(call: Call) -> None:
    """More partitions for a topic; never fewer."""
    count, _ = _wanted_partitions(call)

    def more(old: PartitionedTopic) -> PartitionedTopic:
        _enough(count, old.partitions)
        return replace(old, partitions=count)

    try:
        await call.documents.change(PartitionedTopic, partitioned_topic_path(call.topic), more)
    except NotFound:
        raise RestRefused(409, "Topic is not partitioned topic") from None
    await _create_partitions(call, count)


def _enough(count: int, present: int) -> None:
    if count < present:
        raise RestRefused(
            422,
            f"Desired partitions {count} can't be less than the current partitions {present}.",
        )


async def delete_partitioned(call: Call) -> None:
    """The end of a partitioned topic and of all its partitions."""
    document = await partitioned(call)
    if document is None:
        if await call.broker.topics.exists(call.topic):
            raise RestRefused(409, f"Topic {call.topic} is not a partitioned topic.")
        raise RestRefused(404, f"Topic {call.topic} not found.")

    async def remove(one: Call) -> None:
        await require_here(one)
        if await one.broker.topics.exists(one.topic):
            await one.broker.topics.delete(one.topic, force=one.flag("force"))

    await on_every_part(call, remove, page="", gone_is_done=True)
    await call.documents.delete(partitioned_topic_path(call.topic))
    await call.broker.policies.forget(call.topic)


async def create_missing_partitions(call: Call) -> None:
    """Create the partitions of a topic that are not there."""
    document = await partitioned(call)
    if document is None:
        raise RestRefused(404, f"Topic {call.topic} not found.")
    await _create_partitions(call, document.partitions)


async def _create_partitions(call: Call, count: int) -> None:
    for index in range(count if call.topic.is_persistent else 0):
        await call.broker.topics.declare(partition_of(call.topic, index))


def _wanted_partitions(call: Call) -> tuple[int, dict[str, str] | None]:
    body = call.json()
    properties = None
    if isinstance(body, dict):
        properties = _texts(body.get("properties") or {})
        body = body.get("partitions")
    if type(body) is not int:
        raise RestRefused(400, "the body has to be the number of partitions")
    if body <= 0:
        raise RestRefused(406, "Number of partitions should be more than 0")
    if body > limits.PARTITIONS_MAX:
        raise RestRefused(406, f"Number of partitions should be at most {limits.PARTITIONS_MAX}")
    return body, properties or None


# --- properties ------------------------------------------------------------------------------


async def get_properties(call: Call) -> object:
    """Texts that belong to a topic."""
    document = await partitioned(call)
    if document is not None:
        return dict(document.properties or {})
    return dict((await opened(call)).ledger.properties)


async def set_properties(call: Call) -> None:
    """Set texts that belong to a topic; those not named stay."""
    changes = _properties(call)
    if not changes:
        raise RestRefused(400, "the body has to be an object of texts")
    if await partitioned(call) is None:
        await (await opened(call)).ledger.set_properties(changes)
        return
    await call.documents.change(
        PartitionedTopic,
        partitioned_topic_path(call.topic),
        lambda old: replace(old, properties={**(old.properties or {}), **changes}),
    )


async def remove_property(call: Call) -> None:
    """Remove one text of a topic."""
    key = call.query.get("key", "")
    if not key:
        raise RestRefused(412, "the query names no key")
    if await partitioned(call) is None:
        await (await opened(call)).ledger.set_properties({key: None})
        return
    await call.documents.change(
        PartitionedTopic,
        partitioned_topic_path(call.topic),
        lambda old: replace(
            old,
            properties={k: v for k, v in (old.properties or {}).items() if k != key},
        ),
    )


def _refuse_shadow(properties: Mapping[str, str] | None) -> None:
    """Refuse a topic that is to show the messages of another: it would stay empty."""
    if properties and _SHADOW_SOURCE in properties:
        raise RestRefused(405, "shadowing of topics is not supported by this broker")


def _properties(call: Call) -> dict[str, str]:
    return _texts(call.json() or {})


def _texts(value: object) -> dict[str, str]:
    texts = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if not texts:
        raise RestRefused(400, "properties have to be an object of texts")
    assert isinstance(value, dict)
    return dict(value)


# --- what ends or moves a topic --------------------------------------------------------------


async def terminate(call: Call) -> object:
    """End a topic for good; what it holds can still be read."""
    if await partitioned(call) is not None:
        raise RestRefused(405, "Termination of a partitioned topic is not allowed")
    topic = await stored(call)
    return message_id(await topic_operations.terminate(topic), call.topic.partition)


async def terminate_partitions(call: Call) -> object:
    """End every partition of a topic for good."""
    if await partitioned(call) is None:
        raise RestRefused(405, "Termination of a non-partitioned topic is not allowed using "
                               "partitioned-terminate, please use terminate commands")  # fmt: skip
    answers = await on_every_part(call, terminate, page="terminate")
    return {str(name.partition): ended for name, ended in answers.items()}


async def unload(call: Call) -> None:
    """Close a topic here; whoever asks for it next opens it."""

    async def here(one: Call) -> None:
        await require_here(one)
        topics = one.broker.topics
        if not await topics.unload(one.topic) and not await topics.exists(one.topic):
            raise RestRefused(404, f"Topic {one.topic} not found")

    await on_every_part(call, here)


async def truncate(call: Call) -> None:
    """Let go of everything a topic holds: all subscriptions pass over it, and retention decides."""

    async def here(one: Call) -> None:
        await topic_operations.truncate(await stored(one))

    await on_every_part(call, here)


async def trim(call: Call) -> object:
    """Remove now what retention lets go."""

    async def here(one: Call) -> None:
        (await stored(one)).ledger.tend()

    await on_every_part(call, here)
    return EMPTY


async def last_message_id(call: Call) -> object:
    """The last message of a topic."""
    last = await (await stored(call)).last_message()
    return message_id(last.position, call.topic.partition) | {"batchIndex": last.batch_index}


async def message_id_at(call: Call) -> object:
    """The first message published at or after a time."""
    topic = await stored(call)
    time_ms = call.number("timestamp")
    return message_id(await topic_operations.position_at(topic, time_ms), call.topic.partition)


def _row(method: str, page: str, right: Right, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_ONE}{page}", right, serve, words)


TOPIC_ENDPOINTS: Final = (
    Endpoint("GET", _ROOT, Right.LIST, list_topics, "The topics of a namespace"),
    Endpoint("GET", f"{_ROOT}/partitioned", Right.LIST, list_partitioned, "The partitioned topics"),
    _row("PUT", "", Right.ADMINISTER, create_topic, "Create a topic"),
    _row("DELETE", "", Right.ADMINISTER, delete_topic, "Delete a topic nobody uses"),
    _row("GET", "/partitions", Right.LOOK_UP, get_partitions, "How many partitions a topic has"),
    _row("PUT", "/partitions", Right.ADMINISTER, create_partitioned, "Create a partitioned topic"),
    _row("POST", "/partitions", Right.ADMINISTER, update_partitioned, "Add partitions"),
    _row("DELETE", "/partitions", Right.ADMINISTER, delete_partitioned, "Delete with partitions"),
    _row(
        "POST",
        "/createMissedPartitions",
        Right.ADMINISTER,
        create_missing_partitions,
        "Create missing partitions",
    ),
    _row("GET", "/properties", Right.LOOK_UP, get_properties, "Properties of a topic"),
    _row("PUT", "/properties", Right.ADMINISTER, set_properties, "Set properties of a topic"),
    _row("DELETE", "/properties", Right.ADMINISTER, remove_property, "Remove a property"),
    _row("POST", "/terminate", Right.ADMINISTER, terminate, "End a topic for good"),
    _row(
        "POST",
        "/terminate/partitions",
        Right.ADMINISTER,
        terminate_partitions,
        "End all partitions for good",
    ),
    _row("PUT", "/unload", Right.ADMINISTER, unload, "Close a topic here"),
    _row("DELETE", "/truncate", Right.ADMINISTER, truncate, "Remove what a topic holds"),
    _row("POST", "/trim", Right.ADMINISTER, trim, "Remove what retention lets go"),
    _row("GET", "/lastMessageId", Right.LOOK_UP, last_message_id, "The last message"),
    _row("GET", "/messageid/{timestamp}", Right.LOOK_UP, message_id_at, "The message at a time"),
)
