"""The contract of bulk work, kept by the engine whose tasks are Spark's."""

import asyncio
import threading

import pytest

from anabranch.errors import InputError
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.bulk_engine import BulkEngineContract
from anabranch.testing.contracts.proving import proves
from pyspark_anabranch.jobs.spark_bulk import SparkBulk

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


COPIED = "a_copy_is_the_same_and_a_second_one_copies_nothing"


class ServedStore:
    """A store in memory that other processes can reach."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)

    async def _start(self):
        runtime = real_runtime()
        self._store = MemoryStore(runtime.clock)
        self._server = MetadataServer(runtime, self._store, on_failure=lambda name, error: None)
        await self._server.start("127.0.0.1", 0)
        return f"anabranch://127.0.0.1:{self._server.port}"

    async def _stop(self):
        await self._server.close()
        await self._store.close()

    def close(self):
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def served():
    made = []

    def make():
        made.append(ServedStore())
        return made[-1].url

    yield make
    for store in made:
        store.close()


@proves("spark.B1", "spark", {f"test_{COPIED}": "spark_cuts_off_the_last_part"})
@proves("spark.B3", "digests", {"test_digests_find_exactly_the_same": "spark_believes_digests"})
class TestSparkBulkOnServedStores(BulkEngineContract):
    @pytest.fixture
    def engine(self, spark):
        return SparkBulk(spark)

    @pytest.fixture
    def left(self, served):
        return served()

    @pytest.fixture
    def right(self, served):
        return served()


async def test_what_one_process_has_for_itself_is_one_part(spark, tmp_path, served):
    left, right = f"embedded:{tmp_path / 'left'}", served()
    suite = BulkEngineContract()
    places = StorePlace(left), StorePlace(right)
    await suite.test_a_copy_is_the_same_and_a_second_one_copies_nothing(SparkBulk(spark), places)


async def test_a_store_of_this_process_is_refused(spark, served):
    with pytest.raises(InputError, match="workers of Spark cannot see it"):
        await SparkBulk(spark).compare(StorePlace("memory:"), StorePlace(served()))
