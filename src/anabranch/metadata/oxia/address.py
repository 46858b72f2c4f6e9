"""The URL of a store: `oxia://host:port[/namespace]`. Pure."""

from typing import Final, NamedTuple

from anabranch.errors import ConfigError, refuse_user_info

SCHEME: Final = "oxia"
DEFAULT_PORT: Final = 6648
DEFAULT_NAMESPACE: Final = "default"


class OxiaAddress(NamedTuple):
    """A server to ask for the shards of a namespace."""

    server: str
    """host:port"""
    namespace: str


def parse_address(url: str) -> OxiaAddress:
    """The server and namespace that a URL names.

    Raises:
        ConfigError: saying what is wrong with it.
    """
    rest = url.removeprefix(f"{SCHEME}://")
    server, slash, namespace = rest.partition("/")
    refuse_user_info(url, server)
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    if (
        rest == url
        or not host
        or "," in host
        or not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536)
        or any(mark in namespace for mark in "/?#")
        or (slash and not namespace)
    ):
        raise ConfigError(f"{url!r} is not {SCHEME}://HOST:PORT[/NAMESPACE]")
    return OxiaAddress(f"{host}:{port}", namespace or DEFAULT_NAMESPACE)
