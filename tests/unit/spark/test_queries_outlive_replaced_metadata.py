"""Queries of Spark go on while the metadata store of the broker they read from is replaced."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from anabranch.client import Client
from anabranch.client.admin import AdminClient
from anabranch.testing.large_replacement import fill
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, replaceable_cluster

pytestmark = [
    pytest.mark.peer,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]
TOPIC = "persistent://public/default/outlives"
KEYS = 7
BEFORE = 1000
"""Messages that are there before the start: what the slow batch query reads."""
ROW_MS = 40
"""The slow query takes this long for a row, so that it lasts longer than the operation."""
NODES = 500
NODES_PER_S = 100
"""Of the metadata store: so that several batches fall into the time of the copy."""
SEND_REST_S = 0.005
LONG_S = 150.0


class Publishing:
    """A producer that sends numbers with keys, one after the other, and notes what it was told."""

    def __init__(self, service_url: str) -> None:
        self.acknowledged: list[int] = []
        self.failure: Exception | None = None
        self._service_url = service_url
        self._over = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._publish()))

    @contextmanager
    def under_way(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    async def _publish(self) -> None:
        try:
            async with Client(self._service_url) as client:
                # What the stream is through with is needed by the slow query.
                await (await client.consumer(TOPIC, "keeps", initial_position="earliest")).close()
                producer = await client.producer(TOPIC)
                number = 0
                while not self._over.is_set():
                    await producer.send(b"%d" % number, key=b"%d" % (number % KEYS))
                    self.acknowledged.append(number)
                    number += 1
                    await asyncio.sleep(SEND_REST_S)
        except Exception as error:  # noqa: BLE001 - of a thread; the test looks at it
            self.failure = error

    def more(self, count: int) -> None:
        enough = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= enough or self.failure is not None)
        assert self.failure is None


class SlowRead(Thread):
    """One batch query, in a single task that takes its time for each row."""

    def __init__(self, spark, options) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.failure: Exception | None = None
        self.ended_s = 0.0
        self._context = spark.sparkContext
        pause = f"reflect('java.lang.Thread', 'sleep', {ROW_MS}L) waited"
        # Each span of entries is asked for when the one before is done.
        table = spark.read.format("anabranch").options(**options, maxEntriesPerTask="20").load()
        assert table.rdd.getNumPartitions() >= BEFORE // 20
        columns = ("cast(key as string) key", "cast(value as string) value", pause)
        self._rows = table.coalesce(1).selectExpr(*columns)

    def run(self) -> None:
        self._context.setJobGroup("slow", "a query that takes its time")
        try:
            self.found = [(row.key, row.value) for row in self._rows.collect()]
        except Exception as error:  # noqa: BLE001 - of a thread; the test looks at it
            self.failure = error
        self.ended_s = time.time()

    def is_reading(self) -> bool:
        """Whether its task runs."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("slow")]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return any(stage.numActiveTasks for stage in stages if stage)


def eventually(condition) -> None:
    last_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < last_s, "it did not come"
        time.sleep(0.05)


def admin_of(cluster: ReplaceableCluster, ask):
    """What one request to the broker gives."""

    async def asked():
        async with AdminClient(cluster.web_urls[0]) as admin:
            return await ask(admin)

    return asyncio.run(asked())


def wait_for(cluster: ReplaceableCluster, phase: str) -> None:
    def is_there() -> bool:
        status = admin_of(cluster, lambda admin: admin.metadata_migration.status())
        assert not status["error"], status["error"]
        return status["phase"] == phase

    eventually(is_there)


def replace_store(cluster: ReplaceableCluster, publishing: Publishing, streamed) -> list[float]:
    """Go all the way; returns when it began, was switched, was finalized."""
    target = cluster.target.url
    asked = {"target": target, "nodes_per_s": NODES_PER_S}
    times = [time.time()]
    admin_of(cluster, lambda admin: admin.metadata_migration.start(asked))
    wait_for(cluster, "switched")
    times.append(time.time())
    # What is published from now on is in ledgers that the new store alone has named.
    for part in range(2):
        name = f"{TOPIC}-partition-{part}"
        admin_of(cluster, lambda admin, name=name: admin.topics.unload(name))
    publishing.more(100)
    # A batch that has begun after another did so when that one was committed.
    last = streamed[-1][2]
    eventually(lambda: streamed[-1][2] > last + 2)
    admin_of(cluster, lambda admin: admin.metadata_migration.ask("finalize"))
    wait_for(cluster, "finalized")
    times.append(time.time())
    (broker,) = cluster.brokers.members
    eventually(lambda: "store_left_for_good" in broker.log.read_text())
    return times


def commits_within(checkpoint, first_s: float, last_s: float) -> int:
    """How many batches Spark wrote down as done in that time."""
    made_s = [
        file.stat().st_mtime for file in (checkpoint / "commits").iterdir() if file.name.isdigit()
    ]
    return sum(first_s < each < last_s for each in made_s)


@pytest.mark.goal("spark.C20", part="metadata store")
def test_a_stream_and_a_batch_query_go_on_through_a_replaced_store(spark, tmp_path):
    streamed: list[tuple[str, str, int]] = []

    def note(rows, batch_id):
        columns = rows.selectExpr("cast(key as string) key", "cast(value as string) value")
        streamed.extend((row.key, row.value, batch_id) for row in columns.collect())

    dedup = ("--deduplication",)
    with replaceable_cluster(tmp_path / "servers", 1, broker_options=dedup) as cluster:
        options = {
            "serviceUrl": cluster.brokers.service_url,
            "adminUrl": cluster.web_urls[0],
            "topic": TOPIC,
            "start": "earliest",
        }
        asyncio.run(fill(cluster.source.url, NODES))
        admin_of(cluster, lambda admin: admin.topics.create_partitioned(TOPIC, 2))
        publishing = Publishing(cluster.brokers.service_url)
        query = (
            spark.readStream.format("anabranch")
            .options(**options, subscription="follows", maxRowsPerTrigger="300")
            .load()
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        run = query.runId
        try:
            with publishing.under_way():
                publishing.more(BEFORE)
                eventually(lambda: len(streamed) >= BEFORE)
                slow = SlowRead(spark, options)
                slow.start()
                eventually(slow.is_reading)
                began_s, switched_s, finalized_s = replace_store(cluster, publishing, streamed)
                cluster.source.members[0].stop()
                publishing.more(300)
            acknowledged = publishing.acknowledged
            eventually(lambda: len(streamed) >= len(acknowledged) or not query.isActive)
            slow.join(LONG_S)
            assert query.exception() is None
            assert query.isActive
            assert [each.runId for each in spark.streams.active] == [run], "never started again"
        finally:
            query.stop()
    print(
        f"{len(acknowledged)} messages; start to switched {switched_s - began_s:.1f} s, to "
        f"finalized {finalized_s - switched_s:.1f} s; the slow query ended "
        f"{slow.ended_s - finalized_s:.1f} s later"
    )
    assert publishing.failure is None
    commits = tmp_path / "checkpoint"
    meanwhile = [
        commits_within(commits, *span)
        for span in ((began_s, switched_s), (switched_s, finalized_s), (finalized_s, time.time()))
    ]
    print(f"batches before the switch, before the end, and later: {meanwhile}")
    assert min(meanwhile) > 0, meanwhile
    numbers = [int(value) for _, value, _ in streamed]
    assert sorted(numbers) == acknowledged, "each once"
    check_order((key, value) for key, value, _ in streamed)
    assert slow.failure is None, str(slow.failure)
    assert slow.ended_s > finalized_s, "it was under way all the time"
    read = sorted(int(value) for _, value in slow.found)
    assert len(read) >= BEFORE
    assert read == acknowledged[: len(read)], "each once"
    check_order(slow.found)


def check_order(rows) -> None:
    """The numbers of each key rise."""
    by_key: dict[str, list[int]] = {}
    for key, value in rows:
        by_key.setdefault(key, []).append(int(value))
    assert len(by_key) == KEYS
    for key, numbers in by_key.items():
        assert numbers == sorted(numbers), f"of key {key}"
        assert {number % KEYS for number in numbers} == {int(key)}
