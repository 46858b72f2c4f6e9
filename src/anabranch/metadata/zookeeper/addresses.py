"""The URL of a store on ZooKeeper: `zk:host:port[,host:port…][/chroot]`, as in Pulsar. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from anabranch import limits
from anabranch.errors import ConfigError, InvalidPath, refuse_user_info
from anabranch.metadata.paths import ROOT, check_path
from anabranch.runtime.network import Tls

SCHEME: Final = "zk"
DEFAULT_PORT: Final = 2181
_REQUEST_LIMIT: Final = "jute.maxbuffer"
_TLS_OPTIONS: Final = ("tls.ca", "tls.certificate", "tls.key")
"""Files; the first alone turns TLS on, and if it is empty the machine's authorities are used."""
_NEW_NODES: Final = "acl"
_READ_ACCESS: Final = "export.acl"
_OPTIONS: Final = (_REQUEST_LIMIT, *_TLS_OPTIONS, _NEW_NODES, _READ_ACCESS)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """What a URL says."""

    servers: tuple[Address, ...]
    chroot: str
    """Below which node of ZooKeeper the store lives; "/" for all of it."""
    request_bytes_max: int
    """What the servers take; set there by the property `jute.maxbuffer`."""
    tls: Tls | None = None
    closed: bool = False
    """Whether new nodes are for those alone who have our identity."""
    exports_access: bool = True
    """Whether an export asks for access rights, with one more request per node."""


def parse_ensemble(url: str) -> Ensemble:
    """The servers and the place that a URL names.

    Raises:
        ConfigError: saying what is wrong with it.
    """
    rest = url.removeprefix(f"{SCHEME}:").removeprefix("//")
    rest, _, query = rest.partition("?")
    names, slash, place = rest.partition("/")
    servers = tuple(_parse(url, part) for part in names.split(","))
    if not url.startswith(f"{SCHEME}:") or len(set(servers)) != len(servers):
        raise ConfigError(
            f"{url!r} is not {SCHEME}:HOST:PORT[,HOST:PORT...][/CHROOT] with each server once"
        )
    try:
        chroot = check_path(slash + place or ROOT)
    except InvalidPath as error:
        raise ConfigError(f"the chroot in {url!r} is none: {error}") from None
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(
                f"unknown option {name!r} in {url!r}: known are {', '.join(_OPTIONS)}"
            )
    return Ensemble(
        servers,
        chroot,
        _request_limit(url, options),
        _tls(url, options),
        closed=_choice(url, options, _NEW_NODES, "open", "creator") == "creator",
        exports_access=_choice(url, options, _READ_ACCESS, "read", "skip") == "read",
    )


def _choice(url: str, options: dict[str, str], name: str, usual: str, other: str) -> str:
    value = options.get(name, usual)
    if value not in (usual, other):
        raise ConfigError(f"{name} in {url!r} is {usual!r} or {other!r}, not {value!r}")
    return value


def _request_limit(url: str, options: dict[str, str]) -> int:
    value = options.get(_REQUEST_LIMIT)
    if value is None:
        return limits.ZOOKEEPER_REQUEST_BYTES
    if not (value.isascii() and value.isdigit() and len(value) < 20) or not (
        limits.ZOOKEEPER_REQUEST_BYTES_MIN <= int(value) <= limits.ZOOKEEPER_REQUEST_BYTES_MAX
    ):
        raise ConfigError(
            f"{_REQUEST_LIMIT} in {url!r} is a number of bytes from "
            f"{limits.ZOOKEEPER_REQUEST_BYTES_MIN} to {limits.ZOOKEEPER_REQUEST_BYTES_MAX}"
        )
    return int(value)


def _tls(url: str, options: dict[str, str]) -> Tls | None:
    authority, certificate, key = (options.get(name) for name in _TLS_OPTIONS)
    if authority is None:
        if certificate is not None or key is not None:
            raise ConfigError(f"{url!r} names a certificate but not {_TLS_OPTIONS[0]}")
        return None
    if certificate == "" or key == "":
        raise ConfigError(f"an option of TLS in {url!r} names no file")
    return Tls(authority or None, certificate, key)


def _parse(url: str, part: str) -> Address:
    refuse_user_info(url, part)
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not host or not is_number or not 0 < int(port) <= 65535:
        raise ConfigError(f"{part!r} in {url!r} is not HOST:PORT")
    return Address(host, int(port))
