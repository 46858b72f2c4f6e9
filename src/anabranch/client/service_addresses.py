"""Where a client finds its cluster: one broker or several, asked in turn when one is gone."""

from typing import Final
from urllib.parse import urlsplit

from anabranch.errors import ConfigError

Address = tuple[str, int]
_SCHEME: Final = "pulsar"
_PORT: Final = 6650


def parse_service_url(url: str) -> Address:
    """Return host and port of a `pulsar://host:port` address.

    Raises:
        ConfigError: if it is none.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError as error:
        raise ConfigError(f"service URL {url!r}: {error}") from error
    if parts.scheme != _SCHEME or not parts.hostname:
        raise ConfigError(f"service URL must be pulsar://host:port, not {url!r}")
    return parts.hostname, port


class ServiceAddresses:
    """The brokers that a service URL names, `pulsar://host:port,host:port`."""

    def __init__(self, url: str) -> None:
        """Read a service URL.

        Raises:
            ConfigError: if it is none.
        """
        scheme, separator, hosts = url.partition("://")
        self._all = [parse_service_url(f"{scheme}{separator}{host}") for host in hosts.split(",")]
        self._turn = 0

    @property
    def present(self) -> Address:
        """The broker whose turn it is."""
        return self._all[self._turn]

    def next(self) -> None:
        """The present one did not answer: it is the turn of the next."""
        self._turn = (self._turn + 1) % len(self._all)
