"""Who a connection belongs to, whether that still holds, and what it may ask for.

One `Access` for each session. Without a `Guard` everybody may do everything, and nothing is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.command_rights import COMMAND_RIGHTS
from anabranch.broker.refusals import sayable
from anabranch.errors import Denied, NotAuthenticated, NotAuthorized, NotFound
from anabranch.generated.pulsar_api_pb2 import BaseCommand, CommandConnect
from anabranch.ids import TopicName
from anabranch.security import (
    Authentication,
    Authorization,
    Caller,
    Evidence,
    Identity,
    Resource,
    Right,
)
from anabranch.telemetry import get_logger
from anabranch.wire import PROTOCOL_VERSION, ServerError, replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

REFRESH: Final = b"PulsarAuthRefresh"
"""What clients recognise as the wish for fresh credentials."""
_log = get_logger("access")


@dataclass(frozen=True, slots=True)
class Guard:
    """What a broker guards its door with."""

    authentication: Authentication
    authorization: Authorization
    refresh_s: float = 60.0
    """Between two looks for credentials that have expired."""


class Access:
    """Of one connection."""

    __slots__ = ("_challenged", "_identity", "_refreshes", "_session", "caller", "certificate")

    def __init__(self, session: "Session") -> None:
        self.caller: Caller | None = None
        self.certificate: Mapping[str, Any] | None = None
        """What the client has shown in TLS, verified."""
        self._session = session
        self._identity: Identity | None = None
        self._refreshes = False
        self._challenged = False

    def admit(self, connect: CommandConnect) -> bool:
        """Find out who a client is; who may not come in is told so, and the connection closed."""
        guard = self._session.broker.guard
        if guard is None:
            return True
        try:
            self._identity = self._identify(guard, connect.auth_method_name, connect.auth_data)
            original = self._original(guard, connect)
            self.caller = Caller(self._identity.role, original)
            guard.authorization.check_caller(self.caller)
        except Denied as error:
            self._turn_away(error)
            return False
        self._refreshes = connect.feature_flags.supports_auth_refresh
        self._look_again_later(guard)
        return True

    def _identify(self, guard: Guard, method: str, data: bytes) -> Identity:
        evidence = Evidence(data, self.certificate)
        return guard.authentication.identify(method or "none", evidence)

    def _original(self, guard: Guard, connect: CommandConnect) -> str | None:
        if not connect.original_principal:
            return None
        if connect.original_auth_data:
            # The proxy passes on what its client has shown: believed only if it holds here too.
            evidence = Evidence(connect.original_auth_data.encode())
            shown = guard.authentication.identify(connect.original_auth_method, evidence)
            if shown.role != connect.original_principal:
                raise NotAuthenticated("the original credentials are not the original principal's")
        return connect.original_principal

    def _turn_away(self, error: Denied) -> None:
        known = isinstance(error, NotAuthorized)
        code = ServerError.AuthorizationError if known else ServerError.AuthenticationError
        _log.info("turned_away", peer=self._session.peer, reason=str(error))
        self._session.reply(replies.handshake_error(code, sayable(str(error))))
        self._session.close()

    # --- what it may -------------------------------------------------------------------------

    async def check(self, command: BaseCommand) -> None:
        """Let a command pass that is allowed.

        Raises:
            NotAuthorized: if it is not.
            NotFound: if it is about a tenant that does not exist, where Pulsar tells so.
        """
        guard = self._session.broker.guard
        if guard is None:
            return
        row = COMMAND_RIGHTS.get(command.type)
        if row is None or self.caller is None:
            raise NotAuthorized("nobody may use this command")
        if row.resource is None:
            return
        resource = row.resource(command)
        try:
            await guard.authorization.check(self.caller, row.right, resource)
        except NotAuthorized:
            namespaces = self._session.broker.namespaces
            if row.tells_of_tenants and not await namespaces.has_tenant(resource.tenant):
                raise NotFound(f"tenant {resource.tenant} does not exist") from None
            raise

    async def check_consumer(self, topic: TopicName, subscription: str) -> None:
        """Let a subscription be created along the way.

        Raises:
            NotAuthorized: if it may not be.
        """
        guard = self._session.broker.guard
        if guard is not None and self.caller is not None:
            resource = Resource.of_topic(topic, subscription)
            await guard.authorization.check(self.caller, Right.CONSUME, resource)

    # --- whether it still holds --------------------------------------------------------------

    def _look_again_later(self, guard: Guard) -> None:
        if self._identity is not None and self._identity.expires_ms is not None:
            self._session.loop.call_later(guard.refresh_s, self._look_again)

    def _look_again(self) -> None:
        session, guard, identity = self._session, self._session.broker.guard, self._identity
        if session.closed or guard is None or identity is None:
            return
        if identity.has_expired(session.broker.clock.wall_ms()):
            if self._challenged or not self._refreshes:
                session.refuse_connection("the credentials have expired")
                return
            self._challenged = True
            session.reply(
                replies.auth_challenge(
                    session.broker.server_version,
                    PROTOCOL_VERSION,
                    method=identity.method,
                    data=REFRESH,
                )
            )
        self._look_again_later(guard)

    def respond(self, command: BaseCommand) -> None:
        """Take the fresh credentials that a client was asked for."""
        guard = self._session.broker.guard
        if guard is None or self._identity is None:
            return
        shown = command.authResponse.response
        try:
            fresh = self._identify(guard, shown.auth_method_name, shown.auth_data)
            if fresh.role != self._identity.role:
                raise NotAuthenticated("the fresh credentials are somebody else's")
        except Denied as error:
            self._turn_away(error)
            return
        was_watched = self._identity.expires_ms is not None
        self._identity = fresh
        self._challenged = False
        if not was_watched:
            self._look_again_later(guard)


def answer_challenge(session: "Session", command: BaseCommand) -> None:
    """Serve AUTH_RESPONSE."""
    session.access.respond(command)
