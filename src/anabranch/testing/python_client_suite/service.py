"""Our standalone server, set up as the suite's own script sets up Pulsar.

The suite names its ports: 6650, 6651, 8080 and 8443 must be free, or nothing is started.
"""

import json
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import jwt

from anabranch.testing.planted import child_command
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.limits import SERVER_PROBE_S_MAX
from anabranch.testing.servers.member import Member, group
from anabranch.testing.servers.standalone import healthy

PORT: Final = 6650
TLS_PORT: Final = 6651
WEB_PORT: Final = 8080
WEB_TLS_PORT: Final = 8443
SUPERUSERS: Final = ("localhost", "superUser", "admin")
TOKEN_ROLE: Final = "token-principal"
OPEN_NAMESPACES: Final = ("public/default", "public/default-2")
GUARDED_NAMESPACE: Final = "private/auth"
MESSAGE_BYTES_MAX: Final = 1_024_000


def _check_ports() -> None:
    for port in (PORT, TLS_PORT, WEB_PORT, WEB_TLS_PORT):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise ServerFailed(
                    f"port {port}, which the suite's tests name, is not free: {error.strerror}"
                ) from None


def _call(method: str, path: str, token: str, body: object) -> int:
    connection = HTTPConnection("127.0.0.1", WEB_PORT, timeout=SERVER_PROBE_S_MAX)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, f"/admin/v2/{path}", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    if answer.status >= 300 and answer.status != 409:
        raise ServerFailed(f"{method} {path} was answered with {answer.status}: {text}")
    return answer.status


def _put(path: str, token: str, body: object) -> None:
    """Create, or change what is there already."""
    if _call("PUT", path, token, body) == 409:
        _call("POST", path, token, body)


def _open_up(token: str) -> None:
    tenant = {"allowedClusters": ["standalone"]}
    _put("tenants/public", token, {**tenant, "adminRoles": ["anonymous"]})
    _put("tenants/private", token, {**tenant, "adminRoles": []})
    roles = dict.fromkeys(OPEN_NAMESPACES, "anonymous") | {GUARDED_NAMESPACE: TOKEN_ROLE}
    for namespace, role in roles.items():
        _call("PUT", f"namespaces/{namespace}", token, {"replication_clusters": ["standalone"]})
        granted = ["produce", "consume"]
        _call("POST", f"namespaces/{namespace}/permissions/{role}", token, granted)


def _options(conf: Path, key: Path) -> list[str]:
    chosen: Mapping[str, object] = {
        "port": PORT,
        "web-port": WEB_PORT,
        "tls-port": TLS_PORT,
        "web-tls-port": WEB_TLS_PORT,
        "advertised-address": "localhost",
        "max-message-bytes": MESSAGE_BYTES_MAX,
        "authentication": "tls,token,basic",
        "superuser-roles": ",".join(SUPERUSERS),
        "anonymous-role": "anonymous",
        "token-secret-key": key,
        "basic-users": conf / ".htpasswd",
        "tls-certificate": conf / "broker-cert.pem",
        "tls-key": conf / "broker-key.pem",
        "tls-trust": conf / "cacert.pem",
    }
    return [word for name, value in chosen.items() for word in (f"--{name}", str(value))]


@contextmanager
def service(checkout: Path) -> Iterator[Path]:
    """Run the server for as long as the body runs; gives its log.

    The token that the tests read is written into the checkout, as the suite's script does.

    Raises:
        ServerFailed: if a port is taken, or the server does not become ready.
    """
    _check_ports()
    tests = checkout / "tests"
    members: list[Member] = []
    secret = secrets.token_bytes(32)

    def build(root: Path) -> list[Member]:
        key = root / "secret.key"
        key.touch(mode=0o600)
        key.write_bytes(secret)
        command = child_command("anabranch", "standalone", "--data", str(root / "data"))
        members.append(
            Member(
                "standalone",
                [*command, *_options(tests / "test-conf", key)],
                folder=root,
                ready=partial(healthy, WEB_PORT),
            )
        )
        return members

    with group("suite", None, build):
        _open_up(jwt.encode({"sub": "superUser"}, secret, algorithm="HS256"))
        token = jwt.encode({"sub": TOKEN_ROLE}, secret, algorithm="HS256")
        (tests / ".test-token.txt").write_text(token)
        yield members[0].log
