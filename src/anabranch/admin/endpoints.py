"""What an endpoint is, and what its handler is given: the table's row and the call."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from urllib.parse import quote

from starlette.datastructures import QueryParams

from anabranch.admin.documents import Documents
from anabranch.admin.limits import JSON_DEPTH_MAX
from anabranch.admin.refusals import RestRefused
from anabranch.admin.served import Served
from anabranch.broker import Broker
from anabranch.errors import FormatError, InvalidName
from anabranch.ids import TopicName, check_part, check_subscription_name
from anabranch.policies import JsonDocument, from_json
from anabranch.security import Caller, Resource, Right

D = TypeVar("D", bound=JsonDocument)
EMPTY: Final = object()
"""An answer without a body and with status 200: what Pulsar says of a policy that is not set."""
ORIGINAL_PRINCIPAL: Final = "x-original-principal"
"""The header in which a proxy says for whom it asks."""
DOMAINS: Final = ("persistent", "non-persistent")


@dataclass(frozen=True, slots=True)
class Origin:
    """How a request came, for when it is to be made again elsewhere."""

    method: str
    path: str
    """As the client sent it, still encoded."""
    is_secure: bool = False
    """Whether it came by TLS."""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers by which the client showed who it is."""


class Call:
    """One request, after its names were checked and its caller was let in."""

    def __init__(
        self,
        served: Served,
        names: Mapping[str, str],
        query: QueryParams,
        body: bytes,
        caller: Caller | None,
        origin: Origin,
    ) -> None:
        self.served = served
        self.names = names
        self.query = query
        self.body = body
        self.caller = caller
        self.origin = origin

    @property
    def broker(self) -> Broker:
        """What serves the topics."""
        return self.served.broker

    @property
    def documents(self) -> Documents:
        """Where tenants, namespaces and clusters are described."""
        return Documents(self.served.metadata)

    @property
    def tenant(self) -> str:
        """The tenant in the path.

        Raises:
            RestRefused: if it can be no tenant's name.
        """
        return _checked("Tenant", self.names["tenant"])

    @property
    def namespace(self) -> str:
        """`tenant/namespace` as in the path.

        Raises:
            RestRefused: if it can be no namespace's name.
        """
        return f"{self.tenant}/{_checked('Namespace', self.names['namespace'])}"

    @property
    def topic(self) -> TopicName:
        """The topic in the path.

        Raises:
            RestRefused: if it can be no topic's name.
        """
        domain = self.names.get("domain", DOMAINS[0])
        try:
            return TopicName.parse(f"{domain}://{self.namespace}/{self.names['topic']}")
        except InvalidName as error:
            raise RestRefused(412, f"Topic name is not valid: {error}") from None

    @property
    def subscription(self) -> str:
        """The subscription in the path.

        Raises:
            RestRefused: if it can be no subscription's name.
        """
        try:
            return check_subscription_name(self.names["subscription"])
        except InvalidName as error:
            raise RestRefused(412, f"Subscription name is not valid: {error}") from None

    def about(self, topic: TopicName, page: str | None = None) -> "Call":
        """The same request about another topic of the namespace, or for another page of it."""
        segments = self.origin.path.split("/")
        segments[6] = quote(topic.local, safe="")
        if page is not None:
            segments[7:] = [page] if page else []
        return self._again(segments, topic=topic.local)

    def about_bundle(self, bundle: str) -> "Call":
        """The same request about one bundle of the namespace."""
        segments = self.origin.path.split("/")
        return self._again([*segments[:6], bundle, *segments[6:]], bundle=bundle)

    def _again(self, segments: list[str], **names: str) -> "Call":
        origin = replace(self.origin, path="/".join(segments))
        names = {**self.names, **names}
        return Call(self.served, names, self.query, self.body, self.caller, origin)

    def resource(self) -> Resource:
        """What the path is about, as far as rights go."""
        if "topic" in self.names:
            subscription = self.subscription if "subscription" in self.names else ""
            return Resource.of_topic(self.topic, subscription)
        if "namespace" in self.names:
            subscription = self.subscription if "subscription" in self.names else ""
            return Resource(self.tenant, self.namespace, None, subscription)
        return Resource(self.tenant) if "tenant" in self.names else Resource()

    def json(self) -> Any:
        """The body as JSON; None if there is none.

        Raises:
            RestRefused: if it is not JSON.
        """
        if not self.body.strip():
            return None
        return parse_json(self.body)

    def document(self, kind: type[D]) -> D:
        """The body as a document.

        Raises:
            RestRefused: naming what is wrong with it.
        """
        return as_document(kind, self.json())

    def flag(self, name: str) -> bool:
        """A yes or no of the query."""
        return self.query.get(name, "false").lower() == "true"

    def number(self, name: str) -> int:
        """A number in the path.

        Raises:
            RestRefused: if there is something else.
        """
        text = self.names[name]
        if not text.lstrip("-").isascii() or not text.lstrip("-").isdigit() or len(text) > 19:
            raise RestRefused(404, f"{text[:40]!r} is no number")
        return int(text)


Handler = Callable[[Call], Awaitable[object]]
"""Returns a Response, EMPTY, None for 204, or what is answered as JSON."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the table."""

    method: str
    path: str
    """Segments in braces are names: {tenant}, {namespace}, {topic}, {subscription}, …"""
    right: Right
    serve: Handler
    words: str


def _checked(kind: str, name: str) -> str:
    try:
        return check_part(kind, name)
    except InvalidName:
        raise RestRefused(412, f"{kind} name is not valid") from None


def as_document(kind: type[D], value: object) -> D:
    """Make a typed document of JSON that a client has sent.

    Raises:
        RestRefused: naming what is wrong with it.
    """
    if value is None:
        raise RestRefused(400, f"the body has to be a {kind.__name__} in JSON, and is empty")
    try:
        return from_json(kind, value)
    except FormatError as error:
        raise RestRefused(400, str(error)) from None


def parse_json(data: bytes) -> Any:
    """Read JSON that a client has sent.

    Raises:
        RestRefused: if it is none, is nested too deeply, names a key twice, or has a text that
            cannot be written.
    """
    try:
        value = json.loads(data, object_pairs_hook=_once)
    except RecursionError:
        raise RestRefused(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise RestRefused(400, f"the body is no JSON: {error}") from None
    if _depth(value, 1) > JSON_DEPTH_MAX:
        raise RestRefused(400, f"the body is nested more than {JSON_DEPTH_MAX} deep")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RestRefused(422, "half a surrogate pair in the body is no text") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _depth(value: Any, so_far: int) -> int:
    if so_far > JSON_DEPTH_MAX or not isinstance(value, dict | list):
        return so_far
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(each, so_far + 1) for each in inner), default=so_far)
