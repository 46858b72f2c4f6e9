"""The settings of security: who may come in, how it is shown, and TLS."""

from dataclasses import dataclass

from anabranch.security.authentication import METHODS
from anabranch.server.setting import setting


def _methods(text: str) -> str | None:
    wrong = [name for name in words(text) if name not in METHODS]
    return f"names {', '.join(wrong)}; there are {', '.join(METHODS)}" if wrong else None


def words(text: str) -> tuple[str, ...]:
    """The parts of a list that is written with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """What an operator may choose about security."""

    authentication: str = setting(
        "",
        "How clients show who they are: any of token, basic, tls, separated by commas. Empty lets "
        "everybody do everything; otherwise nobody may do what was not granted.",
        check=_methods,
    )
    superuser_roles: str = setting("", "Roles that may do everything, separated by commas.")
    proxy_roles: str = setting(
        "", "Roles of proxies, which say for whom they ask; both must be allowed. Commas between."
    )
    anonymous_role: str = setting(
        "", "Role of clients that show nothing; empty means that they are refused."
    )
    token_secret_key: str = setting(
        "", "File with the secret that tokens are signed with (HS256, HS384, HS512)."
    )
    token_public_key: str = setting(
        "", "File with the public key of who signs tokens (RS and ES algorithms), PEM or DER."
    )
    token_role_claim: str = setting("sub", "Claim of a token that names the role.")
    token_audience: str = setting("", "Audience a token must name; empty asks for none.")
    basic_users: str = setting("", "File with names and passwords as `htpasswd -m` writes it.")
    authentication_refresh_s: float = setting(
        60.0,
        "Seconds between two looks for credentials that have expired on open connections.",
        low=0.1,
        high=3600,
    )
    tls_certificate: str = setting(
        "", "File with the server's certificate chain (PEM); turns the TLS ports on."
    )
    tls_key: str = setting("", "File with the private key of `tls_certificate` (PEM).")
    tls_trust: str = setting(
        "", "File with the authorities whose client certificates are believed (PEM)."
    )
    tls_require_client_certificate: bool = setting(
        False, "Refuse TLS connections of clients without a certificate."
    )
    tls_reload_s: float = setting(
        10.0, "Seconds between two looks for renewed certificate files.", low=0.1, high=86400
    )
    plain_ports: bool = setting(
        True, "Serve the ports without TLS too; when off, clients are told of those with TLS alone."
    )
    tls_port: int = setting(
        6651, "Port of the binary protocol in TLS; 0 takes a free one.", low=0, high=65535
    )
    web_tls_port: int = setting(
        8443, "Port of the web interface in TLS; 0 takes a free one.", low=0, high=65535
    )
