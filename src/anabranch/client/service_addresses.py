"""Where a client finds its cluster: one broker or several, asked in turn when one is gone."""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from anabranch.errors import ConfigError

_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}


class Address(NamedTuple):
    """Where a broker is reached."""

    host: str
    port: int
    secure: bool = False
    """Whether TLS is spoken there."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_service_url(url: str) -> Address:
    """Return where a `pulsar://host:port` or `pulsar+ssl://host:port` leads to.

    Raises:
        ConfigError: if it is no such address.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"service URL {url!r}: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(
            f"service URL must be pulsar://host:port or pulsar+ssl://host:port, not {url!r}"
        )
    return Address(parts.hostname, port or _PORTS[parts.scheme], parts.scheme != "pulsar")


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

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self._all[0].secure

    def next(self) -> None:
        """The present one did not answer: it is the turn of the next."""
        self._turn = (self._turn + 1) % len(self._all)
