"""What another broker has: a request about it is sent there, or asked there for the client.

A request about one topic or bundle is answered with a redirect to its owner. One about many is
carried out where each of them is: here, or by asking the owner in the name of the client.
"""

from collections.abc import Iterable
from functools import partial
from urllib.parse import urlencode

from anabranch.admin.endpoints import EMPTY, ORIGINAL_PRINCIPAL, Call, Handler, parse_json
from anabranch.admin.refusals import Redirected, RestRefused, status_of
from anabranch.admin.topic_access import parts, require_namespace
from anabranch.admin.web_client import ask
from anabranch.broker.refusals import Refused
from anabranch.broker.topic import Topic
from anabranch.errors import AnabranchError, ConflictError
from anabranch.ids import TopicName
from anabranch.ownership import BrokerAddress, Bundle
from anabranch.ownership.addresses import BROKERS, read_registration
from anabranch.wire import ServerError


async def require_here(call: Call, topic: TopicName | None = None) -> None:
    """Let a request about a topic, the one in the path, pass that this broker owns or takes now.

    Raises:
        Redirected: if another one has it, or is to take it.
    """
    topic, ownership = topic or call.topic, call.broker.ownership
    if ownership.owns(topic):
        return
    await require_namespace(call)
    try:
        found = await ownership.locate(topic, authoritative=call.flag("authoritative"))
    except ConflictError as error:
        raise RestRefused(503, str(error)) from None
    if not ownership.owns(topic):
        raise redirect(call, found.broker, take=not found.is_owner)


async def require_bundle_here(call: Call, bundle: Bundle) -> bool:
    """Let a request about a bundle pass that this broker owns; False if nobody does.

    Raises:
        Redirected: if another one has it.
    """
    try:
        owner = await call.broker.ownership.owner_of(bundle)
    except ConflictError as error:
        raise RestRefused(503, str(error)) from None
    if owner is None:
        return False
    here = owner.web_url == call.served.web_url and owner.web_url_tls == call.served.web_url_tls
    if not here:
        raise redirect(call, owner, take=False)
    return True


async def opened(call: Call) -> Topic:
    """The topic in the path, opened here if need be, and never created.

    Raises:
        RestRefused: if it does not exist.
        Redirected: if another broker has it.
    """
    await require_here(call)
    return await open_here(call, call.topic)


async def stored(call: Call) -> Topic:
    """The topic in the path, opened here, if it is one that keeps messages.

    Raises:
        RestRefused: if it does not exist, or keeps none.
        Redirected: if another broker has it.
    """
    if not call.topic.is_persistent:
        raise RestRefused(405, "a non-persistent topic keeps nothing")
    return await opened(call)


async def open_here(call: Call, name: TopicName) -> Topic:
    """A topic that this broker owns, opened if need be, and never created.

    Raises:
        RestRefused: if it does not exist.
    """
    try:
        return await call.broker.topics.open(name, create=False)
    except Refused as error:
        if error.code == ServerError.TopicNotFound:
            raise RestRefused(404, f"Topic {name} not found") from None
        raise


async def on_every_part(
    call: Call, serve: Handler, page: str | None = None, *, gone_is_done: bool = False
) -> dict[TopicName, object]:
    """Carry a request out for each partition where it is, by `serve` or at its own `page`.

    With `gone_is_done` a partition that is not there has what was asked for.

    Raises:
        AnabranchError: the first refusal, after all were tried.
    """
    answers: dict[TopicName, object] = {}
    refusals: list[AnabranchError] = []
    for part in await parts(call):
        if part == call.topic:
            return {part: await serve(call)}
        try:
            answers[part] = await _where_it_is(call.about(part, page), serve)
        except AnabranchError as error:
            if not (gone_is_done and status_of(error) == 404):
                refusals.append(error)
    if refusals:
        raise refusals[0]
    return answers


async def on_every_bundle(call: Call, bundles: Iterable[Bundle], serve: Handler) -> None:
    """Carry a request out for each bundle where it is."""
    for bundle in bundles:
        await _where_it_is(call.about_bundle(bundle.range_text), serve)


async def _where_it_is(call: Call, serve: Handler) -> object:
    try:
        return await serve(call)
    except Redirected as elsewhere:
        return await _asked(call, elsewhere.location)


def redirect(call: Call, broker: BrokerAddress, *, take: bool) -> Redirected:
    """The way to another broker: in TLS for a request that came so, whose secrets stay covered.

    Raises:
        RestRefused: if that broker cannot be reached so.
    """
    plain = "" if call.origin.is_secure else broker.web_url
    where = plain or broker.web_url_tls
    if not where:
        raise RestRefused(
            412,
            f"broker {broker.broker_id} has no web interface in TLS, and a request that came"
            f" by TLS is not sent on without; give that broker a TLS port",
        )
    query = [pair for pair in call.query.multi_items() if pair[0] != "authoritative"]
    query.append(("authoritative", "true" if take else "false"))
    return Redirected(f"{where}{call.origin.path}?{urlencode(query)}")


async def registered(call: Call, broker_id: str) -> BrokerAddress | None:
    """Where a broker of this cluster is reached; None if there is no such one."""
    if broker_id not in await call.served.metadata.children(BROKERS):
        return None
    found = await call.served.metadata.get(f"{BROKERS}/{broker_id}")
    return None if found is None else read_registration(found.value)


async def _is_registered(call: Call, url: str) -> bool:
    """Whether a broker of this cluster is reached there."""
    for broker_id in await call.served.metadata.children(BROKERS):
        broker = await registered(call, broker_id)
        for known in (broker.web_url, broker.web_url_tls) if broker is not None else ():
            if known and url.startswith(f"{known.rstrip('/')}/"):
                return True
    return False


def _credentials(call: Call) -> dict[str, str]:
    """The headers by which another broker learns for whom it is asked.

    A client that showed a certificate, or nothing, has none that could be sent on. This broker
    shows its own certificate instead, and so has to say that it does not ask for itself.

    Raises:
        RestRefused: if the client's role cannot be named so.
    """
    shown = dict(call.origin.credentials)
    if call.caller is not None and "authorization" not in shown:
        role = call.caller.original or call.caller.role
        if not (role.isascii() and role.isprintable() and role == role.strip()):
            raise RestRefused(412, f"role {role[:80]!r} cannot be named to another broker")
        shown[ORIGINAL_PRINCIPAL] = role
    return shown


async def _asked(call: Call, location: str) -> object:
    """What another broker answers to the same request.

    Raises:
        RestRefused: as it refused.
    """
    answer = await ask(
        call.served.network,
        call.origin.method,
        location,
        headers={**_credentials(call), "Content-Type": "application/json"},
        body=call.body,
        tls=call.served.peer_tls,
        may_go_to=partial(_is_registered, call),
    )
    value = parse_json(answer.body) if answer.body.strip() else EMPTY
    if answer.status >= 300:
        reason = value.get("reason") if isinstance(value, dict) else None
        status = answer.status if answer.status < 500 else 503
        raise RestRefused(status, str(reason or f"{location} was answered with {answer.status}"))
    return None if answer.status == 204 else value
