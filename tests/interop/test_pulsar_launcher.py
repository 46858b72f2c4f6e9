"""The real Pulsar can be started, used by stock clients and tools, and is gone afterwards."""

import os
import socket
import time
from pathlib import Path

import pulsar
import pytest

from anabranch.testing.servers import (
    ServerFailed,
    Standalone,
    pulsar_admin,
    pulsar_client,
    pulsar_perf,
    pulsar_standalone,
)

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

TOPIC = "persistent://public/default/launcher"


def assert_gone(server: Standalone) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
    for port in (server.place.port, server.place.web_port):
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", port))


def produce_and_consume(server: Standalone, count: int) -> list[bytes]:
    with pulsar_client(server.service_url) as client:
        consumer = client.subscribe(
            TOPIC, "launcher", initial_position=pulsar.InitialPosition.Earliest
        )
        producer = client.create_producer(TOPIC)
        for index in range(count):
            producer.send_async(b"%d" % index, None)
        producer.flush()
        received = []
        for _ in range(count):
            message = consumer.receive(timeout_millis=20_000)
            consumer.acknowledge(message)
            received.append(message.data())
        return received


def test_clients_and_tools_use_it_and_it_is_gone_afterwards() -> None:
    with pulsar_standalone() as server:
        folder = server.place.folder
        assert produce_and_consume(server, 100) == [b"%d" % index for index in range(100)]

        target = ["-u", server.service_url, "-r", "500", "-s", "1024", "-time", "4", TOPIC]
        result = pulsar_perf(["produce", *target], timeout_s=90)
        assert 500 <= result.messages <= 4000
        assert result.latency is not None
        assert 0 < result.latency.p50_ms <= result.latency.p99_ms <= result.latency.max_ms

        assert TOPIC in pulsar_admin(["topics", "list", "public/default"], web_url=server.web_url)
    assert_gone(server)
    assert not folder.exists()


def test_data_outlives_a_kill(tmp_path: Path) -> None:
    with pulsar_standalone(folder=tmp_path) as server:
        with pulsar_client(server.service_url) as client:
            client.create_producer(TOPIC).send(b"kept")
        server.kill()
        assert_gone(server)
        server.restart()
        with pulsar_client(server.service_url) as client:
            reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
            assert reader.read_next(timeout_millis=20_000).data() == b"kept"
    assert_gone(server)


def test_a_failing_body_ends_it(tmp_path: Path) -> None:
    seen: list[Standalone] = []

    def fail() -> None:
        with pulsar_standalone(folder=tmp_path) as server:
            seen.append(server)
            raise LookupError("of the body")

    with pytest.raises(LookupError, match="of the body"):
        fail()
    assert_gone(seen[0])


def test_a_server_that_refuses_its_settings_shows_why(tmp_path: Path) -> None:
    begun = time.monotonic()
    settings = {"allowLoopback": "false"}
    with (
        pytest.raises(ServerFailed, match="loopback address"),
        pulsar_standalone(folder=tmp_path, settings=settings),
    ):
        pytest.fail("the body must not run")
    assert time.monotonic() - begun < 60, "an early end must be noticed, not waited out"
