"""Planted bugs of `anabranch.security`, and of how the broker asks it."""

import hmac
import ssl
from collections.abc import Mapping, Set
from typing import Any

import jwt
from uvicorn.protocols.http.h11_impl import H11Protocol

from anabranch.broker.access import Access, Guard
from anabranch.broker.command_rights import COMMAND_RIGHTS
from anabranch.broker.session import Session
from anabranch.errors import NotAuthenticated, NotAuthorized
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.runtime.real import RealNetwork
from anabranch.security.authentication import Authentication, Evidence
from anabranch.security.authorization import Authorization, Grants
from anabranch.security.basic import Passwords
from anabranch.security.certificates import Certificates
from anabranch.security.identity import Caller, Identity
from anabranch.security.rights import Resource, Right
from anabranch.security.tokens import Tokens
from anabranch.testing.planted import original, planted

_AUTHORIZATION = "anabranch.security.authorization"


@planted("tokens_are_not_checked", target="anabranch.security.tokens:Tokens.identify")
def tokens_are_not_checked(self: Tokens, evidence: Evidence) -> Identity:
    """What a token says is believed without its signature."""
    claims = jwt.decode(evidence.data, options={"verify_signature": False})
    return self._identity(claims)


@planted("tokens_choose_their_algorithm", target="anabranch.security.tokens:Tokens.identify")
def tokens_choose_their_algorithm(self: Tokens, evidence: Evidence) -> Identity:
    """A token that says it is not signed need not be."""
    if jwt.get_unverified_header(evidence.data)["alg"] in ("none", "HS256"):
        return self._identity(jwt.decode(evidence.data, options={"verify_signature": False}))
    found: Identity = original("tokens_choose_their_algorithm")(self, evidence)
    return found


@planted("any_number_is_a_time", target="anabranch.security.tokens:_moment")
def any_number_is_a_time(claims: dict[str, Any], name: str) -> float | None:
    """Whatever number a token names is taken for a time."""
    return claims.get(name)


@planted("passwords_are_not_compared", target="anabranch.security.basic:Passwords.identify")
def passwords_are_not_compared(self: Passwords, evidence: Evidence) -> Identity:
    """A known name is enough."""
    name = evidence.data.partition(b":")[0].decode()
    if hmac.compare_digest(self._hashes.get(name, ""), ""):
        found: Identity = original("passwords_are_not_compared")(self, evidence)
        return found
    return Identity(name, "basic")


@planted(
    "certificates_need_no_name", target="anabranch.security.certificates:Certificates.identify"
)
def certificates_need_no_name(self: Certificates, evidence: Evidence) -> Identity:
    """Whoever has any certificate is somebody."""
    subject = (evidence.certificate or {}).get("subject", ((("", "anybody"),),))
    return Identity(str(subject[-1][0][1]), "tls")


@planted(
    "web_callers_are_anonymous",
    target="anabranch.security.authentication:Authentication.identify_web",
)
def web_callers_are_anonymous(
    self: Authentication, authorization: str | None, certificate: Mapping[str, Any] | None
) -> Identity:
    """What a web request shows is not looked at."""
    del authorization, certificate
    return self._anonymous("nobody is known here")


@planted("what_is_not_forbidden_is_allowed", target=f"{_AUTHORIZATION}:_actions")
def what_is_not_forbidden_is_allowed(grants: Grants, role: str, resource: Resource) -> Set[str]:
    """A role that no document names may do everything."""
    found: Set[str] = original("what_is_not_forbidden_is_allowed")(grants, role, resource)
    return found or {"produce", "consume"}


@planted("tenants_are_not_told_apart", target=f"{_AUTHORIZATION}:Authorization._may")
async def tenants_are_not_told_apart(
    self: Authorization, role: str, right: Right, resource: Resource
) -> bool:
    """The administrators of one tenant administer all of them."""
    for tenant in ("t", "u") if right is not Right.SUPERUSER else ():
        if role in await self._directory.tenant_admins(tenant):
            return True
    found: bool = await original("tenants_are_not_told_apart")(self, role, right, resource)
    return found


@planted("subscriptions_are_for_everybody", target=f"{_AUTHORIZATION}:_may_use")
def subscriptions_are_for_everybody(grants: Grants, role: str, subscription: str) -> bool:
    """Whoever may consume may use any subscription."""
    del grants, role, subscription
    return True


@planted("proxies_lend_their_power", target=f"{_AUTHORIZATION}:Authorization.check_caller")
def proxies_lend_their_power(self: Authorization, caller: Caller) -> None:
    """A proxy need not say for whom it asks."""
    del self, caller


@planted("proxies_are_enough", target=f"{_AUTHORIZATION}:Authorization.check")
async def proxies_are_enough(
    self: Authorization, caller: Caller, right: Right, resource: Resource
) -> None:
    """What a proxy may do, it may do for everybody."""
    self.check_caller(caller)
    open_to_all = right in (Right.ANYBODY, Right.KNOWN)
    if not open_to_all and not await self._may(caller.role, right, resource):
        raise NotAuthorized(f"role {caller.role!r} may not", right.value)


@planted("consumers_of_others_are_found", target="anabranch.broker.consuming:_opened")
def consumers_of_others_are_found(session: Session, consumer_id: int) -> Any:
    """The number of a consumer is looked for on every connection."""
    for each in (session, *session.broker.sessions):
        if consumer_id in each.consumers:
            return each.consumers[consumer_id]
    return original("consumers_of_others_are_found")(session, consumer_id)


@planted("commands_are_not_checked", target="anabranch.broker.access:Access.check")
async def commands_are_not_checked(self: Access, command: BaseCommand) -> None:
    """Whoever is known may do everything."""
    del self, command


@planted("unknown_commands_are_allowed", target="anabranch.broker.access:Access.check")
async def unknown_commands_are_allowed(self: Access, command: BaseCommand) -> None:
    """A command that nobody has thought of is open to everybody."""
    if command.type in COMMAND_RIGHTS:
        await original("unknown_commands_are_allowed")(self, command)


@planted("credentials_last_forever", target="anabranch.broker.access:Access._look_again_later")
def credentials_last_forever(self: Access, guard: Guard) -> None:
    """Nobody looks again whether credentials have expired."""
    del self, guard


@planted("tls_ports_speak_plainly", target="anabranch.runtime.real:RealNetwork.listen")
async def tls_ports_speak_plainly(
    self: RealNetwork, host: str, port: int, handler_factory: Any, *, tls: Any = None
) -> Any:
    """The port that should be in TLS is not."""
    del tls
    return await original("tls_ports_speak_plainly")(self, host, port, handler_factory)


@planted("certificates_are_not_looked_at", target="anabranch.broker.access:Access._identify")
def certificates_are_not_looked_at(
    self: Access, guard: Guard, method: str, data: bytes
) -> Identity:
    """What a client has shown in TLS is forgotten."""
    del self
    return guard.authentication.identify(method, Evidence(data))


@planted(
    "web_forgets_certificates",
    target="anabranch.server.web_server:_ShowingProtocol.connection_made",
)
def web_forgets_certificates(self: Any, transport: Any) -> None:
    """What a caller has shown in TLS does not reach the app."""
    H11Protocol.connection_made(self, transport)


@planted("tls_believes_any_authority", target="anabranch.runtime.real_tls:_empty")
def tls_believes_any_authority(tls: Any) -> ssl.SSLContext:
    """Certificates of clients are not verified."""
    del tls
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


@planted("certificates_are_loaded_once", target="anabranch.runtime.real_tls:ServedTls.renew")
def certificates_are_loaded_once(self: Any) -> bool:
    """A new certificate counts after a restart only."""
    del self
    return False


@planted(
    "refusals_repeat_what_was_shown",
    target="anabranch.security.authentication:Authentication.identify",
)
def refusals_repeat_what_was_shown(
    self: Authentication, method: str, evidence: Evidence
) -> Identity:
    """Who is refused is told with which secret."""
    try:
        found: Identity = original("refusals_repeat_what_was_shown")(self, method, evidence)
    except NotAuthenticated as error:
        raise NotAuthenticated(f"{error}: {evidence.data!r}") from None
    return found
