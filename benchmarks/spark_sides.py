"""The two sides of `spark_kafka`: our standalone and our source, Kafka and Spark's own source.

Both servers are as they come. Ours syncs every entry to disk before it answers; Kafka answers when
it has handed a record to the system, and leaves it to that when to sync.
"""

import pstats
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from anabranch.ids import TopicName
from anabranch.testing.servers import (
    Kafka,
    Standalone,
    anabranch_standalone,
    kafka,
    pulsar_perf,
)
from pyspark_anabranch.admin_view import AdminView
from pyspark_anabranch.places import BEGINNING

PARTITIONS: Final = 4
MESSAGE_BYTES: Final = 1024
PROFILE_ROWS: Final = 25
_TOOL_SPARE_S: Final = 90
"""What a tool may take beyond the messages themselves."""
_KEEPER: Final = "keeps"
"""A subscription, without which our server would delete what was written."""


class Side(Protocol):
    """A server with topics, and a way for Spark to read and write them."""

    def create(self, topic: str) -> None:
        """Make a topic with `PARTITIONS` partitions."""
        ...

    def delete(self, topic: str) -> None:
        """Delete a topic and what it holds."""
        ...

    def table(self, spark: SparkSession, topic: str, columns: Sequence[str]) -> DataFrame:
        """A topic as a table of the columns `value` and `published`, or of all there are.

        Args:
            spark: the session.
            topic: which one.
            columns: those that a query is going to look at; none for whatever the source gives.
        """
        ...

    def stream(self, spark: SparkSession, topic: str, columns: Sequence[str]) -> DataFrame:
        """The same from the beginning on, as a stream."""
        ...

    def write(self, rows: DataFrame, topic: str, guarantee: str) -> None:
        """Append the column `value` to a topic; `guarantee` concerns our sink alone."""
        ...

    def publish(self, topic: str, messages: int, per_s: int) -> None:
        """Publish messages with the server's own perf tool, and wait until it is done."""
        ...


class OurSide:
    """See `Side`."""

    def __init__(self, server: Standalone) -> None:
        self._server = server
        self._view = AdminView(server.web_url)

    def create(self, topic: str) -> None:
        """See `Side.create`."""
        self._view.ask("PUT", f"persistent/public/default/{topic}/partitions", PARTITIONS)
        for partition in self._view.partitions(TopicName.parse(topic)):
            self._view.keep_subscription(partition, _KEEPER, BEGINNING)

    def delete(self, topic: str) -> None:
        """See `Side.delete`."""
        self._view.ask("DELETE", f"persistent/public/default/{topic}/partitions?force=true")

    def _options(self, topic: str, columns: Sequence[str]) -> dict[str, str]:
        ours = {"published": "publish_time"}
        chosen = {"columns": ",".join(ours.get(name, name) for name in columns)}
        return self._where(topic) | (chosen if columns else {})

    def _where(self, topic: str) -> dict[str, str]:
        return {
            "serviceUrl": self._server.service_url,
            "adminUrl": self._server.web_url,
            "topic": topic,
        }

    def table(self, spark: SparkSession, topic: str, columns: Sequence[str]) -> DataFrame:
        """See `Side.table`."""
        found = spark.read.format("anabranch").options(**self._options(topic, columns)).load()
        return found.withColumnRenamed("publish_time", "published")

    def stream(self, spark: SparkSession, topic: str, columns: Sequence[str]) -> DataFrame:
        """See `Side.stream`."""
        options = self._options(topic, columns) | {"start": "earliest"}
        found = spark.readStream.format("anabranch").options(**options).load()
        return found.withColumnRenamed("publish_time", "published")

    def write(self, rows: DataFrame, topic: str, guarantee: str) -> None:
        """See `Side.write`."""
        options = self._where(topic) | {"guarantee": guarantee}
        rows.select("value").write.format("anabranch").options(**options).mode("append").save()

    def publish(self, topic: str, messages: int, per_s: int) -> None:
        """See `Side.publish`."""
        wishes = ("-r", str(per_s), "-s", str(MESSAGE_BYTES), "-m", str(messages))
        server = ("-u", self._server.service_url)
        pulsar_perf(
            ["produce", *server, *wishes, str(TopicName.parse(topic))],
            timeout_s=messages / per_s + _TOOL_SPARE_S,
        )


class KafkaSide:
    """See `Side`."""

    def __init__(self, server: Kafka) -> None:
        self._server = server

    def create(self, topic: str) -> None:
        """See `Side.create`."""
        self._server.topics("--create", "--topic", topic, "--partitions", str(PARTITIONS))

    def delete(self, topic: str) -> None:
        """See `Side.delete`."""
        self._server.topics("--delete", "--topic", topic)

    def _pointed(
        self, to: DataFrameReader | DataStreamReader, topic: str, columns: Sequence[str]
    ) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self._server.bootstrap_server,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        found = to.format("kafka").options(**options).load()
        return found.withColumnRenamed("timestamp", "published").select(*(columns or ["*"]))

    def table(self, spark: SparkSession, topic: str, columns: Sequence[str]) -> DataFrame:
        """See `Side.table`."""
        return self._pointed(spark.read, topic, columns)

    def stream(self, spark: SparkSession, topic: str, columns: Sequence[str]) -> DataFrame:
        """See `Side.stream`."""
        return self._pointed(spark.readStream, topic, columns)

    def write(self, rows: DataFrame, topic: str, guarantee: str) -> None:
        """See `Side.write`."""
        writer: DataFrameWriter = rows.select("value").write.format("kafka")
        address = self._server.bootstrap_server
        writer.option("kafka.bootstrap.servers", address).option("topic", topic).save()

    def publish(self, topic: str, messages: int, per_s: int) -> None:
        """See `Side.publish`."""
        self._server.publish(topic, messages, MESSAGE_BYTES, per_s)


@contextmanager
def our_side(*, profile: bool = False) -> Iterator[OurSide]:
    """Our standalone; with `profile`, it prints where its time went once it has ended."""
    if not profile:
        with anabranch_standalone() as server:
            yield OurSide(server)
        return
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats"
        wrapper = Path(__file__).with_name("profiled.py")
        # -P, or the modules beside the wrapper would hide installed ones of the same name.
        command = (sys.executable, "-P", str(wrapper), str(stats))
        with anabranch_standalone(command=command) as server:
            yield OurSide(server)
        pstats.Stats(str(stats)).sort_stats("tottime").print_stats(PROFILE_ROWS)


@contextmanager
def kafka_side() -> Iterator[KafkaSide]:
    """Kafka as it comes, with the gigabyte of memory that its own scripts give it."""
    with kafka() as server:
        yield KafkaSide(server)
