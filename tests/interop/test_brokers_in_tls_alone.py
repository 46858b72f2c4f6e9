"""Three brokers that speak TLS alone and know everybody by certificate, with the stock client.

Lookups, redirects and the hint of an owner that gives a bundle up name TLS addresses only; the
plain ports are not there.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from test_brokers_of_a_cluster import Publishing, bundle_of

from anabranch.testing.certificates import Authority
from anabranch.testing.planted import child_command
from anabranch.testing.servers import Member, bookkeeper, free_port, pulsar_client, zookeeper
from anabranch.testing.servers.member import group
from anabranch.testing.servers.our_brokers import LEDGERS_URL, init_cluster

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
BROKERS = 3
TOPIC = "persistent://public/default/sealed"
LOOKUP = "/lookup/v2/topic/persistent/public/default/sealed"
STATS = "/admin/v2/persistent/public/default/sealed/stats"


@dataclass(frozen=True)
class Ports:
    """Of one broker; nothing may listen on the plain ones."""

    plain: int
    plain_web: int
    tls: int
    web: int


@dataclass(frozen=True)
class Sealed:
    """Running brokers, and what a client needs for them."""

    members: tuple[Member, ...]
    ports: tuple[Ports, ...]
    context: ssl.SSLContext
    trust: Path
    shown: tuple[Path, Path]
    """Certificate and key of a superuser."""

    @property
    def service_url(self) -> str:
        return "pulsar+ssl://" + ",".join(f"127.0.0.1:{each.tls}" for each in self.ports)

    def ask(self, web_port: int, method: str, path: str) -> tuple[int, str, bytes]:
        """Status, where to ask instead, and body."""
        connection = HTTPSConnection("127.0.0.1", web_port, timeout=15, context=self.context)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Location", ""), answer.read()
        finally:
            connection.close()

    def owner(self) -> int:
        """The index of who has the topic, as lookups say; they name no other addresses."""
        found = set()
        for ports in self.ports:
            status, _, body = self.ask(ports.web, "GET", LOOKUP)
            assert status == 200, body
            said = json.loads(body)
            assert not said.get("brokerUrl"), said
            assert not said.get("httpUrl"), said
            assert said["brokerUrlTls"].startswith("pulsar+ssl://127.0.0.1:")
            assert said["httpUrlTls"].startswith("https://127.0.0.1:")
            found.add(int(said["brokerUrlTls"].rpartition(":")[2]))
        (port,) = found
        return [each.tls for each in self.ports].index(port)

    def options(self) -> dict[str, Any]:
        """What the stock client is given."""
        return {
            "authentication": pulsar.AuthenticationTLS(*map(str, self.shown)),
            "tls_trust_certs_file_path": str(self.trust),
        }


def healthy(context: ssl.SSLContext, web_port: int) -> bool:
    connection = HTTPSConnection("127.0.0.1", web_port, timeout=15, context=context)
    try:
        connection.request("GET", "/admin/v2/brokers/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def sealed_brokers(metadata_url: str, folder: Path) -> Iterator[Sealed]:
    authority = Authority(folder)
    certificate, key = authority.sign("broker", "broker")
    shown = authority.sign("root", "root", rsa.generate_private_key(65537, 2048))
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(*shown)
    every = tuple(Ports(*(free_port() for _ in range(4))) for _ in range(BROKERS))
    members: list[Member] = []

    def build(root: Path) -> list[Member]:
        for number, ports in enumerate(every, start=1):
            command = child_command(
                *("anabranch", "broker", "--cluster", "test", "--no-plain-ports"),
                *("--port", str(ports.plain), "--web-port", str(ports.plain_web)),
                *("--tls-port", str(ports.tls), "--web-tls-port", str(ports.web)),
                *("--tls-certificate", str(certificate), "--tls-key", str(key)),
                *("--tls-trust", str(authority.file), "--tls-require-client-certificate"),
                *("--authentication", "tls", "--superuser-roles", "root"),
                *("--proxy-roles", "broker"),
                *("--metadata-url", metadata_url, "--ledgers-url", LEDGERS_URL),
            )
            ready = partial(healthy, context, ports.web)
            name = f"broker-{number}"
            members.append(Member(name, command, folder=root / name, ready=ready))
        return members

    with group("brokers", None, build):
        yield Sealed(tuple(members), every, context, authority.file, shown)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    with zookeeper(memory=("-Xmx256m",)) as metadata:
        init_cluster(metadata.url)
        with (
            bookkeeper(metadata.url, 3),
            sealed_brokers(metadata.url, tmp_path_factory.mktemp("sealed")) as running,
        ):
            yield running


@contextmanager
def publishing(brokers: Sealed) -> Iterator[Publishing]:
    with pulsar_client(brokers.service_url, **brokers.options()) as client:
        consumer = client.subscribe(TOPIC, "s")
        producer = client.create_producer(TOPIC, block_if_queue_full=True)
        load = Publishing(producer, consumer)
        thread = threading.Thread(target=load.run, daemon=True)
        thread.start()
        try:
            load.wait_for_more()
            yield load
        finally:
            load._over.set()
            thread.join()


@pytest.mark.goal("core.B14", part="processes", broken_by="clients_leave_before_the_lock")
@pytest.mark.goal("core.B19", part="without plain ports", broken_by="plain_ports_stay_open")
@pytest.mark.goal("core.B16", part="redirects")
def test_topics_go_from_broker_to_broker_in_tls_alone(brokers: Sealed) -> None:
    for ports in brokers.ports:
        for port in (ports.plain, ports.plain_web):
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0, "a plain port is open"
    with publishing(brokers) as load:
        first = brokers.owner()
        other = (first + 1) % BROKERS
        status, there, _ = brokers.ask(brokers.ports[other].web, "GET", STATS)
        assert status == 307
        where = urlsplit(there)
        assert (where.scheme, where.port) == ("https", brokers.ports[first].web)
        assert brokers.ask(where.port or 0, "GET", f"{where.path}?{where.query}")[0] == 200
        bundle = bundle_of(TOPIC)
        path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.range_text}/unload"
        status, _, body = brokers.ask(brokers.ports[first].web, "PUT", path)
        assert status == 204, body
        load.wait_for_more()
        second = brokers.owner()
        assert second != first
        told = brokers.members[first].log.read_text()
        assert f"pulsar+ssl://127.0.0.1:{brokers.ports[second].tls}" in told
        brokers.members[second].kill()
        load.wait_for_more()
        load.finish()
    brokers.members[second].start()


def answer_without_certificate(connection: HTTPSConnection) -> int:
    connection.request("GET", STATS)
    return connection.getresponse().status


@pytest.mark.goal("core.B17", part="mtls")
def test_who_shows_no_certificate_gets_no_connection(brokers: Sealed) -> None:
    stranger = {"tls_trust_certs_file_path": str(brokers.trust), "operation_timeout_seconds": 3}
    with (
        pulsar_client(brokers.service_url, **stranger) as client,
        pytest.raises(pulsar.PulsarException),
    ):
        client.create_producer(TOPIC)
    blind = ssl.create_default_context(cafile=brokers.trust)
    connection = HTTPSConnection("127.0.0.1", brokers.ports[0].web, timeout=15, context=blind)
    try:
        with pytest.raises((OSError, HTTPException)):
            answer_without_certificate(connection)
    finally:
        connection.close()
