"""Whether anybody listens at the address of a server, found out without the client library."""

from socket import create_connection
from typing import Final

from anabranch.errors import ConfigError, Unreachable

_PROBE_S: Final = 3.0
_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}


def require_listener(url: str) -> None:
    """Find out within seconds whether anybody listens; the library would try for long.

    Raises:
        ConfigError: if that is no address.
        Unreachable: if nobody does.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _PORTS or not rest:
        raise ConfigError(f"--url {url!r} is not an address such as pulsar://127.0.0.1:6650")
    for address in rest.split("/")[0].split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        if port and not port.isdecimal():
            raise ConfigError(f"--url {url!r}: {port!r} is not a port number")
        try:
            create_connection((host.strip("[]"), int(port or _PORTS[scheme])), _PROBE_S).close()
        except OSError:
            continue
        return
    raise Unreachable(f"nothing answers at {url}: is the server running? (make run)")
