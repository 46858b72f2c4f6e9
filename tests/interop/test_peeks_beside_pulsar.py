"""What is said about a message that is looked at is the same on our server and on Pulsar."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from rsa_keys import write_key_pair

from anabranch.limits import BOOKKEEPER_FRAME_BYTES_MAX
from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
CHANGES = {"message-id", "publish-time", "deliver-at-time", "uuid", "batch-size"}
"""Headers that have another value each time, or that each server measures in its own way."""
NOT_SAID = {
    "txn-uncommitted", "txn-aborted",
    "property-chunk-id", "property-total-chunks", "compression", "uncompressed-size",
    "encryption-algo", "base64-encryption-param", "base64-encryption-keys",
}  # fmt: skip
"""Headers of Pulsar about transactions, about what is in the payload no more, or said twice."""


def entry(producer: str, number: int = 0, **more: str) -> dict[str, str]:
    """What is said about an entry of a producer, beside what is its own."""
    return {
        "message-id": "…",
        "publish-time": "…",
        "producer-name": producer,
        "sequence-id": str(number),
        "property": "{}",
        "is-encrypted": "false",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


CHUNK = {"uuid": "…", "num_chunks_from_msg": "2", "total_chunk_msg_size": "6000000"}
SEEN = [
    entry("plain"),
    entry(
        "plain",
        1,
        property='{"A b": "ü", "c:d": "x\\ny"}',
        partition_key="k",
        base64_ordering_key="bw==",
        event_time="2023-11-14T22:13:20.123Z",
        deliver_at_time="…",
    ),
    entry("batched", num_batch_message="2", batch_size="…"),
    entry("packed"),
    entry("sealed", is_encrypted="true"),
    entry("large", chunk_id="0", **CHUNK),
    entry("large", chunk_id="1", **CHUNK),
]


@pytest.fixture(params=["ours", "pulsar"])
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    if request.param == "ours":
        with anabranch_standalone() as running:
            yield running
        return
    # As in Pulsar's own standalone.conf: without it chunks of the largest size are not stored.
    frames = {"nettyMaxFrameSizeBytes": str(BOOKKEEPER_FRAME_BYTES_MAX)}
    with pulsar_standalone(settings=frames) as running:
        yield running


def publish(server: Standalone, topic: str, folder: Path) -> None:
    """One entry of each kind, the large one in two."""
    client = pulsar.Client(server.service_url)
    try:
        client.subscribe(topic, "s").close()

        def producer(name: str, **options: Any) -> Any:
            return client.create_producer(topic, producer_name=name, **options)

        plain = producer("plain")
        plain.send(b"nothing said")
        plain.send(
            b"all said",
            properties={"A b": "ü", "c:d": "x\ny"},
            partition_key="k",
            ordering_key="o",
            event_timestamp=1_700_000_000_123,
            deliver_after=timedelta(hours=1),
        )
        batched = producer(
            "batched", batching_enabled=True, compression_type=pulsar.CompressionType.LZ4
        )
        for each in (b"one", b"two"):
            batched.send_async(each, lambda *_: None)
        batched.flush()
        producer("packed", compression_type=pulsar.CompressionType.ZSTD).send(b"x" * 1000)
        keys = pulsar.CryptoKeyReader(*map(str, write_key_pair(folder)))
        sealed = producer("sealed", encryption_key="mine", crypto_key_reader=keys)
        sealed.send(b"for few")
        producer("large", chunking_enabled=True).send(b"y" * 6_000_000)
    finally:
        client.close()


def said(server: Standalone, topic: str, place: int) -> dict[str, str]:
    where = urlsplit(server.web_url)
    connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
    try:
        connection.request(
            "GET", f"/admin/v2/persistent/public/default/{topic}/subscription/s/position/{place}"
        )
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        headers = {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()
    shown = {
        name.removeprefix("x-pulsar-"): value
        for name, value in headers.items()
        if name.startswith("x-pulsar-")
    }
    # Each writes JSON as it likes.
    shown["property"] = json.dumps(json.loads(shown["property"]), ensure_ascii=False)
    return {
        name: "…" if name in CHANGES else value
        for name, value in shown.items()
        if name not in NOT_SAID
    }


@pytest.mark.goal("core.B13", part="peek")
def test_what_is_said_about_each_entry(server: Standalone, tmp_path: Path) -> None:
    topic = f"peeked-{time.monotonic_ns()}"
    publish(server, topic, tmp_path)
    assert [said(server, topic, place) for place in range(1, len(SEEN) + 1)] == SEEN
