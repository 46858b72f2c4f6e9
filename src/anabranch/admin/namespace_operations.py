"""What is done to all topics of a namespace at once: closing, clearing, removing a subscription."""

from typing import Any, Final

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.namespaces import existing
from anabranch.admin.topic_access import opened
from anabranch.admin.topic_names import names_in, parsed
from anabranch.broker import topic_operations
from anabranch.broker.topic import Topic
from anabranch.security import Right

_ONE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"


async def unload(call: Call) -> None:
    """Close every topic of a namespace; whoever asks for one next opens it."""
    await existing(call)
    for topic in call.broker.topics.all():
        if topic.name.namespace_name == call.namespace:
            await call.broker.topics.unload(topic.name)


async def clear_backlog(call: Call) -> None:
    """Pass over everything, in all subscriptions of all topics."""
    for topic in await _topics(call):
        for name in list(topic.subscriptions):
            await topic_operations.skip_all(topic, name)


async def clear_backlog_of(call: Call) -> None:
    """Pass over everything in one subscription of all topics that have it."""
    for topic in await _topics(call):
        if call.subscription in topic.subscriptions:
            await topic_operations.skip_all(topic, call.subscription)


async def unsubscribe(call: Call) -> None:
    """Delete one subscription of all topics that have it."""
    for topic in await _topics(call):
        if call.subscription in topic.subscriptions:
            await topic_operations.remove_subscription(topic, call.subscription, force=False)


async def _topics(call: Call) -> list[Topic]:
    await existing(call)
    names = parsed(await names_in(call, "PERSISTENT"))
    return [await opened(call, name) for name in names]


def _row(method: str, page: str, right: Right, serve: Any, words: str) -> Endpoint:
    return Endpoint(method, f"{_ONE}/{page}", right, serve, words)


NAMESPACE_OPERATIONS: Final = (
    _row("PUT", "unload", Right.ADMINISTER, unload, "Close all topics here"),
    _row("POST", "clearBacklog", Right.DRAIN, clear_backlog, "Pass over everything"),
    _row(
        "POST",
        "clearBacklog/{subscription}",
        Right.DRAIN,
        clear_backlog_of,
        "Pass over everything in a subscription",
    ),
    _row(
        "POST",
        "unsubscribe/{subscription}",
        Right.DRAIN,
        unsubscribe,
        "Delete a subscription everywhere",
    ),
)
