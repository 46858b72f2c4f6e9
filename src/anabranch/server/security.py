"""Makes authentication and authorization of what the settings name: files are read here, once."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from anabranch.broker.access import Guard
from anabranch.broker.grants import StoredGrants
from anabranch.errors import MASK, ConfigError
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Clock
from anabranch.runtime.network import ServerTls, Tls
from anabranch.security import Authentication, Authorization
from anabranch.security.authentication import BASIC, TLS, TOKEN, Method
from anabranch.security.basic import Passwords
from anabranch.security.certificates import Certificates
from anabranch.security.tokens import TokenKey, Tokens
from anabranch.server.credentials_file import read_secret
from anabranch.server.security_settings import SecuritySettings, words

_NEEDS = {"superuser_roles", "proxy_roles", "anonymous_role", "token_secret_key",
          "token_public_key", "token_audience", "basic_users"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Security:
    """What a server was told about security; nothing of it where everybody may do everything."""

    authentication: Authentication | None = None
    superuser_roles: tuple[str, ...] = ()
    proxy_roles: tuple[str, ...] = ()
    refresh_s: float = 60.0

    def authorization(self, metadata: MetadataStore) -> Authorization | None:
        """Return the judge over the documents of one store."""
        if self.authentication is None:
            return None
        return Authorization(
            StoredGrants(metadata),
            superuser_roles=self.superuser_roles,
            proxy_roles=self.proxy_roles,
        )

    def guard(self, authorization: Authorization | None) -> Guard | None:
        """Return what a broker guards its door with."""
        if self.authentication is None or authorization is None:
            return None
        return Guard(self.authentication, authorization, self.refresh_s)


def load_security(
    settings: SecuritySettings, clock: Clock, warn: Callable[[str], None]
) -> Security:
    """Read keys and passwords.

    Raises:
        ConfigError: naming the setting that is wrong or missing.
    """
    check_security(settings)
    chosen = words(settings.authentication)
    if not chosen:
        return Security()
    methods = [_method(name, settings, clock, warn) for name in chosen]
    return Security(
        Authentication(methods, anonymous_role=settings.anonymous_role),
        words(settings.superuser_roles),
        words(settings.proxy_roles),
        settings.authentication_refresh_s,
    )


def check_security(settings: SecuritySettings) -> None:
    """Refuse settings that are wrong beside each other.

    Raises:
        ConfigError: naming them.
    """
    chosen = words(settings.authentication)
    if not chosen:
        for item in fields(SecuritySettings):
            if item.name in _NEEDS and getattr(settings, item.name):
                flag = "--" + item.name.replace("_", "-")
                raise ConfigError(f"{flag} has no effect without --authentication: choose a method")
    if TOKEN in chosen and bool(settings.token_secret_key) == bool(settings.token_public_key):
        raise ConfigError(
            "--authentication token needs either --token-secret-key or --token-public-key"
        )
    if BASIC in chosen and not settings.basic_users:
        raise ConfigError("--authentication basic needs --basic-users")
    if TLS in chosen and not (settings.tls_certificate and settings.tls_trust):
        raise ConfigError("--authentication tls needs --tls-certificate and --tls-trust")
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise ConfigError("--tls-certificate and --tls-key go together: give both or neither")
    both = set(words(settings.superuser_roles)) & set(words(settings.proxy_roles))
    if both:
        raise ConfigError(
            f"--superuser-roles and --proxy-roles both name {', '.join(sorted(both))}: "
            "whoever has a proxy's credentials could name a superuser and be one"
        )
    if not settings.plain_ports and not settings.tls_certificate:
        raise ConfigError("--no-plain-ports leaves no port without --tls-certificate")
    if settings.tls_require_client_certificate and not settings.tls_trust:
        raise ConfigError("--tls-require-client-certificate needs --tls-trust")


def _method(
    name: str, settings: SecuritySettings, clock: Clock, warn: Callable[[str], None]
) -> Method:
    if name == TLS:
        return Certificates()
    if name == BASIC:
        text = read_secret(settings.basic_users, warn).decode(errors="replace")
        return Passwords(text, file_name=settings.basic_users)
    if settings.token_secret_key:
        key = TokenKey.shared(read_secret(settings.token_secret_key, warn))
    else:
        # Nobody needs to be told that a public key is public.
        key = TokenKey.public(read_secret(settings.token_public_key, lambda _: None))
    return Tokens(
        key,
        clock.wall_ms,
        role_claim=settings.token_role_claim,
        audience=settings.token_audience,
    )


def server_tls(settings: SecuritySettings) -> ServerTls | None:
    """How clients are spoken to in TLS; None if they are not."""
    if not settings.tls_certificate:
        return None
    return ServerTls(
        settings.tls_certificate,
        settings.tls_key,
        settings.tls_trust or None,
        settings.tls_require_client_certificate,
    )


def peer_tls(settings: SecuritySettings) -> Tls | None:
    """How other brokers are spoken to in TLS; None if they are not."""
    if not settings.tls_certificate:
        return None
    return Tls(settings.tls_trust or None, settings.tls_certificate, settings.tls_key)


def shown(name: str, value: object) -> str:
    """A setting's value as anybody may see it; URLs may carry user and password."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if name.endswith("_url") and "@" in text:
        scheme, separator, rest = text.partition(":")
        return f"{scheme}{separator}{MASK}@{rest.rpartition('@')[2]}"
    return text
