"""The URL of a served store: `anabranch://host:port[,host:port…]`. Pure."""

from typing import Final, NamedTuple

from anabranch.errors import ConfigError, refuse_user_info

SCHEME: Final = "anabranch"
DEFAULT_PORT: Final = 6660


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(url: str) -> tuple[Address, ...]:
    """The servers that a URL names, in order.

    Raises:
        ConfigError: saying what is wrong with it.
    """
    rest = url.removeprefix(f"{SCHEME}://")
    found = tuple(_parse(url, part) for part in rest.split(","))
    if rest == url or len(set(found)) != len(found):
        raise ConfigError(
            f"{url!r} is not {SCHEME}://HOST:PORT[,HOST:PORT...] with each server once"
        )
    return found


def _parse(url: str, part: str) -> Address:
    refuse_user_info(url, part)
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or "/" in host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{part!r} in {url!r} is not HOST:PORT")
    return Address(host, int(port))
