"""A server whose metadata is in a real ZooKeeper, used by stock clients over a restart."""

from pathlib import Path

import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_client, zookeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


def test_messages_and_cursors_outlive_a_restart(tmp_path: Path) -> None:
    with zookeeper() as metadata:
        options = ("--metadata-url", f"{metadata.url}/standalone")
        with (
            anabranch_standalone(folder=tmp_path / "server", options=options) as server,
            pulsar_client(server.service_url) as client,
        ):
            consumer = client.subscribe("kept", "s")
            producer = client.create_producer("kept")
            for number in range(20):
                producer.send(b"%d" % number)
            for _ in range(5):
                consumer.acknowledge(consumer.receive(10_000))
        with (
            anabranch_standalone(folder=tmp_path / "server", options=options) as server,
            pulsar_client(server.service_url) as client,
        ):
            consumer = client.subscribe("kept", "s")
            received = [int(consumer.receive(10_000).data()) for _ in range(15)]
    assert received == list(range(5, 20))
    assert not list((tmp_path / "server").glob("**/metadata"))
