"""What the tests of the Spark data source share: a server, and messages of all kinds on it."""

import asyncio
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anabranch.client import Batching, Client
from anabranch.testing.standalone_in_thread import StandaloneInThread, standalone_in_thread
from pyspark_anabranch import DefaultSource

BATCH = Batching(messages_max=5, bytes_max=1 << 20, delay_s=5)


@dataclass
class Topics:
    """A server, and how a test fills and reads its topics."""

    server: StandaloneInThread
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    folder: Path | None = None
    """With the data of the server; None if they are in memory."""

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            f"{self.server.web_url}/admin/v2/{path}", body, method=method
        )
        if body is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def fill(self, topic: str, values: list[bytes], **producer: Any) -> None:
        """Publish in batches of five, unless something else is said."""

        async def publish() -> None:
            async with Client(self.server.service_url) as client:
                consumer = await client.consumer(topic, "keeps", initial_position="earliest")
                await consumer.close()
                sender = await client.producer(topic, **{"batching": BATCH, **producer})
                answers = [await sender.send_soon(value, key=value[:3]) for value in values]
                await sender.flush()
                await asyncio.gather(*answers)

        asyncio.run(publish())
        self.sent.setdefault(topic, []).extend(values)

    def roll(self, topic: str) -> None:
        """Have what is published next in another ledger."""
        self.ask("PUT", f"persistent/public/default/{topic}/unload")

    def options(self, **options: str) -> dict[str, str]:
        return {"serviceUrl": self.server.service_url, "adminUrl": self.server.web_url, **options}

    def source(self, **options: str) -> DefaultSource:
        return DefaultSource(self.options(**options))

    def rows(self, **options: str) -> list[dict[str, Any]]:
        """What a batch query returns, read without Spark."""
        reader = self.source(**options).reader(None)
        return [
            row
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]

    def values(self, **options: str) -> list[bytes]:
        return [row["value"] for row in self.rows(**options)]


@pytest.fixture(scope="session")
def topics_on():
    """How a test fills and reads topics of a server of its own."""
    return Topics


@pytest.fixture(scope="session")
def topics():
    with standalone_in_thread(web=True, delete_inactive_topics=False) as server:
        yield Topics(server)


@pytest.fixture(scope="session")
def stored_topics(tmp_path_factory):
    """The same on a server that keeps everything in a folder, which tests may look into."""
    folder = tmp_path_factory.mktemp("stored")
    with standalone_in_thread(
        web=True,
        delete_inactive_topics=False,
        data=str(folder),
        metadata_url="embedded:",
        ledgers_url="embedded:",
    ) as server:
        yield Topics(server, folder=folder)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One session for all tests of a run: Java takes longer to start than any of them."""
    from pyspark_anabranch.session import spark_session

    place = tmp_path_factory.mktemp("spark")
    flags = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session = spark_session(
        "local[2,2]",
        {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": flags,
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
            "spark.log.level": "ERROR",
            # A machine that does much else is slow to start a worker.
            "spark.python.authenticate.socketTimeout": "120s",
        },
    )
    yield session
    session.stop()
