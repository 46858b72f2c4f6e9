"""Producers of the unmodified client from the package index: owners, names, secrets, patience."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import pulsar
import pytest
from rsa_keys import write_key_pair

from anabranch.testing.servers import anabranch_standalone, pulsar_client
from anabranch.testing.servers.standalone import Standalone

RECEIVE_MS = 10_000
EXCLUSIVE = pulsar.ProducerAccessMode.Exclusive
WAIT = pulsar.ProducerAccessMode.WaitForExclusive
FENCING = pulsar.ProducerAccessMode.ExclusiveWithFencing


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with anabranch_standalone() as running:
        yield running


@pytest.fixture
def client(server: Standalone) -> Iterator[Any]:
    with pulsar_client(server.service_url, operation_timeout_seconds=10) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name.replace('[', '-').replace(']', '')}-{time.monotonic_ns()}"


@pytest.mark.goal("core.B2", part="access modes", broken_by="owners_are_not_alone")
def test_an_exclusive_producer_is_alone(client: Any, topic: str) -> None:
    owner = client.create_producer(topic, access_mode=EXCLUSIVE)
    owner.send(b"mine")
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=EXCLUSIVE)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    owner.close()
    client.create_producer(topic).send(b"everybody's")


@pytest.mark.goal("core.B2", part="access modes", broken_by="nobody_is_called_next")
def test_a_waiting_producer_gets_its_turn(client: Any, topic: str) -> None:
    owner = client.create_producer(topic, access_mode=EXCLUSIVE)
    ready: list[Any] = []
    waiting = Thread(target=lambda: ready.append(client.create_producer(topic, access_mode=WAIT)))
    waiting.start()
    waiting.join(1)
    assert not ready
    owner.send(b"while it waits")
    owner.close()
    waiting.join(10)
    assert ready, "it did not become the owner"
    ready[0].send(b"its turn")


@pytest.mark.goal("core.B2", part="access modes", broken_by="a_fenced_producer_goes_on")
def test_a_fenced_producer_learns_of_it(server: Standalone, client: Any, topic: str) -> None:
    old = client.create_producer(topic, access_mode=EXCLUSIVE, send_timeout_millis=5000)
    old.send(b"old")
    with pulsar_client(server.service_url) as other:
        new = other.create_producer(topic, access_mode=FENCING)
        new.send(b"new")
        with pytest.raises(pulsar.ProducerFenced):
            old.send(b"too late")
        new.send(b"newer")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    seen = [reader.read_next(RECEIVE_MS).data() for _ in range(3)]
    assert seen == [b"old", b"new", b"newer"]


@pytest.mark.goal("core.B2", part="names and sequence ids", broken_by="names_are_used_twice")
def test_names_are_unique_and_sequence_ids_the_clients(client: Any, topic: str) -> None:
    producers = [client.create_producer(topic) for _ in range(3)]
    names = {producer.producer_name() for producer in producers}
    assert len(names) == 3
    assert all(name.startswith("standalone-") for name in names)
    named = client.create_producer(topic, producer_name="mine", initial_sequence_id=41)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="mine")
    named.send(b"first")
    named.send(b"with a number", sequence_id=100)
    assert named.last_sequence_id() == 100
    named.close()
    assert client.create_producer(topic, producer_name="mine").last_sequence_id() == -1


@pytest.mark.goal("core.B2", part="encryption", broken_by="encrypted_entries_are_left_out")
@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_encrypted_messages_pass_through(
    client: Any, topic: str, tmp_path: Path, batched: bool
) -> None:
    keys = pulsar.CryptoKeyReader(*map(str, write_key_pair(tmp_path)))
    knowing = client.subscribe(topic, "with key", crypto_key_reader=keys)
    blind = client.subscribe(
        topic, "without", crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    producer = client.create_producer(
        topic,
        encryption_key="k",
        crypto_key_reader=keys,
        batching_enabled=batched,
        compression_type=pulsar.CompressionType.LZ4,
    )
    producer.send(b"a secret")
    assert knowing.receive(RECEIVE_MS).data() == b"a secret"
    assert b"a secret" not in blind.receive(RECEIVE_MS).data()


@pytest.mark.goal("core.B2", part="chunking", broken_by="chunks_go_to_anybody")
def test_chunks_come_together_at_one_of_several_consumers(client: Any, topic: str) -> None:
    consumers = [
        client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=4
        )
        for _ in range(2)
    ]
    producers = [
        client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
        for _ in range(2)
    ]
    chance = random.Random(1)
    payloads = [chance.randbytes(6_000_000) for _ in range(6)]
    for number, payload in enumerate(payloads):
        producers[number % 2].send_async(payload, None)
    received: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(received) < len(payloads) and time.monotonic() < deadline:
        for consumer in consumers:
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            received.append(message.data())
            consumer.acknowledge(message)
    assert sorted(received) == sorted(payloads)


@pytest.mark.goal(
    "core.B2", part="send timeout and full queue", broken_by="entries_go_out_backwards"
)
def test_a_server_that_stands_still(server: Standalone, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    patient = client.create_producer(topic, max_pending_messages=3, send_timeout_millis=60_000)
    hasty = client.create_producer(topic, send_timeout_millis=1000)
    results: list[Any] = []
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for number in range(5):
            patient.send_async(b"%d" % number, lambda result, _: results.append(result))
        with pytest.raises(pulsar.Timeout):
            hasty.send(b"in vain")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    patient.flush()
    assert sorted(results, key=str) == sorted(
        [pulsar.Result.Ok] * 3 + [pulsar.Result.ProducerQueueIsFull] * 2, key=str
    )
    seen = [consumer.receive(RECEIVE_MS).data() for _ in range(4)]
    assert [payload for payload in seen if payload != b"in vain"] == [b"0", b"1", b"2"]
    hasty.send(b"again")
    assert consumer.receive(RECEIVE_MS).data() == b"again"


@pytest.mark.goal("core.B3", part="restart", broken_by="sequence_ids_are_not_replayed")
def test_what_is_sent_again_after_kill_9_is_stored_once() -> None:
    with anabranch_standalone() as server:
        policy = Request(
            f"{server.web_url}/admin/v2/namespaces/public/default/deduplication",
            b"true",
            {"Content-Type": "application/json"},
        )
        with urlopen(policy, timeout=10) as answer:
            assert answer.status == 204
        with pulsar_client(server.service_url) as client:
            producer = client.create_producer("t", producer_name="p", batching_enabled=False)
            for number in range(5):
                producer.send(b"%d" % number, sequence_id=number)
            producer.send(b"again", sequence_id=3)
            server.kill()
            server.start()
            producer.send(b"again", sequence_id=4)
            producer.send(b"5", sequence_id=5)
            producer.close()
            assert client.create_producer("t", producer_name="p").last_sequence_id() == 5
            reader = client.create_reader("t", pulsar.MessageId.earliest)
            seen = [reader.read_next(RECEIVE_MS).data() for _ in range(6)]
            assert seen == [b"%d" % number for number in range(6)]
            assert not reader.has_message_available()
