"""Subscriptions: making and deleting them, passing over messages, moving, looking at one."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from starlette.responses import Response

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.limits import PEEK_MESSAGES_MAX
from anabranch.admin.owners import on_every_part, opened, require_here, stored
from anabranch.admin.refusals import RestRefused
from anabranch.admin.shown_messages import shown
from anabranch.admin.topic_access import parts, require_namespace
from anabranch.broker import topic_operations
from anabranch.broker.topic import Topic
from anabranch.ids import Position
from anabranch.security import Right

_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_ONE: Final = f"{_TOPIC}/subscription/{{subscription}}"
_LATEST_LEDGER: Final = 2**63 - 1


async def list_subscriptions(call: Call) -> object:
    """The subscriptions of a topic, of all partitions together."""

    async def here(one: Call) -> list[str]:
        return list((await opened(one)).subscriptions)

    answers = (await on_every_part(call, here)).values()
    return sorted({name for names in answers if isinstance(names, list) for name in names})


async def create_subscription(call: Call) -> None:
    """A subscription that begins at a message; at the end if none is named."""
    await require_namespace(call)
    name, place = call.subscription, place_of(call.json())
    initial: Literal["latest", "earliest"] = "latest" if place is None else "earliest"

    async def create(one: Call) -> None:
        await require_here(one)
        exists = await one.broker.topics.exists(one.topic)
        topic = await (opened(one) if exists else one.broker.topics.create(one.topic))
        if not _is_new(topic, name):
            raise RestRefused(409, "Subscription already exists for topic")
        subscription = await topic.create_subscription(name, initial=initial, properties={})
        if place is not None and place.ledger_id >= 0:
            await subscription.seek(place)

    await on_every_part(call, create)


def _is_new(topic: Topic, name: str) -> bool:
    return name not in topic.subscriptions


async def delete_subscription(call: Call) -> None:
    """The end of a subscription that nobody uses."""
    force = call.flag("force")
    await _each(
        call,
        lambda topic, name: topic_operations.remove_subscription(topic, name, force=force),
        find=opened,
    )


async def skip_all(call: Call) -> None:
    """Pass over everything."""
    await _each(call, topic_operations.skip_all)


async def skip(call: Call) -> None:
    """Pass over some messages."""
    count = call.number("count")
    if await _is_partitioned(call):
        raise RestRefused(405, "Skip messages on a partitioned topic is not allowed")
    await _each(call, lambda topic, name: topic_operations.skip(topic, name, count))


async def expire(call: Call) -> None:
    """Pass over what is older than so many seconds."""
    await _expire(call, call.subscription)


async def expire_to_message(call: Call) -> None:
    """Pass over everything up to a message, or up to the one before it."""
    body = call.json()
    last = place_of(body)
    if last is None or not isinstance(body, dict):
        raise RestRefused(400, "the body has to be a message id")
    if body.get("partitionIndex", -1) != call.topic.partition:
        raise RestRefused(
            412,
            "Invalid parameter for expire message by position, partition index of passed in "
            "message position doesn't match partition index for the topic",
        )
    if await _is_partitioned(call):
        raise RestRefused(405, "Expire message at position is not supported for partitioned-topic")
    topic = await stored(call)
    if body.get("isExcluded") is True:
        last = topic.ledger.previous_position(last)
    if not await topic_operations.expire_to(topic, call.subscription, last):
        raise RestRefused(
            409,
            f"Expire message by position not issued on topic {call.topic} for subscription "
            f"{call.subscription} due to ongoing message expiration not finished or invalid "
            "message position provided.",
        )


async def expire_all(call: Call) -> None:
    """The same for every subscription of a topic."""
    await _expire(call, None)


async def _expire(call: Call, only: str | None) -> None:
    age_s = call.number("seconds")
    before_ms = call.broker.clock.wall_ms() - age_s * 1000

    async def here(one: Call) -> None:
        topic = await stored(one)
        for name in list(topic.subscriptions) if only is None else [only]:
            topic_operations.subscription_of(topic, name)
            if not await topic_operations.expire(topic, name, before_ms):
                raise RestRefused(
                    409,
                    f"Expire message by timestamp not issued on topic {one.topic} for subscription "
                    f"{name} due to ongoing message expiration not finished or subscription "
                    "almost catch up.",
                )

    await on_every_part(call, here)


async def reset_to_time(call: Call) -> None:
    """Go on with what was published at or after a time."""
    time_ms = call.number("timestamp")

    async def move(topic: Topic, name: str) -> None:
        await topic_operations.subscription_of(topic, name).seek_to_time(time_ms)

    await _each(call, move)


async def reset_to_message(call: Call) -> None:
    """Go on with a message, or with the one after it."""
    body = call.json()
    place = place_of(body)
    after = isinstance(body, dict) and body.get("isExcluded") is True
    if await _is_partitioned(call):
        raise RestRefused(405, "Reset-cursor at position is not allowed for partitioned-topic")

    async def move(topic: Topic, name: str) -> None:
        subscription = topic_operations.subscription_of(topic, name)
        target = topic.ledger.last_confirmed if place is None else place
        if place is None or after:
            target = topic.ledger.next_position(target)
        await subscription.seek(target)

    await _each(call, move)


async def get_properties(call: Call) -> object:
    """Texts that belong to a subscription."""

    async def here(one: Call) -> dict[str, str]:
        found = topic_operations.subscription_of(await opened(one), one.subscription)
        return dict(found.cursor.cursor_properties)

    merged: dict[str, str] = {}
    for properties in (await on_every_part(call, here)).values():
        merged |= properties if isinstance(properties, dict) else {}
    return merged


async def set_properties(call: Call) -> None:
    """Set all texts that belong to a subscription."""
    body = call.json() or {}
    if not isinstance(body, dict) or not all(isinstance(each, str) for each in body.values()):
        raise RestRefused(400, "the body has to be an object of texts")

    async def change(topic: Topic, name: str) -> None:
        cursor = topic_operations.subscription_of(topic, name).cursor
        cursor.set_cursor_properties(body)
        await cursor.flushed()

    await _each(call, change)


async def _is_partitioned(call: Call) -> bool:
    return await parts(call) != [call.topic]


async def _each(
    call: Call,
    act: Callable[[Topic, str], Awaitable[Any]],
    find: Callable[[Call], Awaitable[Topic]] = stored,
) -> None:
    async def here(one: Call) -> None:
        await act(await find(one), one.subscription)

    await on_every_part(call, here)


def place_of(body: object) -> Position | None:
    """A message id of a request; None stands for the end.

    Raises:
        RestRefused: if it is none.
    """
    if body is None or body == "latest":
        return None
    if body == "earliest":
        return Position(-1, -1)
    if not isinstance(body, dict):
        raise RestRefused(400, "the body has to be a message id")
    ledger_id, entry_id = body.get("ledgerId"), body.get("entryId")
    if type(ledger_id) is not int or type(entry_id) is not int:
        raise RestRefused(400, "a message id has to have ledgerId and entryId")
    return None if ledger_id == _LATEST_LEDGER else Position(ledger_id, entry_id)


# --- single messages -------------------------------------------------------------------------


async def peek(call: Call) -> Response:
    """A message that is not acknowledged yet, by its place."""
    place = call.number("position")
    if not 1 <= place <= PEEK_MESSAGES_MAX:
        raise RestRefused(412, f"the position has to be between 1 and {PEEK_MESSAGES_MAX}")
    if await _is_partitioned(call):
        raise RestRefused(405, "Peek messages on a partitioned topic is not allowed")
    topic = await stored(call)
    if call.subscription not in topic.subscriptions:
        raise RestRefused(404, "Message not found")
    return shown(await topic_operations.peek(topic, call.subscription, place))


async def message_by_id(call: Call) -> Response:
    """A message by its place in the log."""
    position = Position(call.number("ledger"), call.number("entry"))
    return shown(await topic_operations.read_entry(await stored(call), position))


async def examine(call: Call) -> Response:
    """A message counted from the beginning or from the end."""
    topic = await stored(call)
    count = call.query.get("messagePosition", "1")
    if not count.isascii() or not count.isdigit() or not 1 <= int(count) <= 10**12:
        raise RestRefused(412, "messagePosition has to be at least 1")
    ledger, total = topic.ledger, topic.ledger.entry_count
    place = min(int(count), total)
    if call.query.get("initialPosition", "latest") == "latest":
        place = total - place + 1
    if total == 0:
        raise RestRefused(412, "Could not examine messages due to the total message is zero")
    return shown(
        await topic_operations.read_entry(topic, ledger.position_after(Position(-1, -1), place))
    )


def _row(method: str, page: str, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_ONE}{page}", Right.CONSUME, serve, words)


SUBSCRIPTION_ENDPOINTS: Final = (
    Endpoint(
        "GET",
        f"{_TOPIC}/subscriptions",
        Right.CONSUME,
        list_subscriptions,
        "The subscriptions of a topic",
    ),
    _row("PUT", "", create_subscription, "Create a subscription"),
    _row("DELETE", "", delete_subscription, "Delete a subscription"),
    _row("POST", "/skip_all", skip_all, "Pass over everything"),
    _row("POST", "/skip/{count}", skip, "Pass over some messages"),
    _row("POST", "/expireMessages", expire_to_message, "Pass over all up to a message"),
    _row("POST", "/expireMessages/{seconds}", expire, "Pass over old messages"),
    Endpoint(
        "POST",
        f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}",
        Right.ADMINISTER,
        expire_all,
        "Pass over old messages in all subscriptions",
    ),
    _row("POST", "/resetcursor/{timestamp}", reset_to_time, "Go to a time"),
    _row("POST", "/resetcursor", reset_to_message, "Go to a message"),
    _row("GET", "/properties", get_properties, "Properties of a subscription"),
    _row("PUT", "/properties", set_properties, "Set properties of a subscription"),
    _row("GET", "/position/{position}", peek, "Look at a message that is not acknowledged"),
    Endpoint(
        "GET",
        f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}",
        Right.ADMINISTER,
        message_by_id,
        "Look at a message by its place",
    ),
    Endpoint(
        "GET",
        f"{_TOPIC}/examinemessage",
        Right.ADMINISTER,
        examine,
        "Look at a message by counting",
    ),
)
