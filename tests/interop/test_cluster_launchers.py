"""The real servers can be started and hurt, and are gone afterwards."""

import os
import time

import pytest

from anabranch.testing.servers import (
    Member,
    bookkeeper,
    free_port,
    kafka,
    oxia,
    pulsar_brokers,
    pulsar_client,
    set_up_cluster,
    zookeeper,
)
from anabranch.testing.servers.member import port_answers

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]


def assert_gone(*members: Member) -> None:
    for member in members:
        with pytest.raises(ProcessLookupError):
            os.kill(member.pid, 0)
        assert not member.log.exists(), "nothing is left of a run that went well"


def test_zookeeper_ensemble_elects_another_leader() -> None:
    with zookeeper(3) as ensemble:
        first = ensemble.leader()
        assert first is not None
        first.kill()
        deadline = time.monotonic() + 30
        while (second := ensemble.leader()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert second not in (None, first)
        first.start()
    assert_gone(*ensemble.members)


def test_oxia_keeps_serving_after_kill_and_pause() -> None:
    with oxia(shards=3) as running:
        running.server.kill()
        assert not port_answers(running.port)
        running.server.start()
        running.server.pause()
        running.server.resume()
        assert port_answers(running.port)
    assert_gone(running.server)


def test_kafka_keeps_its_topics_over_a_kill() -> None:
    with kafka() as running:
        running.topics("--create", "--topic", "kept", "--partitions", "3")
        running.server.kill()
        assert not port_answers(running.port)
        running.server.start()
        assert "PartitionCount: 3" in running.topics("--describe", "--topic", "kept")
    assert_gone(running.server)


def test_a_pulsar_cluster_serves_clients_and_its_shell_lists_bookies() -> None:
    with zookeeper() as metadata:
        set_up_cluster(metadata.url, port=free_port(), web_port=free_port())
        with bookkeeper(metadata.url, 2) as storage, pulsar_brokers(metadata.url) as brokers:
            with pulsar_client(brokers.service_url) as client:
                consumer = client.subscribe("persistent://public/default/launched", "s")
                client.create_producer("persistent://public/default/launched").send(b"hello")
                assert consumer.receive(timeout_millis=20_000).data() == b"hello"
            listed = storage.shell("listbookies", "-rw")
            for port in storage.ports:
                assert str(port) in listed
    assert_gone(*metadata.members, *storage.members, *brokers.members)
