"""Addresses of brokers and of their admin interface, as options give them. Pure."""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from anabranch.errors import ConfigError

_WEB_PORT: Final = 8080
_BROKERS: Final = ("pulsar", "pulsar+ssl")
_WEB: Final = ("http", "https")
_NOT_IN_HOSTS: Final = re.compile(r"[\s\\^|<>\[\]%]")
_BRACKETED: Final = re.compile(r"\[[^\[\]]*\](:\d*)?")
_BARE_IPV6: Final = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")


def service_url(text: str) -> str:
    """Check where brokers are: one, or several with commas between; empty if nobody said.

    Raises:
        ConfigError: if it is no such address.
    """
    text = text.strip()
    scheme, separator, hosts = text.partition("://")
    wanted = "pulsar://host:port or pulsar+ssl://host:port, with more of host:port after commas,"
    for host in hosts.split(",") if text else ():
        parts = _split(f"{scheme}{separator}{host}", text, _BROKERS, wanted)
        if parts.path not in ("", "/"):
            raise ConfigError(f"{wanted} is wanted and nothing else, not {text!r}")
    return text


def admin_url(text: str) -> str:
    """Check where the admin interface is; empty if nobody said.

    Raises:
        ConfigError: if it is no such address.
    """
    text = text.strip()
    if text:
        _split(text, text, _WEB, "http://host:port or https://host:port")
    return text


def admin_beside(brokers: str) -> str:
    """The admin interface of the first of some brokers, where it usually is."""
    host = urlsplit(brokers.partition(",")[0]).hostname or ""
    return f"http://{f'[{host}]' if ':' in host else host}:{_WEB_PORT}"


def _split(url: str, text: str, schemes: Sequence[str], wanted: str) -> SplitResult:
    authority = re.split("[/?#]", url.partition("://")[2])[0]
    if "@" in authority:
        # Not shown: what stands before it may be a password.
        raise ConfigError(f"{wanted} is wanted, without the name of a user")
    if _BARE_IPV6.fullmatch(authority):
        raise ConfigError(
            f"{wanted} is wanted, not {text!r}: an IPv6 address stands in brackets, as in [::1]:80"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if authority.startswith("["):
            ipaddress.IPv6Address(host)
    except ValueError as error:
        raise ConfigError(f"{wanted} is wanted, not {text!r}: {error}") from None
    if authority.startswith("["):
        is_host = _BRACKETED.fullmatch(authority) is not None
    else:
        is_host = bool(host) and not _NOT_IN_HOSTS.search(host)
    if parts.scheme not in schemes or port == 0 or not is_host:
        raise ConfigError(f"{wanted} is wanted, not {text!r}")
    if parts.query or parts.fragment:
        raise ConfigError(f"{wanted} is wanted and nothing else, not {text!r}")
    return parts
