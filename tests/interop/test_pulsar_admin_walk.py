"""A walk with `pulsar-admin` of Pulsar 4.0.8 through our server: one process, many commands."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pulsar
import pytest

from anabranch.testing.servers import anabranch_standalone
from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("AdminCommands.java")
TOKENS = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
SECRET = b"a shared secret of more than 32 bytes"
X, P = "persistent://acme/n/x", "persistent://acme/n/p"


def token(role: str) -> str:
    return jwt.encode({"sub": role}, SECRET, algorithm="HS256")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    key = tmp_path_factory.mktemp("keys") / "secret"
    key.write_bytes(SECRET)
    key.chmod(0o600)
    options = ("--authentication", "token", "--token-secret-key", str(key))
    with anabranch_standalone(options=(*options, "--superuser-roles", "root")) as running:
        yield running


def admin(server: Standalone, commands: list[str]) -> list[tuple[bool, str]]:
    """Whether each command succeeded, and what it printed."""
    java = find_java()
    done = subprocess.run(
        [
            str(java.program),
            *java.flags,
            "-XX:TieredStopAtLevel=1",
            *("-cp", f"{locate('pulsar-tools')}/lib/*"),
            str(PROGRAM),
            *(server.web_url, TOKENS, f"token:{token('root')}"),
        ],
        input="".join(command.replace(" ", "\t") + "\n" for command in commands),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    found = done.stdout.split("### ")[1:]
    assert len(found) == len(commands), done.stdout + done.stderr
    results = []
    for part in found:
        head, _, text = part.partition("\n")
        results.append((head.startswith("yes "), text.strip()))
    return results


def document(printed: tuple[bool, str]) -> dict[str, Any]:
    """The JSON that a command printed; its client may have logged before it."""
    found: dict[str, Any] = json.loads(printed[1][printed[1].index("{") :])
    return found


def publish(server: Standalone) -> None:
    client = pulsar.Client(server.service_url, pulsar.AuthenticationToken(token("root")))
    try:
        producer = client.create_producer(X)
        for n in range(3):
            producer.send(b"m%d" % n)
    finally:
        client.close()


@pytest.mark.goal("core.B16", part="pulsar-admin")
@pytest.mark.goal("core.B17", part="java client")
@pytest.mark.goal("core.B17", part="python client")
@pytest.mark.goal("core.B13", part="peek")
def test_pulsar_admin_walks_through(server: Standalone) -> None:
    before = [
        "clusters list",
        "brokers healthcheck",
        "tenants create acme --admin-roles a --allowed-clusters standalone",
        "tenants get acme",
        "tenants create acme",
        "namespaces create acme/n",
        "namespaces set-retention acme/n --time 10m --size 5M",
        "namespaces get-retention acme/n",
        "namespaces grant-permission acme/n --role r --actions produce,consume",
        "namespaces permissions acme/n",
        "topics create-partitioned-topic persistent://acme/n/p --partitions 2",
        f"topics create {X}",
        f"topics create-subscription {X} --subscription s --messageId earliest",
        "topics list acme/n",
    ]
    seen = dict(zip(before, admin(server, before), strict=True))
    assert seen["clusters list"] == (True, "standalone")
    assert seen["brokers healthcheck"] == (True, "ok")
    tenant = document(seen["tenants get acme"])
    assert tenant == {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
    refused, words = seen["tenants create acme"]
    assert not refused
    assert "Tenant already exist" in words
    retention = document(seen["namespaces get-retention acme/n"])
    assert retention == {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}
    assert "produce" in seen["namespaces permissions acme/n"][1]
    listed = [line for line in seen["topics list acme/n"][1].splitlines() if "acme/n/" in line]
    assert sorted(listed) == [f"{P}-partition-0", f"{P}-partition-1", X]
    assert [command for command, (done, _) in seen.items() if not done] == ["tenants create acme"]

    publish(server)
    after = [
        f"topics stats {X}",
        f"topics stats-internal {X}",
        f"topics peek-messages {X} --subscription s --count 2",
        f"topics skip {X} --subscription s --count 1",
        f"topics clear-backlog {X} --subscription s",
        f"topics unload {X}",
        f"topics unsubscribe {X} --subscription s",
        f"topics terminate {X}",
        f"topics delete {X}",
        f"topics delete-partitioned-topic {P}",
        "namespaces delete acme/n",
        "tenants delete acme",
    ]
    seen = dict(zip(after, admin(server, after), strict=True))
    assert [(command, words) for command, (done, words) in seen.items() if not done] == []
    stats = document(seen[f"topics stats {X}"])
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3
    internal = document(seen[f"topics stats-internal {X}"])
    assert internal["numberOfEntries"] == 3
    peeked = seen[f"topics peek-messages {X} --subscription s --count 2"][1]
    assert "6d 30" in peeked
    assert "6d 31" in peeked


@pytest.mark.goal("core.B17", part="python client")
def test_the_stock_client_needs_a_token(server: Standalone) -> None:
    topic = f"persistent://public/default/guarded-{time.monotonic_ns()}"
    publish_as = pulsar.AuthenticationToken(token("stranger"))
    for authentication in (None, publish_as):
        client = pulsar.Client(server.service_url, authentication, operation_timeout_seconds=3)
        try:
            with pytest.raises(pulsar.PulsarException):
                client.create_producer(topic)
        finally:
            client.close()
