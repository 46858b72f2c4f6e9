"""What all nouns of the admin client share: a call with JSON in and out, and names as paths."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from anabranch.client.admin.refusals import refusal
from anabranch.client.admin.web import WebAnswer, WebClient
from anabranch.errors import ProtocolError
from anabranch.ids import TopicName, check_namespace_name, check_part

ROOT: Final = "/admin/v2"
Query = Mapping[str, str | int | bool]
_NOTHING: Final = object()


class Calls:
    """Calls of one noun."""

    def __init__(self, web: WebClient) -> None:
        self._web = web

    async def call(
        self,
        method: str,
        path: str,
        body: Any = _NOTHING,
        *,
        query: Query | None = None,
        patience_s: float = 0.0,
    ) -> WebAnswer:
        """Make a call; a body is sent as JSON, also if it is None. See `WebClient.request`.

        Raises:
            AdminRefused: if the server said no; its kinds say why.
            OutcomeUnknown: if no answer came.
            Unreachable: if nobody could be asked.
        """
        asked = {name: _text(value) for name, value in (query or {}).items()}
        sent = b"" if body is _NOTHING else json.dumps(body).encode()
        answer = await self._web.request(
            method, f"{ROOT}{path}", query=asked, body=sent, patience_s=patience_s
        )
        if answer.status >= 400:
            raise refusal(answer.status, answer.body, f"{method} {path}")
        return answer

    async def get(self, path: str, *, query: Query | None = None) -> Any:
        """Ask for a page and return it, read as JSON. Raises as `call`."""
        return (await self.call("GET", path, query=query)).json()

    async def get_names(self, path: str, *, query: Query | None = None) -> list[str]:
        """Ask for a list of names, which is returned in order. Raises as `call`."""
        found = await self.get(path, query=query)
        if not isinstance(found, list):
            raise ProtocolError(f"{path} is no list: {found!r}"[:200])
        return sorted(map(str, found))


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def segment(name: str) -> str:
    """Any name as one segment of a path."""
    return quote(name, safe="")


def tenant_path(tenant: str) -> str:
    """The page of a tenant. Raises InvalidName."""
    return f"/tenants/{segment(check_part('tenant', tenant))}"


def namespace_path(namespace: str, page: str = "") -> str:
    """A page of a namespace, `tenant/namespace`. Raises InvalidName."""
    tenant, name = check_namespace_name(namespace).split("/")
    path = f"/namespaces/{segment(tenant)}/{segment(name)}"
    return f"{path}/{page}" if page else path


def topic_path(topic: str, page: str = "") -> str:
    """A page of a topic. Raises InvalidName."""
    name = TopicName.parse(topic)
    path = f"/{name.domain}/{name.namespace_name}/{segment(name.local)}"
    return f"{path}/{page}" if page else path


def subscription_path(topic: str, subscription: str, page: str = "") -> str:
    """A page of a subscription. Raises InvalidName."""
    path = topic_path(topic, f"subscription/{segment(subscription)}")
    return f"{path}/{page}" if page else path
