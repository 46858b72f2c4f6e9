"""A walk with `pulsar-admin` of Pulsar 4.0.8: one process, many commands.

Through our standalone server, through three brokers with bookies on each store, of which one is
asked for everything, whoever has the topics, and through a real Pulsar: what is served here is done
and refused there.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jwt
import pulsar
import pytest
from pulsar_admin_commands import (
    ABSENT,
    AFTER,
    BEFORE,
    IDS,
    NAMESPACE_CHOICES,
    NAMESPACE_POLICIES,
    NOT_SERVED,
    NOW_AND_THEN_BY_PULSAR,
    OLDER_NAMES,
    REFUSED,
    REFUSED_BY_PULSAR_ALONE,
    REFUSED_HERE_ALONE,
    TAKEN_BACK,
    TOPIC_POLICIES,
    P,
    X,
    policies,
)

from anabranch.testing.servers import (
    anabranch_standalone,
    bookkeeper,
    oxia,
    pulsar_standalone,
    zookeeper,
)
from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.our_brokers import init_cluster, our_brokers
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("AdminCommands.java")
TOKENS = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
CLUSTER = "standalone"
"""Also of the brokers: the commands name it."""
SECRET = b"a shared secret of more than 32 bytes"


def token(role: str) -> str:
    return jwt.encode({"sub": role}, SECRET, algorithm="HS256")


class Served(NamedTuple):
    """Where the tools and clients are sent."""

    service_url: str
    web_url: str
    is_pulsar: bool = False


def pulsar_settings(key: Path) -> dict[str, str]:
    """The same tokens and superuser for a real Pulsar."""
    own = {"authenticationPlugin": TOKENS, "authenticationParameters": f"token:{token('root')}"}
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": PROVIDER,
        "tokenSecretKey": key.as_uri(),
        "superUserRoles": "root",
    } | {f"brokerClient{name[0].upper()}{name[1:]}": value for name, value in own.items()}


def asks_for_a_token(server: Standalone) -> bool:
    """Whether a Pulsar that tells nobody else how it is says that it is well."""
    connection = HTTPConnection("127.0.0.1", server.place.web_port, timeout=10)
    try:
        connection.request("GET", "/admin/v2/brokers/health", headers=bearer("root"))
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(role)}"}


@pytest.fixture(scope="module", params=["standalone", "zookeeper", "oxia", "pulsar"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    key = tmp_path_factory.mktemp("keys") / "secret"
    key.write_bytes(SECRET)
    key.chmod(0o600)
    tokens = ("--authentication", "token", "--token-secret-key", str(key))
    options = (*tokens, "--superuser-roles", "root")
    if request.param == "standalone":
        with anabranch_standalone(options=options) as running:
            yield Served(running.service_url, running.web_url)
        return
    if request.param == "pulsar":
        with (
            patch.object(Standalone, "healthy", asks_for_a_token),
            pulsar_standalone(settings=pulsar_settings(key)) as real,
        ):
            yield Served(real.service_url, real.web_url, is_pulsar=True)
        return
    with {"zookeeper": zookeeper, "oxia": oxia}[request.param]() as metadata:
        init_cluster(metadata.url, cluster=CLUSTER)
        with (
            bookkeeper(metadata.url, 3),
            our_brokers(metadata.url, cluster=CLUSTER, options=options) as brokers,
        ):
            yield Served(brokers.service_url, f"http://127.0.0.1:{brokers.web_ports[0]}")


def admin(server: Served, commands: list[str]) -> list[tuple[bool, str]]:
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


def publish(server: Served) -> int:
    """Publish three messages; return the ledger they are in."""
    client = pulsar.Client(server.service_url, pulsar.AuthenticationToken(token("root")))
    try:
        producer = client.create_producer(X)
        ids = [producer.send(b"m%d" % n, properties={"Its place": f"no. {n}"}) for n in range(3)]
        return int(ids[0].ledger_id())
    finally:
        client.close()


def walk(server: Served, commands: list[str]) -> dict[str, tuple[bool, str]]:
    """What every command printed; all are done, but for those that Pulsar refuses too."""
    seen = dict(zip(commands, admin(server, commands), strict=True))
    wrong = {command: words for command, (done, words) in seen.items() if not done}
    wanted = REFUSED
    if server.is_pulsar:
        wanted = REFUSED - REFUSED_HERE_ALONE | REFUSED_BY_PULSAR_ALONE
        wanted -= NOW_AND_THEN_BY_PULSAR - wrong.keys()
    assert wrong.keys() == wanted & seen.keys(), wrong
    return seen


@pytest.mark.goal("core.B16", part="pulsar-admin")
@pytest.mark.goal("core.B17", part="java client")
@pytest.mark.goal("core.B17", part="python client")
@pytest.mark.goal("core.B13", part="peek")
def test_pulsar_admin_walks_through(server: Served, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "STRING", "schema": "", "properties": {}}))
    typed = "persistent://acme/n/typed"
    each = ("set", "get", "remove")
    not_served = [] if server.is_pulsar else NOT_SERVED
    seen = walk(
        server,
        [
            *BEFORE,
            *policies("namespaces", "acme/n", NAMESPACE_POLICIES, each),
            *policies("namespaces", "acme/n", NAMESPACE_CHOICES, ("set", "get")),
            *policies("topicPolicies", X, TOPIC_POLICIES, each),
            *(*OLDER_NAMES, *not_served, *TAKEN_BACK, *ABSENT),
            f"schemas upload {typed} --filename {schema}",
            f"schemas compatibility {typed} --filename {schema}",
            *(f"schemas get {typed}", f"schemas metadata {typed}", f"schemas delete {typed}"),
            f"brokers namespaces standalone --url {server.web_url.removeprefix('http://')}",
        ],
    )
    for command in not_served:
        words = seen[command][1]
        assert "is not supported by this broker" in words or "are not split" in words, words
    assert seen["clusters list"] == (True, "standalone")
    assert seen["brokers healthcheck"] == (True, "ok")
    tenant = document(seen["tenants get acme"])
    assert tenant == {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
    retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}
    assert document(seen["namespaces get-retention acme/n"]) == retention
    assert document(seen[f"topicPolicies get-retention {X}"]) == retention
    assert seen[f"topicPolicies get-max-producers {X}"][1] == "5"
    assert "produce" in seen["namespaces permissions acme/n"][1]
    listed = [line for line in seen["topics list acme/n"][1].splitlines() if "acme/n/" in line]
    assert sorted(listed) == [*(f"{P}-partition-{n}" for n in range(3)), X]

    ledger = publish(server)
    bundle = seen[f"topics bundle-range {X}"][1].splitlines()[-1].strip().strip('"')
    ids = [each.replace("LEDGER", str(ledger)).replace("BUNDLE", bundle) for each in IDS]
    seen = walk(server, [*ids, *AFTER])
    assert "6d 30" in seen[ids[0]][1]
    assert document(seen[ids[1]])["entries"] == 3
    assert X in seen[ids[4]][1]
    stats = document(seen[f"topics stats {X}"])
    assert (stats["subscriptions"]["s"]["msgBacklog"], stats["msgInCounter"]) == (2, 3)
    internal = document(seen[f"topics stats-internal {X}"])
    assert internal["numberOfEntries"] == 3
    peeked = seen[f"topics peek-messages {X} --subscription s --count 2"][1]
    assert "6d 31" in peeked
    assert "6d 32" in peeked
    assert "Its place" in peeked
    assert "no. 2" in peeked
    assert seen[f"topics subscriptions {X}"][1] == ""


@pytest.mark.goal("core.B17", part="python client")
def test_the_stock_client_needs_a_token(server: Served) -> None:
    topic = f"persistent://public/default/guarded-{time.monotonic_ns()}"
    publish_as = pulsar.AuthenticationToken(token("stranger"))
    for authentication in (None, publish_as):
        client = pulsar.Client(server.service_url, authentication, operation_timeout_seconds=3)
        try:
            with pytest.raises(pulsar.PulsarException):
                client.create_producer(topic)
        finally:
            client.close()
