"""Subscriptions: making, moving and deleting them, and looking at what waits."""

import json
from collections.abc import Mapping

from anabranch.client.admin.calls import Calls, subscription_path, topic_path
from anabranch.client.admin.documents import Peeked, message_id_json
from anabranch.client.admin.web import WebAnswer
from anabranch.client.message import LATEST, MessageId

_PROPERTY = "x-pulsar-property-"


class Subscriptions(Calls):
    """`AdminClient.subscriptions`. All calls raise as `Calls.call` does."""

    async def names(self, topic: str) -> list[str]:
        """The subscriptions of a topic."""
        return await self.get_names(topic_path(topic, "subscriptions"))

    async def create(self, topic: str, subscription: str, at: MessageId = LATEST) -> None:
        """Make a subscription that begins at a message, `EARLIEST` and `LATEST` too."""
        path = subscription_path(topic, subscription)
        await self.call("PUT", path, message_id_json(at))

    async def delete(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription that nobody uses; with `force` also one in use."""
        path = subscription_path(topic, subscription)
        await self.call("DELETE", path, query={"force": force})

    async def skip(self, topic: str, subscription: str, messages: int) -> None:
        """Pass over some messages."""
        await self.call("POST", subscription_path(topic, subscription, f"skip/{messages}"))

    async def skip_all(self, topic: str, subscription: str) -> None:
        """Pass over everything."""
        await self.call("POST", subscription_path(topic, subscription, "skip_all"))

    async def expire(self, topic: str, subscription: str, older_than_s: int) -> None:
        """Pass over what is older than so many seconds."""
        path = subscription_path(topic, subscription, f"expireMessages/{older_than_s}")
        await self.call("POST", path)

    async def reset(self, topic: str, subscription: str, to: MessageId | int) -> None:
        """Go on with a message, or with what was published at or after a time in ms."""
        if isinstance(to, MessageId):
            path = subscription_path(topic, subscription, "resetcursor")
            await self.call("POST", path, message_id_json(to))
        else:
            await self.call("POST", subscription_path(topic, subscription, f"resetcursor/{to}"))

    async def properties(self, topic: str, subscription: str) -> dict[str, str]:
        """Texts that belong to a subscription."""
        return dict(await self.get(subscription_path(topic, subscription, "properties")) or {})

    async def set_properties(
        self, topic: str, subscription: str, properties: Mapping[str, str]
    ) -> None:
        """Set all texts that belong to a subscription."""
        path = subscription_path(topic, subscription, "properties")
        await self.call("PUT", path, dict(properties))

    async def peek(self, topic: str, subscription: str, position: int = 1) -> Peeked:
        """Look at what waits, without receiving it: the first entry, the second, and so on."""
        path = subscription_path(topic, subscription, f"position/{position}")
        return _peeked(await self.call("GET", path))


def _peeked(answer: WebAnswer) -> Peeked:
    headers = answer.headers
    return Peeked(
        id=headers.get("x-pulsar-message-id", ""),
        data=answer.body,
        batch_messages=int(headers.get("x-pulsar-num-batch-message", "0")),
        key=headers.get("x-pulsar-partition-key"),
        properties=_properties(headers),
        is_encrypted=headers.get("x-pulsar-is-encrypted") == "true",
    )


def _properties(headers: Mapping[str, str]) -> dict[str, str]:
    """Newer brokers send all of them as one header, older ones a header each."""
    try:
        whole = json.loads(headers.get("x-pulsar-property", "{}"))
    except ValueError:
        whole = {}
    found = {str(key): str(value) for key, value in whole.items()} if whole else {}
    for name, value in headers.items():
        if name.startswith(_PROPERTY):
            found[name.removeprefix(_PROPERTY)] = value
    return found
